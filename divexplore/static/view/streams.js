// Both token streams, A over B: one grid of two rows, wrapped at the same places because the two cells of a column are
// equally wide. Columns come in blocks that the browser lays out only when they come near (`content-visibility`).

import { cells, epsilonRange, kinds, shade } from "./columns.js";
import { element, freshId, OWN_KEYS } from "./dom.js";
import { number, probability, visible } from "./format.js";
import { keyEntry } from "./keys.js";
import { stepOf } from "./payload.js";

const BLOCK = 256;
const AROUND = 6; // px, padding and margins of a cell; as in the style sheet
const LINE = 60; // px, a pair of lines and the room above it; as in the style sheet

export class Streams {
  /**
   * @param {object} view the whole view: selection and key actions
   * @param {AbortSignal} signal
   */
  constructor(view, signal) {
    this.view = view;
    this.comparison = view.comparison;
    this.kinds = kinds(this.comparison);
    this.range = epsilonRange(this.comparison);
    this.mode = "drift";
    this.spaces = false;
    this.side = "a";
    this.current = null;
    this.rows = { a: [], b: [] };
    this.measure = measurer();
    this.grid = element("div.dx-grid", {
      role: "grid",
      "aria-label": "Token streams of run A and run B",
      "aria-rowcount": 2,
      "aria-colcount": this.comparison.length,
      "aria-multiselectable": "false",
    });
    for (let start = 0; start < this.comparison.length; start += BLOCK) this.grid.append(this.block(start));
    this.element = element("div.dx-streams", {}, ...prompts(this.comparison), this.grid);
    // At the press, and without the browser's own part of it: that would give the focus to the notebook's cell, whose
    // rules then restyle every token, and look for a text to select. A click without a press comes from assistive tools.
    for (const type of ["mousedown", "click"])
      this.grid.addEventListener(type, (event) => this.pointed(event), { signal });
    this.grid.addEventListener("keydown", (event) => this.pressed(event), { signal });
    this.grid.addEventListener("focusin", (event) => this.name(event.target, true), { signal });
    this.grid.addEventListener("focusout", (event) => this.name(event.target, false), { signal });
  }

  block(start) {
    const stop = Math.min(start + BLOCK, this.comparison.length);
    const rows = { a: this.row("a", start), b: this.row("b", start) };
    let width = 0;
    for (let column = start; column < stop; column += 1) {
      const shown = { a: this.shown("a", column), b: this.shown("b", column) };
      const wide = Math.max(cells(shown.a, this.measure), cells(shown.b, this.measure));
      width += wide;
      for (const side of ["a", "b"]) {
        const cell = document.createElement("span");
        cell.setAttribute("role", "gridcell");
        cell.dxColumn = column;
        cell.dxSide = side;
        cell.dxWide = wide;
        cell.textContent = shown[side];
        cell.className = this.classes(side, column, wide);
        if (side === "a") this.mark(cell, column);
        rows[side].append(cell);
        this.rows[side].push(cell);
      }
    }
    const block = element("div.dx-block", { role: "rowgroup" }, rows.a, rows.b);
    block.dxWidth = width;
    block.dxColumns = stop - start;
    return block;
  }

  row(side, start) {
    const attributes = { role: "row", "aria-rowindex": side === "a" ? 1 : 2, "aria-colindex": start + 1 };
    return element(`div.dx-row.dx-row-${side}`, { ...attributes, "aria-label": `Run ${side.toUpperCase()}` });
  }

  /** Text of a cell; a gap of the alignment is a blank that can be seen. */
  shown(side, column) {
    const step = stepOf(this.comparison, side, column);
    return step === null ? " " : visible(this.comparison.text(this.comparison[side].token[step]), this.spaces);
  }

  classes(side, column, wide) {
    const kind = this.kinds[column];
    const gap = kind === (side === "a" ? "only-b" : "only-a");
    const words = ["dx-c", `dx-n${wide}`, shade(this.comparison, side, column, this.mode, this.range)];
    if (gap) words.push("dx-gap");
    else if (kind !== "equal") words.push("dx-differs");
    if (column === this.comparison.split) words.push("dx-split");
    if (this.comparison.drift === column) words.push("dx-drift");
    if (column === this.current) words.push("dx-selected");
    return words.filter(Boolean).join(" ");
  }

  mark(cell, column) {
    if (column === this.comparison.split) cell.dataset.mark = "split";
    else if (column === this.comparison.drift) cell.dataset.mark = "first drift";
  }

  /** Colour everything anew, by `drift` (then margin) or `probability`. */
  recolour(mode) {
    this.mode = mode;
    this.each((cell) => {
      cell.className = this.classes(cell.dxSide, cell.dxColumn, cell.dxWide);
    });
  }

  /** Show blanks as ␣, or as blanks. The widths stay: both glyphs are one cell wide. */
  showSpaces(spaces) {
    this.spaces = spaces;
    this.each((cell) => {
      cell.textContent = this.shown(cell.dxSide, cell.dxColumn);
    });
  }

  each(act) {
    for (const side of ["a", "b"]) this.rows[side].forEach(act);
  }

  /** Mark a column as the selected one; only these few cells change. */
  select(column) {
    if (this.current !== null) {
      for (const side of ["a", "b"]) {
        const cell = this.rows[side][this.current];
        cell.classList.remove("dx-selected");
        cell.removeAttribute("aria-selected");
        cell.removeAttribute("tabindex");
        for (const name of Object.keys(OWN_KEYS)) cell.removeAttribute(name);
      }
    }
    this.current = column;
    for (const side of ["a", "b"]) {
      const cell = this.rows[side][column];
      cell.classList.add("dx-selected");
      cell.setAttribute("aria-selected", "true");
      cell.setAttribute("tabindex", side === this.side ? "0" : "-1");
      for (const [name, value] of Object.entries(OWN_KEYS)) cell.setAttribute(name, value);
    }
  }

  /** Move the keyboard to a side of the selected column. */
  focus(side = this.side) {
    this.side = side;
    for (const one of ["a", "b"]) this.rows[one][this.current].setAttribute("tabindex", one === side ? "0" : "-1");
    this.rows[side][this.current].focus({ preventScroll: true });
    this.reveal();
  }

  hasFocus() {
    return this.grid.contains(this.grid.getRootNode().activeElement);
  }

  /** Scroll the streams, and nothing around them, so that the selected column is in view. */
  reveal() {
    const cell = this.rows.a[this.current];
    const top = cell.getBoundingClientRect().top - this.element.getBoundingClientRect().top;
    const { scrollTop } = this.element;
    const above = scrollTop + top - LINE / 2; // half a pair of the line before it; all of the prompt where that is next
    if (top < LINE / 2) this.element.scrollTop = above < this.grid.offsetTop ? 0 : above;
    else if (top + LINE > this.element.clientHeight)
      this.element.scrollTop += top + LINE - this.element.clientHeight + 4;
  }

  /** Scroll so that the line of the selected column is the second in view, with equal tokens before it. */
  center() {
    const cell = this.rows.a[this.current];
    if (!cell) return;
    const top = () => cell.getBoundingClientRect().top - this.element.getBoundingClientRect().top;
    // Twice: the first move brings blocks to their true heights.
    for (let round = 0; round < 2; round += 1) this.element.scrollTop += top() - LINE * 1.5;
    const { scrollTop, clientHeight } = this.element;
    const cut = scrollTop < this.grid.offsetTop; // the prompt's line, which stands above the tokens
    if (cut && top() + scrollTop + LINE <= clientHeight) this.element.scrollTop = 0;
  }

  /** Tell the browser how tall a block will be before it lays it out: the scroll bar keeps still. */
  estimate() {
    const perLine = this.grid.clientWidth / this.measure.unit;
    if (!(perLine > 0)) return;
    for (const block of this.grid.children) {
      const around = (block.dxColumns * AROUND) / this.grid.clientWidth; // lines that paddings and margins take
      const lines = Math.ceil((block.dxWidth / perLine + around) * 1.04); // and what line ends leave empty
      block.style.containIntrinsicBlockSize = `auto ${lines * LINE}px`;
    }
  }

  pointed(event) {
    const cell = event.target.closest?.("[role=gridcell]");
    if (!cell || event.button !== 0) return;
    event.preventDefault();
    if (cell === this.grid.getRootNode().activeElement) return;
    this.side = cell.dxSide;
    this.view.select(cell.dxColumn);
    this.focus();
  }

  pressed(event) {
    const entry = keyEntry(event);
    if (!entry) return;
    event.preventDefault();
    event.stopPropagation();
    entry.act(this.view);
  }

  /** A long name on the focused cell only: 20,000 of them would cost more than the rest of the view. */
  name(cell, focused) {
    if (cell.dxColumn === undefined) return;
    if (!focused) cell.removeAttribute("aria-label");
    else cell.setAttribute("aria-label", this.longName(cell.dxSide, cell.dxColumn));
  }

  longName(side, column) {
    const step = stepOf(this.comparison, side, column);
    const run = `run ${side.toUpperCase()}`;
    if (step === null) return `${run}, no token here`;
    const data = this.comparison[side];
    const words = [`${run}, step ${step}`, `“${visible(this.comparison.text(data.token[step]), true)}”`];
    words.push(`probability ${probability(Math.exp(data.logprob[step]))}`);
    const epsilon = column <= (this.comparison.split ?? Infinity) ? this.comparison.epsilon[step] : NaN;
    if (epsilon > 0) words.push(`epsilon ${number(epsilon, 3)} logits`);
    if (column === this.comparison.split) words.push("the split");
    else if (column === this.comparison.drift) words.push("first drift");
    else if (this.kinds[column] !== "equal") words.push("differs");
    return words.join(", ");
  }
}

/** The prompt, or each side's own where they differ. */
function prompts(comparison) {
  const { prompt, prompt_b: other } = comparison.header;
  if (!other) return [promptLine("prompt", prompt)];
  return [promptLine("prompt of A", prompt), promptLine("prompt of B", other)];
}

function promptLine(label, { text, ids }) {
  const shown = text ?? (ids.length ? `${ids.length} token ids` : "not recorded");
  const short = shown.length > 240 ? `…${shown.slice(-240)}` : shown;
  return element(
    "p.dx-prompt",
    { dir: "auto" },
    element("span.dx-quiet", { text: `${label} ` }),
    element("bdi", { text: visible(short, false), id: freshId("prompt") }),
  );
}

/** A function that measures a text in cells of the monospaced font. */
function measurer() {
  const context = document.createElement("canvas").getContext("2d");
  const family = getComputedStyle(document.documentElement).getPropertyValue("--jp-code-font-family").trim();
  context.font = `13px ${family || 'ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", "Liberation Mono", monospace'}`;
  const unit = context.measureText("0").width || 8;
  const known = new Map();
  const measure = (text) => {
    if (!known.has(text)) known.set(text, context.measureText(text).width / unit);
    return known.get(text);
  };
  measure.unit = unit;
  return measure;
}
