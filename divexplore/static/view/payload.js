// What Python sent, as typed arrays and look-ups. Nothing here touches the page.

const ARRAYS = { int32: Int32Array, float32: Float32Array, float64: Float64Array, uint8: Uint8Array };
const GAP = -1;

/**
 * @typedef {object} Side
 * @property {number} steps
 * @property {Int32Array} token ids taken, a step
 * @property {Float32Array|Float64Array} logit of the taken token
 * @property {Float32Array|Float64Array} logprob nats
 * @property {Float32Array|Float64Array} margin logits
 * @property {Float32Array|Float64Array} ulps margin in units of the last place
 * @property {Float32Array|Float64Array} entropy nats
 * @property {Uint8Array} tie 1 where the margin is 0
 * @property {number} k
 * @property {Int32Array} topIds steps × k
 * @property {Float32Array|Float64Array} topLogits steps × k
 * @property {object} facts
 */

/**
 * Lay typed arrays over the block of bytes.
 * @param {{blob: {name: string, dtype: string, shape: number[], offset: number}[]}} header
 * @param {DataView|ArrayBuffer|Uint8Array} data
 */
export function readColumns(header, data) {
  const bytes = ArrayBuffer.isView(data)
    ? new Uint8Array(data.buffer, data.byteOffset, data.byteLength)
    : new Uint8Array(data);
  // A message may put the block anywhere; arrays of 8-byte numbers need a multiple of 8.
  const aligned = bytes.byteOffset % 8 === 0 ? bytes : bytes.slice();
  const columns = {};
  for (const { name, dtype, shape, offset } of header.blob) {
    const length = shape.reduce((product, one) => product * one, 1);
    columns[name] = new ARRAYS[dtype](aligned.buffer, aligned.byteOffset + offset, length);
  }
  return columns;
}

/** The comparison as the view uses it. */
export function readComparison(header, data) {
  const columns = readColumns(header, data);
  const texts = new Map();
  columns.vocabulary.forEach((id, index) => texts.set(id, header.texts[index]));
  return {
    header,
    length: header.columns,
    stepA: columns.column_a,
    stepB: columns.column_b,
    epsilon: columns.epsilon,
    forced: {
      epsilon: columns.forced_epsilon ?? null,
      kld: columns.forced_kld ?? null,
      agree: columns.forced_top1_agree ?? null,
      deltaP: columns.forced_delta_p ?? null,
      rank: columns.forced_rank ?? null,
    },
    floor: columns.floor ?? null,
    layers: columns.layer_epsilon
      ? {
          layer: columns.layer_drift_layer,
          step: columns.layer_drift_step,
          relative: columns.layer_drift_relative,
          epsilon: columns.layer_epsilon,
        }
      : null,
    otherPrompts: Boolean(header.prompt_b),
    split: header.split_column,
    drift: header.drift_column,
    a: readSide("a", columns, header.a),
    b: readSide("b", columns, header.b),
    text: (id) => texts.get(id) ?? `#${id}`,
    bytes: (id) => header.bytes[id] ?? null,
  };
}

function readSide(name, columns, facts) {
  const steps = columns[`${name}_token`].length;
  return {
    steps,
    facts,
    token: columns[`${name}_token`],
    logit: columns[`${name}_logit`],
    logprob: columns[`${name}_logprob`],
    margin: columns[`${name}_margin`],
    ulps: columns[`${name}_margin_ulps`],
    entropy: columns[`${name}_entropy`],
    tie: columns[`${name}_tie`],
    k: steps ? columns[`${name}_top_ids`].length / steps : 0,
    topIds: columns[`${name}_top_ids`],
    topLogits: columns[`${name}_top_logits`],
  };
}

/** Step of a side in a column, or null in a gap. */
export function stepOf(comparison, side, column) {
  const step = comparison[side === "a" ? "stepA" : "stepB"][column];
  return step === GAP || step === undefined ? null : step;
}

/** Whether positions up to here have the same prefix on both sides, so that numbers may be compared. */
export function samePrefix(comparison, column) {
  return !comparison.otherPrompts && (comparison.split === null || column <= comparison.split);
}

/** log Σ exp(logit) of a row, from the taken token's logit and log-probability. */
export function logPartition(side, step) {
  return side.logit[step] - side.logprob[step];
}

/** The top list of a step: rank from 0, id, logit, probability. A recorded list may end before the longest one does. */
export function topList(side, step) {
  const rows = [];
  const partition = logPartition(side, step);
  for (let rank = 0; rank < side.k; rank += 1) {
    const logit = side.topLogits[step * side.k + rank];
    if (Number.isNaN(logit) && side.topIds[step * side.k + rank] < 0) break;
    rows.push({ rank, id: side.topIds[step * side.k + rank], logit, probability: Math.exp(logit - partition) });
  }
  return rows;
}

/**
 * Both top lists of one step, a row an id, by the better of its two ranks; a side that lacks the id has null.
 */
export function joinTop(listA, listB) {
  const rows = new Map();
  for (const entry of listA) rows.set(entry.id, { id: entry.id, a: entry, b: null });
  for (const entry of listB) {
    const row = rows.get(entry.id);
    if (row) row.b = entry;
    else rows.set(entry.id, { id: entry.id, a: null, b: entry });
  }
  const best = (row) => Math.min(row.a?.rank ?? Infinity, row.b?.rank ?? Infinity);
  return [...rows.values()].sort((x, y) => best(x) - best(y) || (x.a?.rank ?? Infinity) - (y.a?.rank ?? Infinity));
}
