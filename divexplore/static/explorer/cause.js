// Below the view: one button a question about the cause, each with its price; the view shows the answer in its tab Cause.
// The panel, its bar and its Stop may be off the screen here: so what runs is told beside the buttons too.

import { button, element } from "../view/dom.js";
import { figures } from "./progress.js";
import { revealBelow } from "./reveal.js";

class Cause {
  constructor(model, signal) {
    this.model = model;
    this.signal = signal;
    this.asked = ""; // the question asked here and not answered yet
    this.buttons = Object.entries({ knob: "Which knob?", operation: "Which operation?", layer: "Which layer?" }).map(([name, label]) => {
      const made = button(label, { signal, on: { click: () => this.ask(name) } });
      return { name, made, price: element("span.dx-price.dx-quiet") };
    });
    this.stop = button("Stop", { "aria-label": "Stop asking", signal, on: { click: () => this.halt() } });
    this.status = element("span.dx-figures");
    this.element = element(
      "section.dx-runner.dx-strip",
      { "aria-label": "The cause" },
      element(
        "div.dx-group",
        {},
        element("span.dx-strip-name", { text: "Why?" }),
        ...this.buttons.map(({ made, price }) => element("span.dx-group", {}, made, price)),
        this.stop,
        this.status,
      ),
    );
    this.paint();
    this.follow();
  }

  get running() {
    return ["running", "stopping"].includes(this.model.get("state").phase);
  }

  ask(name) {
    if (this.running || !this.model.get("prices")[name]) return;
    this.asked = name;
    this.model.send({ do: "cause", name });
  }

  halt() {
    if (this.stop.getAttribute("aria-disabled") !== "true") this.model.send({ do: "stop" });
  }

  paint() {
    const prices = this.model.get("prices");
    for (const { name, made, price } of this.buttons) {
      price.textContent = prices[name] ?? "";
      made.setAttribute("aria-disabled", String(this.running || !prices[name])); // not disabled: that would drop the focus
    }
  }

  follow() {
    const state = this.model.get("state");
    this.paint();
    this.stop.setAttribute("aria-disabled", String(state.phase !== "running" || !this.asked));
    this.status.textContent = this.asked ? words(state) : "";
    if (this.ran && this.asked && !this.running) {
      if (state.phase === "done") revealBelow(this.element, this.signal, `.dx-view [data-question=${this.asked}]`);
      this.asked = "";
    }
    this.ran = this.running;
  }
}

function words(state) {
  if (state.phase === "running" || state.phase === "stopping") return figures(state);
  return state.error ? `${state.error.asked}. ${state.error.do}` : "";
}

function render({ model, el, signal }) {
  const cause = new Cause(model, signal);
  el.replaceChildren(cause.element);
  const listeners = { "change:prices": () => cause.paint(), "change:state": () => cause.follow() };
  for (const [event, listener] of Object.entries(listeners)) model.on(event, listener);
  signal?.addEventListener("abort", () => {
    for (const [event, listener] of Object.entries(listeners)) model.off(event, listener);
  });
}

export default { render };
