// Above the streams: which colours mean what, and where to go.

import { LEVELS } from "./columns.js";
import { button, element, freshId, icon, OWN_KEYS } from "./dom.js";
import { number } from "./format.js";

const BOTH = [".dx-of-a", ".dx-of-b"];
const MODES = [
  ["drift", "drift, then margin"],
  ["probability", "probability"],
];

// Paths in a box of 16: the Unicode characters for these are missing from many fonts, and emoji in others.
const SKIP_BACK = "M3 3h2v10H3zM13 3v10L6 8z";
const SKIP_ON = "M11 3h2v10h-2zM3 3v10l7-5z";
const BACK = "M11 3v10L4 8z";
const ON = "M5 3v10l7-5z";

export class Toolbar {
  constructor(view, signal) {
    this.view = view;
    this.legend = element("span.dx-legend");
    const id = freshId("colour");
    const choose = element(
      "select.dx-select",
      { id, ...OWN_KEYS, signal, on: { change: () => this.colour(choose.value) } },
      ...MODES.map(([value, text]) => element("option", { value, text })),
    );
    const spaces = button("␣", {
      "aria-label": "Show blanks",
      "aria-pressed": "false",
      title: "show blanks as ␣",
      signal,
      on: { click: () => this.spaces(spaces) },
    });
    const { comparison } = view;
    const go = (content, name, act, off = false) =>
      button("", { "aria-label": name, title: name, disabled: off, signal, on: { click: act } }, ...content);
    this.element = element(
      "div.dx-toolbar",
      {},
      element("span.dx-group", {}, element("label", { for: id, text: "colour by" }), choose, this.legend),
      element(
        "span.dx-group.dx-go",
        {},
        spaces,
        go([icon(SKIP_BACK), "first drift"], "Go to the first drift", () => view.goDrift(), comparison.drift === null),
        go([icon(SKIP_ON), "split"], "Go to the split", () => view.goSplit(), comparison.split === null),
        go([icon(BACK)], "Previous column", () => view.move(-1)),
        go([icon(ON)], "Next column", () => view.move(1)),
        go(["?"], "Keys", () => view.help()),
      ),
    );
    this.colour(MODES[0][0]);
  }

  colour(mode) {
    this.view.streams.recolour(mode);
    this.legend.replaceChildren(...(mode === "drift" ? this.driftLegend() : [scale("p", "p = 1", "0", BOTH)]));
  }

  driftLegend() {
    const { range } = this.view.streams;
    const parts = [];
    if (range) parts.push(scale("e", `epsilon ${number(range.low, 2)}`, `${number(range.high, 2)} logits`));
    if (this.view.comparison.split !== null) {
      const { a, b } = this.view.comparison;
      const unit = a.facts.unit === b.facts.unit ? a.facts.unit : `${a.facts.unit}, ${b.facts.unit}`;
      parts.push(scale("m", "then margin ≥ 4", `0 ${unit}`, BOTH));
    }
    return parts;
  }

  spaces(switched) {
    const on = switched.getAttribute("aria-pressed") !== "true";
    switched.setAttribute("aria-pressed", String(on));
    this.view.streams.showSpaces(on);
  }
}

/** The shades of a scale between its ends; of both sides where each has a hue of its own. */
function scale(letter, low, high, sides = [""]) {
  const shades = sides.map((side) => {
    const steps = [1, 3, 5, 7, LEVELS].map((strength) => element(`span.dx-swatch.dx-${letter}${strength}`));
    return element(`span.dx-shades${side}`, { "aria-hidden": "true" }, ...steps);
  });
  return element("span.dx-scale", {}, low, ...shades, high);
}
