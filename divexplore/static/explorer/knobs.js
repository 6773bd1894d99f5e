// The editors of A and B: a control a knob and side. What differs is bright; an empty control leaves things as they are.

import { element, OWN_KEYS } from "../view/dom.js";

const AS_IS = "as it is";

export class Knobs {
  /**
   * @param {object[]} knobs as Python lists them: name, label, front, kind, words, low
   * @param {(side: string, name: string, value: any) => void} changed
   */
  constructor(knobs, changed, signal) {
    this.cells = knobs.map((knob) => new Knob(knob, changed, signal));
    const front = this.cells.filter((cell) => cell.knob.front);
    const hidden = this.cells.filter((cell) => !cell.knob.front);
    this.common = element("div.dx-knobs"); // what holds for both runs; the panel fills it
    this.more = element(
      "details.dx-more",
      {},
      element("summary", { text: "more…", ...OWN_KEYS }),
      this.common,
      element("div.dx-knobs", {}, ...hidden.map((cell) => cell.element)),
    );
    this.element = element("div.dx-editors", {}, element("div.dx-knobs", {}, ...front.map((cell) => cell.element)), this.more);
  }

  paint(a, b) {
    for (const cell of this.cells) cell.paint(a[cell.knob.name] ?? null, b[cell.knob.name] ?? null);
  }
}

class Knob {
  constructor(knob, changed, signal) {
    this.knob = knob;
    this.controls = ["a", "b"].map((side) => {
      const label = `${knob.label}, ${side.toUpperCase()}`;
      return makeControl(knob, label, (value) => changed(side, knob.name, value), signal);
    });
    const lines = this.controls.map(({ element: control }, index) => {
      const side = "ab"[index];
      return element(`span.dx-line.dx-ink-${side}`, {}, element("b.dx-letter", { text: side.toUpperCase(), "aria-hidden": "true" }), control);
    });
    this.element = element("div.dx-knob", {}, element("span.dx-knob-name", { text: knob.label, title: knob.name }), ...lines);
  }

  paint(a, b) {
    const [first, second] = this.controls;
    first.show(a);
    second.show(b);
    this.element.classList.toggle("dx-differing", JSON.stringify(a) !== JSON.stringify(b));
  }
}

/** A control that shows a value and tells of a new one; `null` is "as it is". */
export function makeControl(knob, label, changed, signal) {
  const chosen = { words: knob.words, flag: [true, false] }[knob.kind];
  return chosen ? makeSelect(chosen, label, changed, signal) : makeInput(knob, label, changed, signal);
}

function makeSelect(values, label, changed, signal) {
  const select = element("select.dx-select", {
    "aria-label": label,
    ...OWN_KEYS,
    signal,
    on: { change: () => changed(JSON.parse(select.value)) },
  });
  const add = (value) => select.append(element("option", { value: JSON.stringify(value), text: wordFor(value) }));
  [null, ...values].forEach(add);
  const show = (value) => {
    const wanted = JSON.stringify(value);
    if (![...select.options].some((option) => option.value === wanted)) add(value); // given in Python: a kernel's name, a list
    select.value = wanted;
  };
  return { element: select, show };
}

function makeInput(knob, label, changed, signal) {
  const input = element("input.dx-input", {
    type: "text",
    inputmode: knob.kind === "number" ? "numeric" : null,
    placeholder: AS_IS,
    "aria-label": label,
    size: 6,
    spellcheck: "false",
    autocomplete: "off",
    ...OWN_KEYS,
    signal,
    on: { input: () => changed(readValue(knob.kind, input.value)) },
  });
  const show = (value) => {
    if (JSON.stringify(readValue(knob.kind, input.value)) !== JSON.stringify(value)) input.value = value ?? "";
  };
  return { element: input, show };
}

/** What was typed: a whole number where one is meant. Anything else goes to Python as it is, which says what is wrong. */
export function readValue(kind, text) {
  const trimmed = text.trim();
  if (trimmed === "") return null;
  return kind === "number" && /^-?\d+$/.test(trimmed) ? Number(trimmed) : trimmed;
}

export function wordFor(value) {
  if (value === null) return AS_IS;
  if (value === true) return "on";
  if (value === false) return "off";
  return Array.isArray(value) ? `a list of ${value.length}` : String(value);
}

/** A configuration in a few words, in the order of the knobs: `{name, text}` each. */
export function describe(knobs, fields) {
  const known = knobs.filter((knob) => (fields[knob.name] ?? null) !== null);
  return known.map((knob) => {
    const value = wordFor(fields[knob.name]);
    return { name: knob.name, text: knob.name === "dtype" ? value : `${knob.label} ${value}` };
  });
}
