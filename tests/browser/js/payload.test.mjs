import assert from "node:assert/strict";
import { test } from "node:test";

import {
  joinTop,
  readColumns,
  readComparison,
  samePrefix,
  stepOf,
  topList,
} from "../../../divexplore/static/view/payload.js";
import { payload } from "./fixture.mjs";

const { header, bytes, sample } = payload();

test("columns are what Python wrote", () => {
  const columns = readColumns(header, bytes);
  for (const [name, values] of Object.entries(sample)) assert.deepEqual(Array.from(columns[name]), values, name);
});

test("bytes may begin anywhere in a message", () => {
  for (const shift of [1, 3, 4]) {
    const message = new Uint8Array(bytes.length + shift);
    message.set(bytes, shift);
    const columns = readColumns(header, new DataView(message.buffer, shift));
    assert.deepEqual(Array.from(columns.a_top_logits), sample.a_top_logits);
  }
});

test("probabilities of a top list stay below 1 in sum, and the taken token's is its recorded one", () => {
  const comparison = readComparison(header, bytes);
  const list = topList(comparison.a, 40);
  assert.ok(list.reduce((sum, entry) => sum + entry.probability, 0) < 1);
  const taken = list.find((entry) => entry.id === comparison.a.token[40]);
  assert.ok(Math.abs(taken.probability - Math.exp(comparison.a.logprob[40])) < 1e-6);
});

test("two lists join by id, and an id that one side lacks has null there", () => {
  const entry = (id, rank) => ({ id, rank, logit: -rank, probability: 0 });
  const rows = joinTop([entry(5, 0), entry(6, 1)], [entry(6, 0), entry(7, 1)]);
  assert.deepEqual(
    rows.map((row) => row.id),
    [5, 6, 7],
  );
  assert.equal(rows[0].b, null);
  assert.equal(rows[2].a, null);
  assert.equal(rows[1].a.rank, 1);
  assert.equal(rows[1].b.rank, 0);
});

test("numbers may be compared up to the split and not after it", () => {
  const comparison = readComparison(header, bytes);
  assert.equal(samePrefix(comparison, 40), true);
  assert.equal(samePrefix(comparison, 41), false);
  assert.equal(samePrefix({ split: null }, 1000), true);
});

test("a gap has no step", () => {
  const comparison = readComparison(header, bytes);
  const gap = Array.from(comparison.stepA).indexOf(-1);
  assert.equal(stepOf(comparison, "a", gap), null);
  assert.equal(typeof stepOf(comparison, "b", gap), "number");
  assert.equal(stepOf(comparison, "a", comparison.length), null);
});
