// The one list of keys: the grid listens to it, and the help is made from it.

import { button, element, OWN_KEYS } from "./dom.js";

export const KEYS = [
  { keys: ["ArrowLeft"], shown: "←", does: "previous column", act: (view) => view.move(-1) },
  { keys: ["ArrowRight"], shown: "→", does: "next column", act: (view) => view.move(1) },
  { keys: ["ArrowUp"], shown: "↑", does: "run A", act: (view) => view.focusSide("a") },
  { keys: ["ArrowDown"], shown: "↓", does: "run B", act: (view) => view.focusSide("b") },
  { keys: ["Home"], shown: "Home", does: "first column", act: (view) => view.select(0) },
  { keys: ["End"], shown: "End", does: "last column", act: (view) => view.select(view.comparison.length - 1) },
  { keys: ["d"], shown: "d", does: "first drift", act: (view) => view.goDrift() },
  { keys: ["s"], shown: "s", does: "the split", act: (view) => view.goSplit() },
  { keys: ["n"], shown: "n", does: "next difference", act: (view) => view.goDifference(1) },
  { keys: ["p"], shown: "p", does: "previous difference", act: (view) => view.goDifference(-1) },
  { keys: ["?"], shown: "?", does: "this list", act: (view) => view.help() },
];

/** The entry for a key press, or null; presses with Ctrl, Alt or Meta belong to the browser. */
export function keyEntry(event) {
  if (event.ctrlKey || event.altKey || event.metaKey) return null;
  return KEYS.find((entry) => entry.keys.includes(event.key)) ?? null;
}

/** The help as a dialog. */
export function helpDialog(signal) {
  const rows = KEYS.map((entry) =>
    element(
      "tr",
      {},
      element("th", { scope: "row" }, element("kbd", { text: entry.shown })),
      element("td", { text: entry.does }),
    ),
  );
  const dialog = element(
    "dialog.dx-help",
    { "aria-label": "Keys", ...OWN_KEYS },
    element("p.dx-help-title", { text: "Keys, while the two streams have the focus" }),
    element("table", {}, element("tbody", {}, ...rows)),
    button("Close", { signal, on: { click: () => dialog.close() } }),
  );
  return dialog;
}
