import assert from "node:assert/strict";
import { test } from "node:test";

import { markRows, seriesRows, stepsAPoint } from "../../../divexplore/static/view/timeline.js";

function comparison(steps) {
  const margin = Float32Array.from({ length: steps }, (_, step) => (step === 1234 ? 0 : 1 + (step % 7)));
  const epsilon = Float32Array.from({ length: steps }, (_, step) => (step === 777 ? 0.5 : step < 2000 ? 0.1 : NaN));
  return {
    a: { steps, margin },
    b: { steps, margin },
    epsilon,
    floor: null,
    header: { first_drift: 3, first_divergence: 3 },
  };
}

test("a short run has a point a step", () => {
  assert.equal(stepsAPoint(comparison(500)), 1);
  assert.equal(seriesRows(comparison(500)).filter((row) => row.series === "margin A").length, 500);
});

test("where steps share a point, no tie and no peak is lost, and unknown steps have none", () => {
  const rows = seriesRows(comparison(4000));
  assert.ok(rows.length < 4 * 600);
  assert.ok(rows.some((row) => row.series === "margin A" && row.step === 1234 && row.value === 0));
  assert.ok(rows.some((row) => row.series === "epsilon" && row.step === 777));
  assert.ok(rows.every((row) => row.series !== "epsilon" || row.step < 2000));
});

test("a drift that begins at the split has one mark", () => {
  assert.deepEqual(
    markRows(comparison(10)).map((row) => row.label),
    ["split"],
  );
});
