// Numbers with their units, and token texts that can be seen.

const VERDICTS = {
  prompt_mismatch: "prompt mismatch",
  measurement: "measurement",
  invalid: "invalid numbers",
  state_leak: "state leak",
  policy: "policy",
  structural: "structural",
  exact_tie: "exact tie",
  near_tie: "near tie",
  drift_only: "drift only",
  identical: "identical",
};

export function verdictWord(name) {
  return VERDICTS[name] ?? name.replaceAll("_", " ");
}

/** Up to `digits` significant digits, powers of ten only where they help; an em dash for what is unknown. */
export function number(value, digits = 4) {
  if (!known(value)) return "—";
  if (!Number.isFinite(value)) return value > 0 ? "∞" : "−∞";
  if (value === 0) return "0";
  const size = Math.abs(value);
  const text =
    size >= 1e-4 && size < 1e6 ? String(Number(value.toPrecision(digits))) : scientific(value, Math.min(digits, 3));
  return text.replace(/^-/, "−"); // a minus as wide as a digit; exponents stay as one would type them
}

function scientific(value, digits) {
  const [mantissa, exponent] = value.toExponential(digits - 1).split("e");
  return `${Number(mantissa)}e${Number(exponent)}`;
}

/** A difference of logits, or of the log-probabilities that a record holds, with its unit: `logits` or `nats`. */
export function amount(value, unit = "logits") {
  return known(value) ? `${number(value)} ${unit}` : "—";
}

function known(value) {
  return value !== null && value !== undefined && !Number.isNaN(value);
}

export function ulps(value, dtype) {
  return `${number(value, 3)} ULP${dtype ? ` (${dtype})` : ""}`;
}

export function probability(value) {
  if (!known(value)) return "—";
  return value >= 0.0001 || value === 0 ? value.toFixed(4) : number(value, 2);
}

/** A logit on the grid of its dtype: six significant digits tell any two bf16 neighbours apart. */
export function logit(value, dtype) {
  return number(value, dtype === "float64" ? 12 : dtype === "float32" ? 8 : 6);
}

const INVISIBLE = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Co}\p{Cn}]/u;
const EACH_INVISIBLE = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Co}\p{Cn}]/gu;
const JOINED_EMOJI = /(?<=[\p{Extended_Pictographic}\uFE0F\u{1F3FB}-\u{1F3FF}])\u200D(?=\p{Extended_Pictographic})/gu;
const NAMED = /^⟨id \d+⟩$/; // what stands for an id that the tokenizer lacks
const KEPT = "\uE000"; // stands for a joiner between emoji while the others are made visible

/**
 * A token's text with nothing invisible left in it.
 * @param {string} text
 * @param {boolean} spaces whether blanks are shown as ␣; a token of blanks only always is
 */
export function visible(text, spaces) {
  if (text === "") return "∅";
  let shown = text;
  if (INVISIBLE.test(shown)) {
    shown = shown
      .replaceAll(KEPT, "⟨E000⟩")
      .replace(JOINED_EMOJI, KEPT)
      .replaceAll("\r", "␍")
      .replaceAll("\n", "⏎")
      .replaceAll("\t", "→|")
      .replace(EACH_INVISIBLE, (c) =>
        c === KEPT ? "\u200D" : `⟨${c.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`,
      );
  }
  if (/^\p{M}/u.test(shown)) shown = `◌${shown}`;
  if ((spaces && !NAMED.test(shown)) || shown.trim() === "") shown = shown.replace(/\p{Zs}/gu, "␣");
  return shown;
}

/** A token in quotes with visible blanks, for sentences and names. */
export function quoted(text) {
  return `“${visible(text, false)}”`;
}
