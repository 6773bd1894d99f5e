// The run panel: model, prompt, steps, preset, Run and Stop; below them what A and B are. All that runs, runs in Python.

import { button, element, freshId, hideSaved, icon, OWN_KEYS } from "../view/dom.js";
import { describe, Knobs, makeControl } from "./knobs.js";
import { Progress } from "./progress.js";
import { revealBelow } from "./reveal.js";

const PLAY = "M4 2.5v11l9-5.5z";
const SQUARE = "M3.5 3.5h9v9h-9z";
const OWN = "own"; // no preset: the person's own two configurations

class Panel {
  constructor(model, signal) {
    this.model = model;
    this.signal = signal;
    this.choices = model.get("choices");
    this.progress = new Progress();
    this.knobs = new Knobs(this.choices.knobs, (side, name, value) => this.turn(side, name, value), signal);
    this.fillCommon();
    this.edit = button("edit", { "aria-expanded": "false", signal, on: { click: () => this.fold(!model.get("editing")) } });
    this.sides = element("div.dx-sides");
    this.element = element(
      "section.dx-runner",
      { "aria-label": "Explorer" },
      this.topRow(),
      element("div.dx-summary", {}, this.sides, this.edit, this.progress.note),
      this.progress.element,
      this.knobs.element,
    );
    this.paint();
    this.follow();
    this.unfold();
  }

  topRow() {
    const { signal } = this;
    this.models = this.select(this.choices.models.map(({ name, note }) => element("option", { value: name, text: name, title: note })), (value) => this.change({ model: value }));
    this.hint = element("span.dx-hint.dx-quiet", { id: freshId("hint") });
    this.models.setAttribute("aria-describedby", this.hint.id);
    this.prompt = element("textarea.dx-input.dx-prompt-input", {
      rows: 1,
      spellcheck: "false",
      title: "Enter runs, Shift+Enter starts a new line",
      ...OWN_KEYS,
      signal,
      on: { input: () => this.change({ prompt: this.prompt.value }), keydown: (event) => this.key(event) },
    });
    this.steps = makeControl({ kind: "number" }, "Steps at most", (value) => this.change({ steps: value }), signal);
    this.presets = this.select([], (value) => this.preset(value));
    this.offer();
    this.run = button("Run", { signal, on: { click: () => this.start() } });
    this.run.classList.add("dx-go-run");
    this.run.prepend(icon(PLAY));
    this.stop = button("Stop", { signal, on: { click: () => this.halt() } });
    this.stop.prepend(icon(SQUARE));
    this.promptName = element("span");
    const field = (name, text, control, ...more) => element(`div.dx-field.dx-at-${name}`, {}, element("label.dx-name", { for: this.identify(control) }, text), control, ...more);
    return element(
      "div.dx-request",
      {},
      field("model", "Model", this.models, this.hint),
      field("prompt", this.promptName, this.prompt),
      field("steps", "Steps", this.steps.element),
      field("preset", "Preset", this.presets),
      element("div.dx-field.dx-at-run", {}, element("span.dx-pair", {}, this.run, this.stop)),
    );
  }

  identify(control) {
    control.id = freshId("field");
    return control.id;
  }

  select(options, changed) {
    return element("select.dx-select", { ...OWN_KEYS, signal: this.signal, on: { change: (event) => changed(event.target.value) } }, ...options);
  }

  /** The presets, those that cannot differ on this machine greyed with the reason. */
  offer() {
    this.choices = this.model.get("choices");
    const options = this.choices.presets.map(({ name, label, reason }) =>
      element("option", { value: name, text: reason ? `${label}: ${reason}` : label, title: reason, disabled: Boolean(reason) }),
    );
    this.presets.replaceChildren(...options, element("option", { value: OWN, text: "your own" }));
    this.presets.value = this.request.preset;
  }

  /** What holds for both runs and is rarely changed. */
  fillCommon() {
    this.evidence = this.select(this.choices.evidence.map(({ value, label }) => element("option", { value, text: label })), (value) => this.change({ evidence: value }));
    this.chat = makeControl({ kind: "flag" }, "Chat template", (value) => this.change({ chat: value }), this.signal);
    const cell = (text, control, kind = "") => element(`div.dx-knob${kind}`, {}, element("label.dx-knob-name", { for: this.identify(control), text }), control);
    this.knobs.common.append(cell("evidence", this.evidence, ".dx-wide"), cell("chat template", this.chat.element));
  }

  get request() {
    return this.model.get("request");
  }

  /** Take over what a person changed; the kernel hears of it, and nothing waits for it. */
  change(changes) {
    this.model.set("request", { ...this.request, ...changes });
    this.model.save_changes();
  }

  turn(side, name, value) {
    const { [name]: _, ...others } = this.request[side];
    const fields = value === null ? others : { ...others, [name]: value };
    this.change({ [side]: fields, preset: this.nameOf({ ...this.request, [side]: fields }) });
  }

  preset(name) {
    const chosen = this.choices.presets.find((preset) => preset.name === name);
    this.change(chosen ? { preset: name, a: chosen.a, b: chosen.b } : { preset: OWN });
    if (!chosen) this.fold(true);
  }

  nameOf({ a, b }) {
    const same = (x, y) => canonical(x) === canonical(y);
    return this.choices.presets.find((preset) => same(preset.a, a) && same(preset.b, b))?.name ?? OWN;
  }

  start() {
    this.model.send({ do: "run", request: this.request }); // the request goes along: a trait may arrive later
  }

  halt() {
    if (this.stop.getAttribute("aria-disabled") !== "true") this.model.send({ do: "stop" });
  }

  key(event) {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    this.start();
  }

  fold(open) {
    this.model.set("editing", open);
    this.model.save_changes();
  }

  unfold() {
    const open = this.model.get("editing");
    this.knobs.element.hidden = !open;
    this.edit.textContent = open ? "fold" : "edit";
    this.edit.setAttribute("aria-expanded", String(open));
  }

  /** Show the request; a control that shows it already is left alone, whoever has the focus. */
  paint() {
    const { request, choices } = this;
    const put = (control, value) => {
      if (control.value !== value) control.value = value;
    };
    put(this.models, request.model);
    this.hint.textContent = choices.models.find(({ name }) => name === request.model)?.note ?? "";
    this.models.title = this.hint.textContent;
    put(this.prompt, request.prompt);
    this.promptName.textContent = request.ids ? "Prompt, as token ids" : "Prompt";
    this.steps.show(request.steps);
    put(this.presets, request.preset);
    put(this.evidence, request.evidence);
    this.chat.show(request.chat);
    this.knobs.paint(request.a, request.b);
    const words = { a: describe(choices.knobs, request.a), b: describe(choices.knobs, request.b) };
    this.sides.replaceChildren(sideLine("a", words.a, words.b), sideLine("b", words.b, words.a));
  }

  follow() {
    const state = this.model.get("state");
    const running = state.phase === "running" || state.phase === "stopping";
    this.run.title = running ? "end this run and start again" : "run both configurations";
    this.run.classList.toggle("dx-waiting", running);
    this.stop.setAttribute("aria-disabled", String(state.phase !== "running")); // not disabled: that would drop the focus
    this.element.setAttribute("aria-busy", String(running));
    this.progress.show(state);
    if (this.ran && state.phase === "done") revealBelow(this.element, this.signal);
    this.ran = running;
  }
}

function canonical(fields) {
  return JSON.stringify(Object.entries(fields).sort());
}

/** One side in words, bright where the other side says something else. */
function sideLine(side, words, others) {
  const same = new Set(others.map(({ text }) => text));
  const parts = words.map(({ text }) => element(same.has(text) ? "span.dx-quiet" : "b", { text }));
  const empty = element("span.dx-quiet", { text: "as model and process have it" });
  return element(`span.dx-side.dx-ink-${side}`, {}, element("b.dx-letter", { text: side.toUpperCase() }), ...(parts.length ? parts : [empty]));
}

function render({ model, el, signal }) {
  const panel = new Panel(model, signal);
  el.replaceChildren(...[hideSaved(model.get("saved")), panel.element].filter(Boolean));
  const listeners = { "change:request": () => panel.paint(), "change:state": () => panel.follow(), "change:editing": () => panel.unfold(), "change:choices": () => panel.offer() };
  for (const [event, listener] of Object.entries(listeners)) model.on(event, listener);
  signal?.addEventListener("abort", () => {
    for (const [event, listener] of Object.entries(listeners)) model.off(event, listener);
  });
}

export default { render };
