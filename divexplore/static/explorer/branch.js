// Below the view: take another token at the selected step, and see where that side would have gone.

import { button, element, freshId, OWN_KEYS } from "../view/dom.js";
import { quoted } from "../view/format.js";

class Branch {
  constructor(model, signal) {
    this.model = model;
    const pick = (changed) => element("select.dx-select", { id: freshId("branch"), ...OWN_KEYS, signal, on: { change: changed } });
    this.side = pick(() => this.offerTokens());
    this.token = pick(() => {});
    this.go = button("Continue", { signal, on: { click: () => this.send() } });
    this.note = element("span.dx-quiet", { role: "status" });
    const named = (text, control) => element("span.dx-group", {}, element("label", { for: control.id, text }), control);
    this.element = element(
      "section.dx-runner.dx-strip",
      { "aria-label": "Another token" },
      element("div.dx-group", {}, element("span.dx-strip-name", { text: "What if?" }), named("at the selected step, run", this.side), named("takes", this.token), this.go, this.note),
    );
    this.paint();
  }

  paint() {
    const { sides } = this.model.get("offer");
    const before = this.side.value;
    this.side.replaceChildren(...sides.map(({ side, step }) => element("option", { value: side, text: `${side.toUpperCase()}, step ${step}` })));
    if (sides.some(({ side }) => side === before)) this.side.value = before;
    this.offerTokens();
    this.follow();
  }

  follow() {
    this.note.textContent = this.model.get("note");
    this.go.setAttribute("aria-disabled", String(this.model.get("busy") || !this.token.options.length));
  }

  offerTokens() {
    const found = this.model.get("offer").sides.find(({ side }) => side === this.side.value);
    const options = (found?.tokens ?? []).map(({ id, text, probability }) => element("option", { value: id, text: `${quoted(text)}  ${probability.toPrecision(2)}` }));
    this.token.replaceChildren(...options);
  }

  send() {
    if (this.go.getAttribute("aria-disabled") === "true") return;
    const { step } = this.model.get("offer").sides.find(({ side }) => side === this.side.value);
    this.model.send({ do: "fork", side: this.side.value, step, token: Number(this.token.value) });
  }
}

function render({ model, el, signal }) {
  const branch = new Branch(model, signal);
  el.replaceChildren(branch.element);
  const listeners = { "change:offer": () => branch.paint(), "change:busy": () => branch.follow(), "change:note": () => branch.follow() };
  for (const [event, listener] of Object.entries(listeners)) model.on(event, listener);
  signal?.addEventListener("abort", () => {
    for (const [event, listener] of Object.entries(listeners)) model.off(event, listener);
  });
}

export default { render };
