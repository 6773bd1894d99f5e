import assert from "node:assert/strict";
import { test } from "node:test";

import { number, probability, visible } from "../../../divexplore/static/view/format.js";

test("what is unknown is never shown as a number", () => {
  assert.equal(number(NaN), "—");
  assert.equal(number(null), "—");
  assert.equal(probability(undefined), "—");
  assert.equal(number(Infinity), "∞");
  assert.equal(number(0), "0");
});

test("small and large numbers take a power of ten, others do not", () => {
  assert.equal(number(0.0625), "0.0625");
  assert.equal(number(4.09e-14, 3), "4.09e-14");
  assert.equal(number(-0.5625), "−0.5625");
  assert.equal(number(12345678), "1.23e7");
});

test("no token text is invisible", () => {
  const texts = ["", " ", "\n", "\t", "\u200b", "\u202e", "\ufeff", "\u00ad", "\u0301", "\u2028", "\u0000", "\ue000"];
  for (const text of texts) {
    const shown = visible(text, false);
    assert.match(shown, /[^\p{Z}\p{C}\p{M}]/u, JSON.stringify(text));
  }
});

test("direction marks lose their power and joined emoji stay whole", () => {
  assert.equal(visible("\u202eevil", false), "⟨202E⟩evil");
  assert.equal(visible("\u{1F469}\u200d\u{1F680}", false), "\u{1F469}\u200d\u{1F680}");
  assert.equal(visible("a\u200db", false), "a⟨200D⟩b");
});

test("blanks are shown on request, and always where nothing else is there", () => {
  assert.equal(visible(" her", false), " her");
  assert.equal(visible(" her", true), "␣her");
  assert.equal(visible("  ", false), "␣␣");
});
