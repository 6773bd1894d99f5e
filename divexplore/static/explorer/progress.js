// What a run under way looks like: a bar, speed and time left, the last words of both sides; and what went wrong.

import { element } from "../view/dom.js";

export class Progress {
  constructor() {
    this.bar = element("progress.dx-bar", { max: 1, "aria-label": "Steps of this run" });
    this.text = element("span.dx-figures");
    this.tails = ["a", "b"].map((side) => element(`bdi.dx-tail.dx-ink-${side}`));
    this.running = element(
      "div.dx-running",
      { hidden: true },
      element("div.dx-meter", {}, this.bar, this.text),
      ...this.tails.map((tail, index) =>
        element("div.dx-tail-line", {}, element(`b.dx-letter.dx-letter-${"ab"[index]}`, { text: "AB"[index] }), tail),
      ),
    );
    this.note = element("p.dx-run-note.dx-quiet", { hidden: true });
    this.error = element("div.dx-error", { role: "alert" });
    this.spoken = element("p.dx-spoken", { "aria-live": "polite" });
    this.element = element("div.dx-progress", {}, this.running, this.error, this.spoken);
  }

  show(state) {
    const running = state.phase === "running" || state.phase === "stopping";
    this.running.hidden = !running;
    if (running) {
      if (state.steps) this.bar.value = state.step / state.steps;
      else this.bar.removeAttribute("value");
      this.text.textContent = figures(state);
      this.tails.forEach((tail, index) => {
        tail.textContent = state.tails["ab"[index]].replaceAll("\n", "⏎");
        tail.parentElement.hidden = state.unit !== "steps"; // a question about the cause has no words
      });
    }
    this.note.hidden = running || !state.note;
    this.note.textContent = state.note;
    this.complain(state.error);
    if (this.spoken.textContent !== state.spoken) this.spoken.textContent = state.spoken;
  }

  complain(error) {
    const key = JSON.stringify(error);
    if (key === this.shown) return; // an alert that is written again is spoken again
    this.shown = key;
    const lines = error === null ? [] : [element("strong", { text: error.asked }), allowed(error), element("span.dx-do", { text: error.do })];
    this.error.replaceChildren(...lines.filter(Boolean));
  }
}

function allowed(error) {
  return error.allowed ? element("span", { text: `Allowed: ${error.allowed}.` }) : null;
}

/** "A · 41 of 128 steps · 52 steps/s · 2 s left" */
export function figures(state) {
  if (state.phase === "stopping") return "stopping after this step …";
  if (!state.steps) return state.note || "starting …";
  const parts = [state.run, `${state.step} of ${state.steps} ${state.unit}`];
  if (state.rate) parts.push(`${state.rate < 10 ? state.rate.toFixed(1) : Math.round(state.rate)} ${state.unit}/s`);
  if (state.left !== null && state.step < state.steps) parts.push(`${duration(state.left)} left`);
  return parts.join(" · ");
}

export function duration(seconds) {
  if (seconds < 1) return "under 1 s";
  if (seconds < 90) return `${Math.round(seconds)} s`;
  return seconds < 5400 ? `${Math.round(seconds / 60)} min` : `${(seconds / 3600).toFixed(1)} h`;
}
