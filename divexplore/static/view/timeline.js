// Margins, epsilon and noise floor by step. The cursor is an element over the chart: a mark would be redrawn with it.

import { columnOf } from "./columns.js";
import { element } from "./dom.js";
import { stepOf } from "./payload.js";
import { chart, vegaEmbed } from "./vega.js";

const POINTS = 600; // more than a screen is wide enough for

/** Steps that share a point of the timeline. */
export function stepsAPoint(comparison) {
  return Math.max(1, Math.ceil(Math.max(comparison.a.steps, comparison.b.steps) / POINTS));
}

/** Rows of the chart's `series`; where steps share a point, the narrowest margin and the largest drift are shown. */
export function seriesRows(comparison) {
  const every = stepsAPoint(comparison);
  const narrower = (value, shown) => value < shown;
  const larger = (value, shown) => value > shown;
  return [
    ...points("margin A", comparison.a.margin, every, narrower),
    ...points("margin B", comparison.b.margin, every, narrower),
    ...points("epsilon", comparison.epsilon, every, larger),
    ...points("noise floor", comparison.floor ?? [], every, larger),
  ];
}

function points(series, values, every, better) {
  const rows = [];
  for (let start = 0; start < values.length; start += every) {
    let shown = null;
    for (let step = start; step < Math.min(start + every, values.length); step += 1) {
      if (Number.isFinite(values[step]) && (shown === null || better(values[step], shown.value)))
        shown = { step, value: values[step], series };
    }
    if (shown) rows.push(shown);
  }
  return rows;
}

/** Rows of the chart's `marks`. */
export function markRows(comparison) {
  const { header } = comparison;
  const rows = [];
  if (header.first_divergence !== null) rows.push({ step: header.first_divergence, label: "split" });
  if (header.first_drift !== null && header.first_drift !== header.first_divergence)
    rows.push({ step: header.first_drift, label: "first drift" });
  return rows;
}

export class Timeline {
  constructor(view, signal) {
    this.view = view;
    this.signal = signal;
    this.cursors = { a: element("div.dx-cursor.dx-cursor-a"), b: element("div.dx-cursor.dx-cursor-b") };
    this.place = element("div.dx-chart");
    this.note = element("p.dx-quiet.dx-chart-note", { text: "drawing the timeline …" });
    this.element = element(
      "figure.dx-timeline",
      { "aria-label": "Margin of both runs and epsilon by step" },
      this.place,
      this.cursors.a,
      this.cursors.b,
      this.note,
    );
    this.element.addEventListener("mousedown", (event) => event.preventDefault(), { signal }); // the focus stays where it is
    this.element.addEventListener("click", (event) => this.clicked(event), { signal });
  }

  async draw(width) {
    try {
      const embed = await vegaEmbed(this.view.model);
      const { comparison } = this.view;
      const rows = { series: seriesRows(comparison), marks: markRows(comparison) };
      this.chart = await chart(embed, this.place, {
        spec: comparison.header.charts.timeline,
        rows,
        width,
        signal: this.signal,
      });
      await this.resize(this.element.clientWidth || width);
      const every = stepsAPoint(comparison);
      this.note.remove();
      if (every > 1)
        this.element.append(
          element("figcaption.dx-quiet", {
            text: `each point: narrowest margin and largest epsilon of ${every} steps`,
          }),
        );
    } catch (error) {
      this.note.textContent = `no timeline: ${error.message}`;
    }
  }

  /** Fit the plot into the width at hand: the chart's own parts beside it stay as they are. */
  async resize(width) {
    if (!this.chart || !width) return;
    const beside = this.place.querySelector("svg").clientWidth - this.chart.width();
    this.chart.width(Math.max(120, width - Math.max(beside, 58) - 4));
    await this.chart.runAsync();
    this.show(this.column);
  }

  show(column) {
    this.column = column;
    if (!this.chart || column === undefined) return;
    const { left, top } = this.origin();
    const { offsetLeft, offsetTop } = this.place;
    const scale = this.chart.scale("x");
    for (const side of ["a", "b"]) {
      const step = stepOf(this.view.comparison, side, column);
      const cursor = this.cursors[side];
      cursor.hidden = step === null;
      if (step === null) continue;
      cursor.style.transform = `translate(${left + scale(step) + offsetLeft}px, ${top + offsetTop}px)`;
      cursor.style.height = `${this.chart.height()}px`;
    }
  }

  /** Where the plot begins in the picture. */
  origin() {
    const [x, y] = this.chart.origin();
    const padding = this.chart.padding();
    return { left: x + padding.left, top: y + padding.top };
  }

  clicked(event) {
    if (!this.chart) return;
    const { left } = this.origin();
    const x = event.clientX - this.place.getBoundingClientRect().left - left;
    const within = Math.min(Math.max(x, 0), this.chart.width());
    const step = Math.round(this.chart.scale("x").invert(within));
    const side = step < this.view.comparison.a.steps ? "a" : "b";
    this.view.select(columnOf(this.view.comparison, side, step), { say: true });
  }
}
