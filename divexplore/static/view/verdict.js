// The verdict: what was found, where, by how much, and what to try.

import { element, OWN_KEYS } from "./dom.js";
import { amount, number, quoted, verdictWord } from "./format.js";

/** The facts of the headline, each a short phrase. */
export function headline(comparison) {
  const { header } = comparison;
  if (comparison.otherPrompts) return ["other prompts, nothing else is compared"];
  const phrases = ["A", "B"]
    .filter((name) => comparison[name.toLowerCase()].facts.invalid !== null)
    .map((name) => `${name}'s logits are not finite at step ${comparison[name.toLowerCase()].facts.invalid}`);
  if (header.split) {
    const { step, a, b, epsilon } = header.split;
    phrases.push(`split at step ${step}`, lean("A", a, comparison.a, step), lean("B", b, comparison.b, step));
    if (epsilon !== null) phrases.push(`epsilon ${amount(epsilon)}`);
  } else if (header.first_drift !== null) {
    phrases.push(`first drift at step ${header.first_drift}`, "no token differs");
  } else {
    phrases.push(agreement(header.verdict, Math.min(comparison.a.steps, comparison.b.steps)));
  }
  if (header.referee) phrases.push(referee(header.referee));
  return phrases;
}

/** What streams without a known difference show; that no token differs says nothing of rows that nobody could compare. */
function agreement({ name, inconclusive }, common) {
  if (!common) return "no step compared";
  const steps = common === 1 ? "1 step" : `${common} steps`;
  if (name === "measurement") return `${steps} side by side`;
  return name === "identical" && !inconclusive ? `no difference in ${steps}` : `no token differs in ${steps}`;
}

function lean(name, side, run, step) {
  const said = `${name} ${quoted(side.text)}`;
  const behind = run.topLogits[step * run.k] - side.logit; // of a token that something else than the logits chose
  if (side.logit !== null && behind > 0) return `${said} is ${amount(behind, run.facts.unit)} below the best`;
  if (side.exact_tie) return `${said} from an exact tie`;
  if (side.margin === null) return said; // a record without a list
  const spacing = side.margin_ulps === null ? "" : ` (${number(side.margin_ulps, 3)} ULP)`;
  return `${said} leads by ${amount(side.margin, run.facts.unit)}${spacing}`;
}

/** The referee's opinion in a phrase. */
export function referee(opinion) {
  if (opinion.undecided) return "referee: undecided";
  const by = opinion.gap === null || opinion.gap === undefined ? "" : ` by ${number(Math.abs(opinion.gap), 3)} logits`;
  return `referee: ${quoted(opinion.text ?? `#${opinion.token_id}`)}${by}`;
}

export function verdictPart(comparison) {
  const { verdict } = comparison.header;
  const chips = [element("strong.dx-chip", { text: verdictWord(verdict.name), "data-verdict": verdict.name })];
  if (verdict.inconclusive) chips.push(element("span.dx-chip.dx-chip-open", { text: "inconclusive" }));
  const phrases = headline(comparison).map((text) => element("span.dx-phrase", { text }));
  const also = verdict.also.length ? ` Also: ${verdict.also.map(verdictWord).join(", ")}.` : "";
  return element(
    "header.dx-verdict",
    {},
    element("p.dx-headline", {}, ...chips, ...phrases),
    element("p.dx-why", { text: verdict.why + also }),
    verdict.next ? element("p.dx-next", {}, element("span.dx-quiet", { text: "Next: " }), verdict.next) : null,
    evidence(verdict, comparison.header.ladder),
  );
}

function evidence(verdict, ladder) {
  const sentences = [...verdict.evidence];
  if (!sentences.length && !ladder?.length) return null;
  return element(
    "details.dx-evidence",
    {},
    element("summary", { text: `evidence (${sentences.length || ladder.length})`, ...OWN_KEYS }),
    sentences.length ? element("ul", {}, ...sentences.map((text) => element("li", { text }))) : null,
    ladder?.length ? ladderTable(ladder) : null,
  );
}

function ladderTable(ladder) {
  const head = ["precision", "epsilon at the split (logits)", "epsilon, maximum (logits)", ""];
  return element(
    "table.dx-table",
    {},
    element("caption", { text: "Precision ladder: the same tokens in the same shapes, computed more precisely" }),
    element(
      "thead",
      {},
      element("tr", {}, ...head.map((text) => (text ? element("th", { scope: "col", text }) : element("td")))),
    ),
    element(
      "tbody",
      {},
      ...ladder.map((rung) =>
        element(
          "tr",
          {},
          element("th", { scope: "row", text: rung.dtype }),
          element("td.dx-number", { text: number(rung.epsilon_at_split, 3) }),
          element("td.dx-number", { text: number(rung.epsilon_max, 3) }),
          element("td", { text: rung.vacuous ? "no evidence: the knob does nothing here" : "" }),
        ),
      ),
    ),
  );
}
