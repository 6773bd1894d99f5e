// Cause: which knob, which operation, which layer, and whether both runs did what was asked. A part nobody asked for is absent.

import { button, element, icon, numberCell, OWN_KEYS, token } from "./dom.js";
import { number, verdictWord, visible } from "./format.js";
import { chart, vegaEmbed } from "./vega.js";

const FEW_OUTPUTS = 8; // rows of the operation table shown at first
const WIDEST = 1000; // px, of the layer chart
const BESIDE = 150; // px: axes, and the room between the panels
const REST = 200; // ms without a change of width, before the layer chart is drawn anew

// Paths in a box of 16, and a word beside each: the picture alone says nothing.
const HELD = { word: "held", path: "M6.4 12.6 2 8.2l1.4-1.4 3 3 6.2-6.2L14 5z" };
const FAILED = {
  word: "failed",
  path: "M4.4 3 8 6.6 11.6 3 13 4.4 9.4 8 13 11.6 11.6 13 8 9.4 4.4 13 3 11.6 6.6 8 3 4.4z",
};
const UNKNOWN = { word: "not known", path: "M3 7h10v2H3z" };

export const causeTab = {
  name: "Cause",
  present: (comparison) => Boolean(comparison.header.cause),
  make: (view, signal) => new CauseTab(view, signal),
};

/** What became of a guard: its word and its picture. */
export function outcome(guard) {
  return guard.ok === null ? UNKNOWN : guard.ok ? HELD : FAILED;
}

/** How many guards held, failed, or cannot be known, in words. */
export function guardSummary(guards) {
  const count = (ok) => guards.filter((guard) => guard.ok === ok).length;
  const parts = [`${count(true)} of ${guards.length} checks held`];
  if (count(false)) parts.push(`${count(false)} failed`);
  if (count(null)) parts.push(`${count(null)} not known`);
  return parts.join(", ");
}

/** Width of a growth bar in percent: logarithmic from the smallest to the largest relative difference of the rows. */
export function growth(rows) {
  const sizes = rows.map((row) => row.relative).filter((value) => value > 0);
  const low = Math.log(Math.min(...sizes));
  const high = Math.log(Math.max(...sizes));
  return (value) => {
    if (!(value > 0)) return 0;
    return high > low ? Math.round(8 + (92 * (Math.log(value) - low)) / (high - low)) : 100;
  };
}

/** Rows of the layer chart by data source. */
export function layerRows(comparison) {
  const { layers, header } = comparison;
  const { rows, step, flip } = header.cause.layers;
  const ofSide = (side) => rows.map((row) => ({ layer: row.layer, side: side.toUpperCase(), gap: row[side].gap }));
  return {
    drift: Array.from(layers.relative, (relative, at) => ({ layer: layers.layer[at], step: layers.step[at], relative })),
    logits: Array.from(layers.epsilon, (epsilon, at) => ({ step: at, epsilon })),
    lens: ["a", "b"].flatMap(ofSide),
    marks: [{ step, label: flip ? "flip" : "largest drift" }],
  };
}

/** The specification with its panels as wide as there is room for. */
export function fitted(spec, room) {
  const width = Math.max(Math.min(room, WIDEST) - BESIDE, 260);
  const [top, below] = spec.vconcat;
  const [stream, lens] = top.hconcat;
  const left = Math.round(width * 0.72);
  const beside = [
    { ...stream, width: left },
    { ...lens, width: width - left },
  ];
  return { ...spec, vconcat: [{ ...top, hconcat: beside }, { ...below, width: left }] };
}

class CauseTab {
  constructor(view, signal) {
    this.view = view;
    this.signal = signal;
    const { guards, knobs, operations, layers } = view.comparison.header.cause;
    const checks = guards.length ? guardPart(guards, !knobs && !operations && !layers) : null;
    const failed = guards.some((guard) => guard.ok === false);
    this.element = element(
      "div.dx-cause",
      {},
      failed ? checks : null,
      knobs || operations || layers ? null : element("p.dx-note", { text: NOT_ASKED }),
      knobs ? knobPart(knobs) : null,
      operations ? this.operationPart(operations) : null,
      layers ? this.layerPart(layers) : null,
      failed ? null : checks,
    );
  }

  show() {}

  operationPart(found) {
    this.outputs = element("tbody");
    const more = button(`all ${found.rows.length} rows`, {
      "aria-pressed": "false",
      hidden: found.rows.length <= FEW_OUTPUTS,
      signal: this.signal,
      on: { click: () => this.fillOutputs(found, more.getAttribute("aria-pressed") !== "true", more) },
    });
    this.fillOutputs(found, false, more);
    const left = found.told - found.rows.length;
    const title = `Outputs in the order of the forward at step ${found.step}, of the observed row; relative: to the largest value of A`;
    return part(
      "operation",
      "Which operation?",
      element("p.dx-lead", { text: `${sentenceCase(found.sentence)}.` }),
      note(counted(found)),
      found.rows.length
        ? wide(
            "operations",
            element(
              "table.dx-table.dx-outputs",
              {},
              element("caption", {
                text: left > 0 ? `${title}; ${left} more before the last one are left out` : title,
              }),
              heads(["order", "module", "operation", "shape", "max |Δ|", "ULP", "share", "relative"]),
              this.outputs,
            ),
          )
        : null,
      more,
    );
  }

  fillOutputs(found, all, more) {
    more.setAttribute("aria-pressed", String(all));
    const width = growth(found.rows);
    const shown = found.rows.slice(0, all ? undefined : FEW_OUTPUTS);
    this.outputs.replaceChildren(...shown.map((row) => outputRow(row, row.order === found.first, width)));
  }

  layerPart(found) {
    const [first, second] = found.candidates.map((text) => token(visible(text, true)));
    this.place = element("div.dx-layer-chart");
    const name = element("summary", { text: `Layer by layer, at step ${found.step}`, ...OWN_KEYS });
    this.table = element("details", {}, name, layerTable(found));
    const end = found.exact ? "." : "; this model changes its logits after them: the last layer is not its own answer.";
    return part(
      "layer",
      "Which layer?",
      element("p.dx-lead", { text: this.view.comparison.header.cause.sentences.at(-1) }),
      element(
        "p.dx-note",
        {},
        "The lens puts the final norm and head on each layer: first is ",
        first,
        ", second is ",
        second,
        end,
      ),
      this.place,
      this.table,
    );
  }

  /** Draw the chart of the layers as wide as the view is; again where that has changed. */
  async draw() {
    if (!this.place) return;
    this.drawing?.abort();
    this.drawing = new AbortController();
    const { signal } = this.drawing;
    try {
      const embed = await vegaEmbed(this.view.model);
      if (signal.aborted) return; // another width came first
      const { comparison } = this.view;
      const room = this.view.element.clientWidth - 2 * 12; // the view's own padding; this panel may be hidden
      await chart(embed, this.place, {
        spec: fitted(comparison.header.charts.layers, room),
        rows: layerRows(comparison),
        signal: AbortSignal.any([this.signal, signal]),
      });
    } catch {
      this.place.remove(); // the table says the same; the timeline's note tells why
      this.table.open = true;
    }
  }

  /** A concatenated chart has no width to set: it is made anew, once the width has come to rest. */
  resize() {
    clearTimeout(this.resting);
    if (this.drawing) this.resting = setTimeout(() => this.draw(), REST);
  }
}

const NOT_ASKED =
  "Nobody has asked yet which knob, which operation or which layer it is. dx.attribute, dx.trace_ops and dx.layer_drift answer; " +
  "comparison.with_cause keeps the answers. An Explorer has a button for each.";

/** A question with its answer; the Explorer finds it by the name of the question. */
function part(name, title, ...children) {
  return element("section.dx-cause-part", { "data-question": name }, element("h3.dx-title", { text: title }), ...children);
}

/** A table that scrolls alone on a narrow page, so that the keyboard must reach it. */
function wide(label, table) {
  return element("div.dx-wide-table", { tabindex: 0, role: "group", "aria-label": label, ...OWN_KEYS }, table);
}

function note(text) {
  return text ? element("p.dx-note", { text }) : null;
}

function heads(words) {
  return element("thead", {}, element("tr", {}, ...words.map((text) => element("th", { scope: "col", text }))));
}

function sentenceCase(text) {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

function counted({ absorbing, unmatched, rows, told }) {
  const parts = [];
  if (absorbing) parts.push(`${absorbing} ${absorbing === 1 ? "was" : "were"} fed with a difference and put out equal bits`);
  if (unmatched) parts.push(`${unmatched} could not be compared`);
  return parts.length ? `Of the others, ${parts.join("; ")}.` : "";
}

function knobPart(found) {
  const [lead, ...others] = found.notes;
  const enough = new Set(found.flip.length ? found.flip : found.drift);
  const rest = [...others, `Found in ${found.runs} runs.`].join(" ");
  return part(
    "knob",
    "Which knob?",
    element("p.dx-lead", { text: lead }),
    note(rest),
    found.rows.length
      ? effectTable("Each differing field alone, put into A", ["knob", "A", "B"], found.rows, (row) => [
          row.knob,
          [row.a, row.b],
          enough.has(row.knob),
        ])
      : null,
    found.neighbours.length
      ? effectTable(
          "What about the batch it is: A with other rows beside it",
          ["question", "what varies"],
          found.neighbours,
          (row) => [row.question, [row.means], false],
        )
      : null,
  );
}

/** Rows of what was run against A; `read` gives a row's name, its values, and whether it suffices alone. */
function effectTable(title, names, rows, read) {
  const body = rows.map((row) => {
    const [name, words, bright] = read(row);
    const tag = bright ? [element("span.dx-tag", { text: "enough" })] : [];
    return element(
      `tr${bright ? ".dx-bright" : ""}`,
      {},
      element("th", { scope: "row" }, name.replaceAll("_", " "), ...tag),
      ...words.map((text) => element("td.dx-value", {}, element("bdi", { text }))),
      ...effect(row),
    );
  });
  return wide(
    title,
    element(
      "table.dx-table.dx-effects",
      {},
      element("caption", { text: title }),
      heads([...names, "drifts from step", "largest drift (logits)", "split at step", "verdict"]),
      element("tbody", {}, ...body),
    ),
  );
}

function effect(row) {
  if (row.verdict === null) {
    return [element("td.dx-below", { colspan: 4, text: `not run: ${row.why ?? "stopped before it"}` })];
  }
  return [
    numberCell(row.first_drift === null ? "never" : String(row.first_drift)),
    numberCell(number(row.drift, 3)),
    numberCell(row.split === null ? "none" : String(row.split)),
    element("td.dx-word", { text: verdictWord(row.verdict), title: row.why }),
  ];
}

function outputRow(row, first, width) {
  const tag = first ? [element("span.dx-tag", { text: "first" })] : [];
  const again = row.occurrence ? ` #${row.occurrence + 1}` : "";
  const names = [
    numberCell(String(row.order)),
    element("th", { scope: "row" }, row.module || "the model itself", ...tag),
    element("td.dx-code", { text: row.operation + again }),
    element("td.dx-code", { text: row.shape }),
  ];
  if (row.state !== "differs") {
    return element("tr", {}, ...names, element("td.dx-below", { colspan: 4, text: "equal again" }));
  }
  const bar = element("span.dx-growth", { style: `--dx-grown: ${width(row.relative)}%`, "aria-hidden": "true" });
  return element(
    `tr${first ? ".dx-bright" : ""}`,
    {},
    ...names,
    numberCell(number(row.max_abs, 3)),
    numberCell(number(row.ulps, 3)),
    numberCell(share(row.share)),
    element("td.dx-number.dx-grows", {}, bar, number(row.relative, 2)),
  );
}

function share(value) {
  return value > 0 && value < 0.001 ? `${number(100 * value, 1)} %` : `${number(100 * value, 3)} %`;
}

function layerTable(found) {
  const body = found.rows.map((row) =>
    element(
      `tr${row.layer === found.first ? ".dx-bright" : ""}`,
      {},
      element("th.dx-number", { scope: "row", text: String(row.layer) }),
      numberCell(number(row.max_abs, 3)),
      numberCell(number(row.relative, 3)),
      ...["a", "b"].flatMap((side) => [
        numberCell(number(row[side].gap)),
        element("td", {}, token(visible(row[side].top, true))),
      ]),
    ),
  );
  return wide(
    "layers",
    element(
      "table.dx-table",
      {},
      element("caption", {
        text: "0 is the embedding; gap is the first candidate's logit minus the second's, through the lens",
      }),
      heads(["layer", "max |Δ|", "‖Δ‖ / ‖A‖", "gap A", "A would say", "gap B", "B would say"]),
      element("tbody", {}, ...body),
    ),
  );
}

function guardPart(guards, open) {
  const failed = guards.some((guard) => guard.ok === false);
  const order = [false, null, true];
  const sorted = [...guards].sort((x, y) => order.indexOf(x.ok) - order.indexOf(y.ok));
  const body = sorted.map((guard) => {
    const { word, path } = outcome(guard);
    const so = guard.ok === false ? ` So: ${verdictWord(guard.outcome)}.` : "";
    return element(
      `tr${guard.ok === false ? ".dx-bright" : ""}`,
      {},
      element("th", { scope: "row", text: guard.name.replaceAll("_", " ") }),
      element("td.dx-guard", {}, icon(path), ` ${word}`),
      element("td.dx-value", { text: guard.why + so }),
    );
  });
  return element(
    "section.dx-cause-part",
    {},
    element(
      "details.dx-guards",
      { open: open || failed },
      element("summary", OWN_KEYS, element("b", { text: "Did both runs do what was asked? " }), guardSummary(guards)),
      wide("checks", element("table.dx-table", {}, heads(["check", "result", "why"]), element("tbody", {}, ...body))),
    ),
  );
}
