// The view of a comparison. A selection is a column: a click sets the model's trait here first, paints, and only then is
// the kernel told. Nothing between a click and the painted inspector asks Python.

import { difference } from "./columns.js";
import { button, element, hideSaved } from "./dom.js";
import { number } from "./format.js";
import { ask, copyText, download } from "./host.js";
import { helpDialog } from "./keys.js";
import { readComparison } from "./payload.js";
import { Streams } from "./streams.js";
import { Tabs } from "./tabs.js";
import { Timeline } from "./timeline.js";
import { Toolbar } from "./toolbar.js";
import { headline, verdictPart } from "./verdict.js";

class View {
  constructor(model, signal) {
    this.model = model;
    this.signal = signal;
    this.comparison = readComparison(model.get("meta"), model.get("data"));
    this.streams = new Streams(this, signal);
    this.timeline = new Timeline(this, signal);
    this.tabs = new Tabs(this, this.actions(), signal);
    this.spoken = element("p.dx-spoken", { "aria-live": "polite" });
    this.element = element(
      "section.dx-view",
      { "aria-label": "Comparison of two runs" },
      verdictPart(this.comparison),
      sides(this.comparison),
      new Toolbar(this, signal).element,
      this.streams.element,
      this.comparison.length ? this.timeline.element : null,
      this.tabs.element,
      this.spoken,
    );
    this.paint();
  }

  /** What one can take away; at the end of the line of the tabs. */
  actions() {
    this.status = element("span.dx-status", { role: "status" });
    const { signal } = this;
    const report = button("Copy report", {
      signal,
      on: { click: () => this.copy(this.comparison.header.report, "The report") },
    });
    const code = button("Copy as code", { signal, on: { click: () => this.copy(this.code(), "The code") } });
    this.save = button("Export HTML", {
      hidden: !this.model.get("live"),
      signal,
      on: { click: () => this.exportPage() },
    });
    return element("div.dx-actions", {}, this.status, report, code, this.save);
  }

  /** Python that makes what is on the screen. */
  code() {
    return `${this.comparison.header.code}\ndx.ComparisonView(comparison, selected=${this.column})\n`;
  }

  get column() {
    const wanted = this.model.get("selected");
    return Math.min(Math.max(wanted, 0), Math.max(this.comparison.length - 1, 0));
  }

  /** Choose a column: paint at once, tell the kernel after. */
  select(column, { say = false } = {}) {
    if (column === null || column < 0 || column >= this.comparison.length) return;
    const focused = this.streams.hasFocus();
    this.model.set("selected", column); // its listeners paint, here and in other views of the same comparison
    this.model.save_changes();
    if (focused) this.streams.focus();
    else this.streams.reveal();
    if (say) this.say(this.streams.longName("a", column));
  }

  /** Show the selected column everywhere. */
  paint() {
    if (!this.comparison.length) return;
    this.timeline.show(this.column); // first: it reads the layout, which the others change
    this.streams.select(this.column);
    this.tabs.show(this.column);
  }

  move(by) {
    this.select(this.column + by);
  }

  focusSide(side) {
    this.streams.focus(side);
  }

  goDrift() {
    this.select(this.comparison.drift, { say: true });
  }

  goSplit() {
    this.select(this.comparison.split, { say: true });
  }

  goDifference(direction) {
    this.select(difference(this.streams.kinds, this.column, direction));
  }

  help() {
    if (!this.dialog) {
      this.dialog = helpDialog(this.signal);
      this.element.append(this.dialog);
    }
    this.dialog.showModal();
  }

  /** Speak of a selection that the keyboard's focus does not tell of. */
  say(text) {
    this.spoken.textContent = text;
  }

  /** Tell what became of a button's request. */
  tell(text) {
    this.status.textContent = text;
  }

  async copy(text, what) {
    this.tell((await copyText(text)) ? `${what} is on the clipboard.` : "This page may not use the clipboard.");
  }

  async exportPage() {
    this.save.disabled = true;
    this.tell("Making the page …");
    try {
      const { content, buffers } = await ask(this.model, "export", { selected: this.column });
      download(content.name, buffers, "text/html");
      this.tell(`${content.name} is offered as a download (${number(buffers[0].byteLength / 1e6, 2)} MB).`);
    } catch (error) {
      this.tell(`No export: ${error.message}`);
    }
    this.save.disabled = false;
  }

  /** Called at the first size above nothing, and at each change of it. */
  async resized(width) {
    this.streams.estimate();
    if (this.settled) {
      this.tabs.resize();
      await this.timeline.resize(this.timeline.element.clientWidth);
      return;
    }
    this.settled = true;
    this.streams.center();
    this.say(headline(this.comparison)[0]);
    // Two frames on, the streams are on the screen: now the charts may take the thread.
    requestAnimationFrame(() => requestAnimationFrame(() => this.draw(width)));
  }

  async draw(width) {
    if (!this.comparison.length) return;
    await this.timeline.draw(width);
    this.tabs.draw();
  }
}

/** What runs A and B were, what differs bright. */
function sides(comparison) {
  const line = (name) => {
    const { facts } = comparison[name];
    const words = facts.label.split(" · ");
    const other = comparison[name === "a" ? "b" : "a"].facts.label.split(" · ");
    const parts = words.map((word) => element(other.includes(word) ? "span.dx-quiet" : "b", { text: word }));
    const state = facts.partial ? [element("span.dx-tag", { text: "partial" })] : [];
    return element(
      `span.dx-side.dx-ink-${name}`,
      {},
      element("b.dx-letter", { text: name.toUpperCase() }),
      ...parts,
      ...state,
    );
  };
  return element(
    "div.dx-sides",
    {},
    line("a"),
    line("b"),
    element("span.dx-quiet", { text: comparison.header.model.name }),
  );
}

function render({ model, el, signal }) {
  let current = null;
  let control = null;
  const build = () => {
    control?.abort();
    control = new AbortController();
    current = new View(model, control.signal);
    el.replaceChildren(...[hideSaved(model.get("saved")), current.element].filter(Boolean));
    const box = current;
    let before = 0;
    const observer = new ResizeObserver(([entry]) => {
      const width = Math.floor(entry.contentRect.width);
      if (width === before || width === 0) return;
      before = width;
      box.resized(width);
    });
    observer.observe(current.element);
    control.signal.addEventListener("abort", () => observer.disconnect());
  };
  const paint = () => current.paint();
  const follow = () => current.tabs.follow();
  const live = () => {
    current.save.hidden = !model.get("live");
  };
  model.on("change:data", build); // meta and data come in one message
  model.on("change:selected", paint);
  model.on("change:tab", follow);
  model.on("change:live", live);
  signal?.addEventListener("abort", () => {
    model.off("change:data", build);
    model.off("change:selected", paint);
    model.off("change:tab", follow);
    model.off("change:live", live);
    control.abort();
  });
  build();
}

export default { render };
