// Cascade: what follows the flip, and what of it is independent of it.

import { columnOf } from "./columns.js";
import { button, element, numberCell } from "./dom.js";
import { number } from "./format.js";

export const cascadeTab = {
  name: "Cascade",
  present: (comparison) => comparison.header.cascade !== null,
  make: (view, signal) => new CascadeTab(view, signal),
};

class CascadeTab {
  constructor(view, signal) {
    const { comparison } = view;
    const { cascade } = comparison.header;
    const flips = cascade.independent_flips ?? [];
    this.element = element(
      "div.dx-cascade",
      {},
      element("p.dx-lead", { text: `${cascade.sentence}.` }),
      element("p.dx-note", { text: "Tokens are counted by columns of the alignment: a gap on one side is one." }),
      rejoins(cascade),
    );
    if (!flips.length) return;
    const rows = flips.map((flip) => {
      const jump = () => view.select(columnOf(comparison, "a", flip.step), { say: true });
      const step = element("th", { scope: "row" }, button(`step ${flip.step}${flip.step === comparison.header.first_divergence ? " · the split" : ""}`, { signal, on: { click: jump } }));
      return element("tr", {}, step, numberCell(number(flip.gap)), numberCell(number(flip.epsilon, 3)));
    });
    const heads = ["step of A", "gap (logits)", "epsilon (logits)"].map((text) =>
      element("th", { scope: "col", text }),
    );
    this.element.append(
      element(
        "table.dx-table",
        {},
        element("caption", {
          text: "Independent flips: steps at which B, forced on A's tokens, would choose another token",
        }),
        element("thead", {}, element("tr", {}, ...heads)),
        element("tbody", {}, ...rows),
      ),
    );
  }

  show() {}
}

function rejoins(cascade) {
  const found = cascade.rejoins;
  const count = Array.isArray(found) ? found.length : found;
  if (count === null || count === undefined) return null;
  return element("p.dx-note", {
    text:
      count === 0
        ? "The streams do not meet again."
        : `The streams meet again ${count === 1 ? "once" : `${count} times`} (runs of equal tokens after the split).`,
  });
}
