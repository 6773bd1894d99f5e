// Logits: what both sides weighed at the selected column. Numbers of two sides meet only where the prefix is the same.

import { button, element, numberCell, token } from "./dom.js";
import { amount, logit, number, probability, visible } from "./format.js";
import { referee } from "./verdict.js";
import { joinTop, samePrefix, stepOf, topList } from "./payload.js";
import { chart, vegaEmbed } from "./vega.js";

const FEW = 8; // rows shown at first, and tokens in the bars
const BELOW = "below k";

export const logitsTab = {
  name: "Logits",
  present: (comparison) => comparison.length > 0,
  make: (view, signal) => new LogitsTab(view, signal),
};

/** What is known of one side at one step, as label and value. */
export function sideFacts(side, step) {
  const { dtype, unit } = side.facts;
  const list = topList(side, step);
  const lead = list.length > 1 ? list[0].probability - list[1].probability : NaN;
  const rank = list.findIndex((entry) => entry.id === side.token[step]);
  return [
    [
      "margin",
      side.tie[step]
        ? `exact tie (${amount(0, unit)}, ${dtype})`
        : Number.isNaN(side.ulps[step])
          ? amount(side.margin[step], unit)
          : `${amount(side.margin[step], unit)} = ${number(side.ulps[step], 3)} ULP (${dtype})`,
    ],
    ["lead in probability", probability(lead)],
    ["entropy", `${number(side.entropy[step], 3)} nats`],
    ["probability of its token", probability(Math.exp(side.logprob[step]))],
    ["rank of its token", rank < 0 ? BELOW : String(rank + 1)],
  ];
}

/** What was measured between the sides at a column, as label and value; only what is known. */
export function pairFacts(comparison, column) {
  const step = stepOf(comparison, "a", column);
  if (step === null) return [];
  const facts = [];
  const { forced, floor, header } = comparison;
  const known = (values) => values !== null && values !== undefined && !Number.isNaN(values[step]);
  const same = samePrefix(comparison, column);
  if (same && known(comparison.epsilon)) facts.push(["epsilon", amount(comparison.epsilon[step])]);
  else if (known(forced.epsilon)) facts.push(["epsilon", amount(forced.epsilon[step])]);
  if (known(floor)) facts.push(["noise floor", amount(floor[step])]);
  if (known(floor) && floor[step] > 0 && same && known(comparison.epsilon)) {
    facts.push(["epsilon ÷ floor", number(comparison.epsilon[step] / floor[step], 3)]);
  }
  if (known(forced.kld)) facts.push(["KLD(A‖B)", `${number(forced.kld[step], 3)} nats`]);
  if (known(forced.deltaP)) facts.push(["Δp of A's token", number(forced.deltaP[step], 3)]);
  if (known(forced.rank)) facts.push(["rank of A's token in B", String(forced.rank[step] + 1)]);
  if (column === comparison.split && header.split) {
    const { a, b, pair_swing: swing } = header.split;
    if (a.gap !== null) facts.push(["gap of A", amount(a.gap, comparison.a.facts.unit)]);
    if (b.gap !== null) facts.push(["gap of B", amount(b.gap, comparison.b.facts.unit)]);
    if (swing !== null) facts.push(["pair swing", amount(swing, comparison.a.facts.unit)]);
    if (header.referee) facts.push(["referee", referee(header.referee).replace("referee: ", "")]);
  }
  return facts;
}

/** Rows of the bars: `label` is unique a token, `order` from the top. */
export function barRows(comparison, column) {
  const a = stepOf(comparison, "a", column);
  const b = stepOf(comparison, "b", column);
  const listA = a === null ? [] : topList(comparison.a, a);
  const listB = b === null ? [] : topList(comparison.b, b);
  const seen = new Map();
  const label = (prefix, id) => {
    const text = `${prefix}${visible(comparison.text(id), true)}`;
    if (!seen.has(text)) seen.set(text, id);
    return seen.get(text) === id ? text : `${text} #${id}`;
  };
  if (samePrefix(comparison, column)) {
    return joinTop(listA, listB)
      .slice(0, FEW)
      .flatMap((row, order) =>
        ["a", "b"]
          .filter((side) => row[side])
          .map((side) => ({
            label: label("", row.id),
            order,
            side: side.toUpperCase(),
            probability: row[side].probability,
          })),
      );
  }
  const half = (name, list) =>
    list.slice(0, FEW / 2).map((entry, index) => ({
      label: label(`${name}: `, entry.id),
      order: index + (name === "B" ? FEW : 0),
      side: name,
      probability: entry.probability,
    }));
  return [...half("A", listA), ...half("B", listB)];
}

class LogitsTab {
  constructor(view, signal) {
    this.view = view;
    this.signal = signal;
    this.all = false;
    this.title = element("h3.dx-title");
    this.note = element("p.dx-note");
    this.cards = element("div.dx-cards");
    this.table = element("table.dx-table.dx-top");
    this.bars = element("div.dx-bars");
    this.more = button("all recorded tokens", { "aria-pressed": "false", signal, on: { click: () => this.toggle() } });
    const tables = element("div.dx-top-part", {}, this.table, this.more);
    this.element = element(
      "div.dx-logits",
      {},
      this.title,
      this.note,
      this.cards,
      element("div.dx-split-pane", {}, tables, this.bars),
    );
  }

  toggle() {
    this.all = !this.all;
    this.more.setAttribute("aria-pressed", String(this.all));
    this.show(this.column);
  }

  async draw() {
    try {
      const embed = await vegaEmbed(this.view.model);
      const { comparison } = this.view;
      this.chart = await chart(embed, this.bars, {
        spec: comparison.header.charts.top,
        rows: { top: barRows(comparison, this.column) },
        signal: this.signal,
      });
    } catch {
      this.bars.remove(); // the table says the same; the timeline's note tells why
    }
  }

  show(column) {
    this.column = column;
    const { comparison } = this.view;
    const a = stepOf(comparison, "a", column);
    const b = stepOf(comparison, "b", column);
    const same = samePrefix(comparison, column);
    this.title.replaceChildren(...titleParts(comparison, column, a, b));
    this.note.textContent = same ? "" : apart(comparison);
    this.note.hidden = same;
    this.cards.replaceChildren(card("A", comparison.a, a), card("B", comparison.b, b), ...between(comparison, column));
    const k = Math.max(comparison.a.k, comparison.b.k);
    this.table.replaceChildren(...(same && a !== null && b !== null ? this.joined(a, b, k) : this.apart(a, b, k)));
    this.feed();
  }

  feed() {
    if (!this.chart || this.column === undefined) return;
    this.chart.data("top", barRows(this.view.comparison, this.column)).runAsync();
  }

  /** One row a token: both sides' rank, logit and probability. */
  joined(a, b, k) {
    const { comparison } = this.view;
    const rows = joinTop(topList(comparison.a, a), topList(comparison.b, b));
    const shown = this.all ? rows : rows.slice(0, FEW);
    this.more.hidden = rows.length <= FEW;
    const body = shown.map((row) => {
      const chosen = [comparison.a.token[a] === row.id ? "A" : "", comparison.b.token[b] === row.id ? "B" : ""].filter(
        Boolean,
      );
      const difference = row.a && row.b ? row.b.logit - row.a.logit : null;
      return element(
        `tr${chosen.length ? ".dx-chosen" : ""}`,
        {},
        tokenHead(comparison, row.id, chosen),
        ...sideCells(row.a, comparison.a, k),
        ...sideCells(row.b, comparison.b, k),
        numberCell(difference === null ? "—" : signed(difference)),
      );
    });
    const [wordA, wordB] = [comparison.a.facts.values, comparison.b.facts.values];
    const heads = ["rank A", `${wordA} A`, "p A", "rank B", `${wordB} B`, "p B", "B − A"];
    return [
      caption(`Top ${k} of both sides, one row a token; ${kind(comparison)}`),
      headRow(["token", ...heads]),
      element("tbody", {}, ...body),
    ];
  }

  /** Two lists that only share the page. */
  apart(a, b, k) {
    const { comparison } = this.view;
    const listA = a === null ? [] : topList(comparison.a, a);
    const listB = b === null ? [] : topList(comparison.b, b);
    const length = Math.max(listA.length, listB.length);
    this.more.hidden = length <= FEW;
    const body = Array.from({ length: this.all ? length : Math.min(length, FEW) }, (_, rank) =>
      element(
        "tr",
        {},
        element("th.dx-number", { scope: "row", text: String(rank + 1) }),
        ...listCells(comparison, "a", listA[rank]),
        ...listCells(comparison, "b", listB[rank]),
      ),
    );
    const [wordA, wordB] = [comparison.a.facts.values, comparison.b.facts.values];
    const heads = ["rank", "token A", `${wordA} A`, "p A", "token B", `${wordB} B`, "p B"];
    return [
      caption(`Top ${k} of each side on its own prefix; ${kind(comparison)}`),
      headRow(heads),
      element("tbody", {}, ...body),
    ];
  }
}

function apart(comparison) {
  const what = comparison.otherPrompts
    ? "The two runs had other prompts"
    : "After the split the two runs have other prefixes";
  return `${what}: their numbers stand side by side, but are not comparable.`;
}

function titleParts(comparison, column, a, b) {
  const where = a === b ? `step ${a}` : `step ${a ?? "—"} of A, step ${b ?? "—"} of B`;
  const place = column === comparison.split ? " · the split" : column === comparison.drift ? " · first drift" : "";
  const parts = [`${where}${place}`];
  for (const [name, side, step] of [
    ["A", comparison.a, a],
    ["B", comparison.b, b],
  ]) {
    const text = step === null ? "no token here" : comparison.text(side.token[step]);
    const raw = step === null ? null : comparison.bytes(side.token[step]);
    parts.push(
      element(
        `span.dx-said.dx-ink-${name.toLowerCase()}`,
        {},
        `${name} `,
        step === null ? text : token(visible(text, true)),
        raw ? ` (bytes ${raw})` : "",
      ),
    );
  }
  return parts;
}

function card(name, side, step) {
  const facts = step === null ? [["", "no token in this column"]] : sideFacts(side, step);
  return factCard(`${name} · ${side.facts.label}`, facts, `.dx-card-${name.toLowerCase()}`);
}

function between(comparison, column) {
  const facts = pairFacts(comparison, column);
  const title = samePrefix(comparison, column) ? "between the sides" : "between the sides, B forced on A's tokens";
  return facts.length ? [factCard(title, facts, ".dx-card-pair")] : [];
}

function factCard(title, facts, extra) {
  const pairs = facts.map(([label, value]) =>
    element("div.dx-fact", {}, element("dt", { text: label }), element("dd", { text: value })),
  );
  return element(`section.dx-card${extra}`, {}, element("h4", { text: title }), element("dl", {}, ...pairs));
}

/** What the values are: a record of a serving engine holds log-probabilities. */
function kind(comparison) {
  const words = new Set([comparison.a.facts.values, comparison.b.facts.values]);
  if (words.size === 2) return "logits on one side, recorded log-probabilities on the other";
  return words.has("logprob") ? "log-probabilities as recorded" : "logits raw";
}

function caption(text) {
  return element("caption", { text });
}

function headRow(words) {
  return element("thead", {}, element("tr", {}, ...words.map((text) => element("th", { scope: "col", text }))));
}

function tokenHead(comparison, id, chosen) {
  const tags = chosen.map((side) =>
    element(`span.dx-tag.dx-tag-${side.toLowerCase()}`, { text: side, title: `taken by ${side}` }),
  );
  return element("th", { scope: "row", title: `id ${id}` }, token(visible(comparison.text(id), true)), ...tags);
}

function sideCells(entry, side, k) {
  if (!entry) return [element("td.dx-below", { colspan: 3, text: BELOW, title: `not among the ${k} recorded` })];
  return [
    numberCell(String(entry.rank + 1)),
    numberCell(logit(entry.logit, side.facts.dtype)),
    numberCell(probability(entry.probability)),
  ];
}

function listCells(comparison, name, entry) {
  if (!entry) return [element("td", { colspan: 3 })];
  const cell = element("td", { title: `id ${entry.id}` }, token(visible(comparison.text(entry.id), true)));
  return [
    cell,
    numberCell(logit(entry.logit, comparison[name].facts.dtype)),
    numberCell(probability(entry.probability)),
  ];
}

function signed(value) {
  return value > 0 ? `+${number(value)}` : number(value);
}
