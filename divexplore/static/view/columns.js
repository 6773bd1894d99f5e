// The alignment, column by column: what differs, where to go next, how strongly to colour.

import { samePrefix, stepOf } from "./payload.js";

export const LEVELS = 9;
const WIDE_MARGIN = 4; // logits from which a margin is not coloured any more: no drift seen on benign pairs comes near

/** @typedef {"equal"|"differs"|"only-a"|"only-b"} Kind */

/** Kind of each column. */
export function kinds(comparison) {
  const out = new Array(comparison.length);
  for (let column = 0; column < comparison.length; column += 1) {
    const a = stepOf(comparison, "a", column);
    const b = stepOf(comparison, "b", column);
    if (a === null) out[column] = "only-b";
    else if (b === null) out[column] = "only-a";
    else out[column] = comparison.a.token[a] === comparison.b.token[b] ? "equal" : "differs";
  }
  return out;
}

/** The nearest column that is not equal, in a direction, or null. */
export function difference(columnKinds, from, direction) {
  for (let column = from + direction; column >= 0 && column < columnKinds.length; column += direction) {
    if (columnKinds[column] !== "equal") return column;
  }
  return null;
}

/** The column of a step of one side; behind its end, the last column. */
export function columnOf(comparison, side, step) {
  const steps = side === "a" ? comparison.stepA : comparison.stepB;
  for (let column = Math.min(step, steps.length - 1); column < steps.length; column += 1) {
    if (steps[column] === step) return column;
  }
  return Math.max(0, steps.length - 1);
}

/** Smallest and largest epsilon above 0 on the common prefix, or null. */
export function epsilonRange(comparison) {
  let low = Infinity;
  let high = 0;
  for (const value of comparison.epsilon) {
    if (value > 0 && Number.isFinite(value)) {
      low = Math.min(low, value);
      high = Math.max(high, value);
    }
  }
  return high > 0 ? { low, high } : null;
}

/** Strength of a drift, 0 (none) to LEVELS, logarithmic between the smallest and the largest of this comparison. */
export function driftLevel(epsilon, range) {
  if (!(epsilon > 0) || !range) return 0;
  if (range.high <= range.low) return LEVELS;
  const share = Math.log(Math.min(epsilon, range.high) / range.low) / Math.log(range.high / range.low);
  return 1 + Math.round(share * (LEVELS - 1));
}

/** Strength of a narrow margin, 0 (4 logits and more) to LEVELS (0). */
export function marginLevel(margin) {
  if (Number.isNaN(margin)) return 0;
  return Math.round(LEVELS * (1 - Math.sqrt(Math.min(Math.max(margin, 0), WIDE_MARGIN) / WIDE_MARGIN)));
}

/** Strength of an improbable token, 0 (certain) to LEVELS. */
export function improbability(logprob) {
  return Number.isNaN(logprob) ? 0 : Math.round(LEVELS * (1 - Math.exp(logprob)));
}

/** Class of a cell's colour: `e` epsilon, `m` margin, `p` probability, and the strength; empty for none. */
export function shade(comparison, side, column, mode, range) {
  const step = stepOf(comparison, side, column);
  if (step === null) return "";
  if (mode === "probability") return level("p", improbability(comparison[side].logprob[step]));
  if (samePrefix(comparison, column)) return level("e", driftLevel(comparison.epsilon[step], range));
  return level("m", marginLevel(comparison[side].margin[step]));
}

function level(letter, strength) {
  return strength ? `dx-${letter}${strength}` : "";
}

/** Cells of a monospaced font that a text needs, 1 to 24; longer ones are cut with an ellipsis. */
export function cells(text, measure) {
  const wide = /^[\x20-\x7e]*$/.test(text) ? text.length : measure(text);
  return Math.min(Math.max(Math.ceil(wide - 0.05), 1), 24);
}
