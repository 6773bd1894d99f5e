import assert from "node:assert/strict";
import { test } from "node:test";

import {
  cells,
  columnOf,
  difference,
  driftLevel,
  epsilonRange,
  kinds,
  LEVELS,
  marginLevel,
  shade,
} from "../../../divexplore/static/view/columns.js";

// Steps 0 and 1 agree, column 2 is the split, 3 and 4 are gaps, 5 agrees again.
const comparison = {
  length: 6,
  split: 2,
  stepA: Int32Array.of(0, 1, 2, -1, 3, 4),
  stepB: Int32Array.of(0, 1, 2, 3, -1, 4),
  epsilon: Float32Array.of(0, 0.25, 0.5, NaN, NaN),
  a: {
    token: Int32Array.of(7, 8, 9, 5, 6),
    margin: Float32Array.of(1, 1, 0, 0, 9),
    logprob: Float32Array.of(0, -1, -1, -1, -1),
  },
  b: {
    token: Int32Array.of(7, 8, 1, 2, 6),
    margin: Float32Array.of(1, 1, 0, 0, 9),
    logprob: Float32Array.of(0, -1, -1, -1, -1),
  },
};

test("a column is equal, differs, or is a gap on one side", () => {
  assert.deepEqual(kinds(comparison), ["equal", "equal", "differs", "only-b", "only-a", "equal"]);
});

test("the next difference is found in both directions, and none at the ends", () => {
  const all = kinds(comparison);
  assert.equal(difference(all, 0, 1), 2);
  assert.equal(difference(all, 5, -1), 4);
  assert.equal(difference(all, 4, 1), null);
  assert.equal(difference(all, 2, -1), null);
});

test("a step leads to its column on either side of the gaps", () => {
  assert.equal(columnOf(comparison, "a", 3), 4);
  assert.equal(columnOf(comparison, "b", 3), 3);
  assert.equal(columnOf(comparison, "a", 4), 5);
  assert.equal(columnOf(comparison, "a", 400), 5);
});

test("a larger drift is never paler, none has no colour", () => {
  const range = epsilonRange(comparison);
  assert.deepEqual(range, { low: 0.25, high: 0.5 });
  assert.equal(driftLevel(0, range), 0);
  assert.equal(driftLevel(NaN, range), 0);
  assert.equal(driftLevel(0.5, range), LEVELS);
  const levels = [0.25, 0.3, 0.4, 0.5].map((value) => driftLevel(value, range));
  assert.deepEqual(
    [...levels].sort((x, y) => x - y),
    levels,
  );
  assert.ok(levels[0] > 0);
});

test("a tie has the strongest colour, a wide margin none", () => {
  assert.equal(marginLevel(0), LEVELS);
  assert.equal(marginLevel(4), 0);
  assert.equal(marginLevel(40), 0);
  assert.equal(marginLevel(NaN), 0);
});

test("drift colours end at the split, margins begin after it, gaps have no colour", () => {
  const range = epsilonRange(comparison);
  assert.match(shade(comparison, "a", 2, "drift", range), /^dx-e\d$/);
  assert.match(shade(comparison, "b", 3, "drift", range), /^dx-m\d$/);
  assert.equal(shade(comparison, "a", 3, "drift", range), "");
  assert.equal(shade(comparison, "a", 0, "probability", range), "");
  assert.match(shade(comparison, "a", 1, "probability", range), /^dx-p\d$/);
});

test("a cell is at least one character wide and at most twenty-four", () => {
  assert.equal(
    cells(" her", () => 0),
    4,
  );
  assert.equal(
    cells("a".repeat(60), () => 0),
    24,
  );
  assert.equal(
    cells("漢", () => 1.7),
    2,
  );
  assert.equal(
    cells("\u0301", () => 0),
    1,
  );
});
