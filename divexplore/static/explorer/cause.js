// Below the view: one button a question about the cause, each with its price; what was found stands under them.

import { button, element } from "../view/dom.js";

class Cause {
  constructor(model, signal) {
    this.model = model;
    this.buttons = Object.entries({ knob: "Which knob?", operation: "Which operation?", layer: "Which layer?" }).map(([name, label]) => {
      const made = button(label, { signal, on: { click: () => this.ask(name) } });
      return { name, made, price: element("span.dx-price.dx-quiet") };
    });
    this.answers = element("div.dx-answers", { "aria-live": "polite" });
    this.element = element(
      "section.dx-runner.dx-strip",
      { "aria-label": "The cause" },
      element(
        "div.dx-group",
        {},
        element("span.dx-strip-name", { text: "Why?" }),
        ...this.buttons.map(({ made, price }) => element("span.dx-group", {}, made, price)),
      ),
      this.answers,
    );
    this.paint();
    this.follow();
  }

  ask(name) {
    if (!this.model.get("busy")) this.model.send({ do: "cause", name });
  }

  follow() {
    for (const { made } of this.buttons) made.setAttribute("aria-disabled", String(this.model.get("busy")));
  }

  paint() {
    const prices = this.model.get("prices");
    for (const { name, price } of this.buttons) price.textContent = prices[name] ?? "";
    this.answers.replaceChildren(...this.model.get("answers").map(answerPart));
  }
}

function answerPart({ title, lines, tables }) {
  return element("article.dx-answer", {}, element("h4", { text: title }), ...lines.map((text) => element("p", { text })), ...tables.map(tablePart));
}

function tablePart({ caption, columns, rows, left }) {
  if (!rows.length) return null;
  const head = element("tr", {}, ...columns.map((name) => element("th", { text: name.replaceAll("_", " "), scope: "col" })));
  const body = rows.map((cells) => element("tr", {}, ...cells.map((text) => element("td", { text }))));
  const more = left ? [element("p.dx-quiet", { text: `and ${left} more` })] : [];
  return element(
    "div.dx-scroll",
    { tabindex: 0, role: "group", "aria-label": caption, "data-lm-suppress-shortcuts": "true" },
    element("table", {}, element("caption", { text: caption }), element("thead", {}, head), element("tbody", {}, ...body)),
    ...more,
  );
}

function render({ model, el, signal }) {
  const cause = new Cause(model, signal);
  el.replaceChildren(cause.element);
  const listeners = { "change:answers": () => cause.paint(), "change:prices": () => cause.paint(), "change:busy": () => cause.follow() };
  for (const [event, listener] of Object.entries(listeners)) model.on(event, listener);
  signal?.addEventListener("abort", () => {
    for (const [event, listener] of Object.entries(listeners)) model.off(event, listener);
  });
}

export default { render };
