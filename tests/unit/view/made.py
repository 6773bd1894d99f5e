"""Comparisons made by hand, with the shape of real ones, so that the view can be tested without a model."""

from __future__ import annotations

import numpy as np
import polars as pl

from divexplore.comparison.align import align, first_divergence
from divexplore.comparison.comparison import Comparison, Side, Split
from divexplore.comparison.evidence import Cascade, Evidence, Flip, Referee, Rung
from divexplore.comparison.verdict import Judgement, Verdict
from divexplore.trace import FORMAT, Trace, trace_schema
from divexplore.ulp import spacing

__all__ = ["NASTY", "comparison", "story"]

NASTY = (
    "</script>",
    '<img src=x onerror="window.harmed = 1">',
    "<b>bold</b>",
    "\u202eevil",
    "\u05e9\u05dc\u05d5\u05dd",
    "\U0001f469\u200d\U0001f680",
    "\u200b",
    "\u0301",
    "\\xe2\\x82",
    "\ufffd",
    "\n",
    "\t",
    "   ",
    "&amp;",
    "${7*7}",
    "a" * 60,
)
"""Token texts that break careless pages: markup, direction marks, invisible characters, half a UTF-8 character."""

_WORDS = "the a giant old man went down to his little garden saw that her hair was gold then he said".split(" ")  # noqa: SIM905


def story(n_steps: int, seed: int = 0) -> list[int]:
    """Token ids of a made-up stream, all below ``len(_WORDS)``."""
    return np.random.default_rng(seed).integers(0, len(_WORDS), n_steps).tolist()


def comparison(
    n_steps: int = 60,
    split: int | None = 40,
    *,
    drift: int = 12,
    k: int = 20,
    texts: tuple[str, ...] = (),
    b_steps: int | None = None,
    dtype: str = "bfloat16",
    evidence: bool = False,
) -> Comparison:
    """A comparison whose streams part at `split` and meet again later.

    Parameters
    ----------
    texts
        Token texts that A takes in turn from step 3 on, both sides where the streams agree.
    b_steps
        Steps of B; after the split B says two tokens more than A, so that the alignment has gaps.
    evidence
        Whether forced steps, floor, ladder, referee and cascade come with it.
    """
    rng = np.random.default_rng(7)
    vocabulary = [f" {word}" for word in _WORDS] + list(texts) + [f" w{i}" for i in range(3 * k)]
    a = story(n_steps)
    for place, token in enumerate(range(len(_WORDS), len(_WORDS) + len(texts))):
        if 3 + place < n_steps:
            a[3 + place] = token
    b = list(a)
    if split is not None:
        b[split] = (a[split] + 1) % len(_WORDS)
        b[split + 1 : split + 4] = [(t + 3) % len(_WORDS) for t in a[split + 1 : split + 3]] + [1, 2, 3]
        b = b[: b_steps or n_steps]
    first = first_divergence(a, b)
    common = min(len(a), len(b)) if first is None else first + 1
    trace_a = _trace(a, rng, vocabulary, k, dtype, 1, first)
    trace_b = _trace(
        b,
        rng,
        vocabulary,
        k,
        dtype,
        8,
        first,
        like=trace_a,
        common=common,
        tie_with=None if first is None else a[first],
    )
    epsilon = np.where(np.arange(common) >= drift, spacing(9.0, dtype) * rng.choice([0.5, 1, 2], common), 0.0)
    steps = pl.DataFrame(
        {"step": range(common), "epsilon": epsilon, "differs": epsilon > 0},
        schema={"step": pl.Int32, "epsilon": pl.Float64, "differs": pl.Boolean},
    )
    made = None if first is None else _split(trace_a, trace_b, first, float(epsilon[first]))
    return Comparison(
        a=trace_a,
        b=trace_b,
        steps=steps,
        columns=align(a, b),
        judgement=_judgement(made, dtype),
        split=made,
        evidence=_evidence(made, len(a)) if evidence and made else None,
    )


def _trace(
    tokens: list[int],
    rng: np.random.Generator,
    vocabulary: list[str],
    k: int,
    dtype: str,
    batch: int,
    split: int | None,
    like: Trace | None = None,
    common: int = 0,
    tie_with: int | None = None,
) -> Trace:
    n = len(tokens)
    unit = float(spacing(9.0, dtype))
    ids = np.empty((n, k), dtype=np.int32)
    logits = np.empty((n, k))
    for step, token in enumerate(tokens):
        others = rng.permutation([i for i in range(len(vocabulary)) if i != token])[: k - 1]
        ids[step] = [token, *others]
        drop = rng.exponential(1.6) + np.concatenate([[0], rng.exponential(0.5, k - 2).cumsum()])
        logits[step] = np.round((9.25 - np.concatenate([[0], drop])) / unit) * unit
        if like is not None and step < common and step != split:
            ids[step], logits[step] = (
                like.top_ids[step],
                like.top_logits[step] + unit * rng.integers(-1, 2) * (step % 3 == 0),
            )
        if step == split:
            logits[step, 1] = logits[step, 0] - (unit if like is None else 0)
            second = (token + 1) % len(_WORDS) if tie_with is None else tie_with
            ids[step][ids[step] == second] = ids[step, 1]  # no id twice in a list
            ids[step, 1] = second
    logsumexp = np.log(np.exp(logits).sum(-1)) + 0.05
    margin = logits[:, 0] - logits[:, 1]
    columns = {
        "step": range(n),
        "phase": ["prefill" if step == 0 else "decode" for step in range(n)],
        "token_id": tokens,
        "bytes": [b"\xe2\x82" if vocabulary[t] == "\\xe2\\x82" else vocabulary[t].encode() for t in tokens],
        "text": [vocabulary[t] for t in tokens],
        "logit": logits[:, 0],
        "logprob": logits[:, 0] - logsumexp,
        "margin": margin,
        "margin_ulps": margin / spacing(np.abs(logits[:, :2]).max(-1), dtype),
        "exact_tie": margin == 0,
        "entropy": rng.uniform(0.2, 3, n),
        "top_ids": ids,
        "top_logits": logits,
        "row_hash": [bytes([step % 256]) * 16 for step in range(n)],
        "seconds": [0.01] * n,
    }
    return Trace(pl.DataFrame(columns, schema=trace_schema(k)), _meta(batch, dtype, vocabulary))


def _meta(batch: int, dtype: str, vocabulary: list[str]) -> dict[str, object]:
    return {
        "format": FORMAT,
        "model": {
            "name": "made-up",
            "architecture": "None",
            "fingerprint": None,
            "vocab_size": len(vocabulary),
            "context_length": 8192,
        },
        "prompt": {"text": "The giant", "ids": [1, 2], "chat": False},
        "requested": {"dtype": dtype, "batch_size": batch},
        "effective": {
            "dtype": dtype,
            "device": "cpu",
            "computing_dtype": dtype,
            "batch_size": batch,
            "row": 0,
            "left_pad": 0,
            "pads": [0] * batch,
            "mask": False,
            "attn_implementation": "sdpa",
            "use_cache": True,
            "num_threads": 2,
        },
        "rows": [{"prompt_ids": [1, 2], "pads": 0, "token_ids": []} for _ in range(batch)],
        "texts": {str(i): text for i, text in enumerate(vocabulary)},
        "finish_reason": "length",
        "partial": False,
        "error": None,
        "invalid": None,
        "warnings": [],
        "snapshot": {
            "packages": {"torch": "2.13.0", "transformers": "5.1.0"},
            "python": "3.11.2",
            "processor": "a processor",
            "cpu_capability": "AVX2",
            "devices": [],
            "variables": {},
            "platform": "Linux",
            "cores": 2,
        },
    }


def _split(a: Trace, b: Trace, step: int, epsilon: float) -> Split:
    def side(trace: Trace) -> Side:
        row = trace.table.row(step, named=True)
        names = ("token_id", "text", "logit", "margin", "margin_ulps", "exact_tie")
        gap = row["top_logits"][0] - row["top_logits"][1]
        return Side(**{name: row[name] for name in names}, probability=float(np.exp(row["logprob"])), gap=gap)

    left, right = side(a), side(b)
    return Split(step=step, epsilon=epsilon, pair_swing=left.gap + right.gap, a=left, b=right)


def _evidence(split: Split, n_steps: int) -> Evidence:
    covered = range(min(split.step + 9, n_steps))
    forced = {
        "step": covered,
        "epsilon": [0.125] * len(covered),
        "kld": [0.001 * (step % 5) for step in covered],
        "top1_agree": [step != split.step for step in covered],
        "delta_p": [-0.01] * len(covered),
        "rank": [int(step == split.step) for step in covered],
    }
    flips = tuple(Flip(step=step, gap=0.0625, epsilon=0.125) for step in (split.step, split.step + 5))
    return Evidence(
        forced=pl.DataFrame(forced),
        floor=pl.DataFrame({"step": covered, "floor": [0.35] * len(covered)}),
        ladder=(
            Rung(dtype="bfloat16", epsilon_at_split=split.epsilon, epsilon_max=0.16),
            Rung(dtype="float64", epsilon_at_split=4e-14, epsilon_max=5e-14),
        ),
        referee=Referee(token_id=split.a.token_id, text=split.a.text, gap=0.0159, undecided=False),
        cascade=Cascade(differing_tokens=9, later_tokens=20, rejoins=1, independent_flips=flips, independent_tokens=1),
    )


def _judgement(split: Split | None, dtype: str) -> Judgement:
    if split is None:
        return Judgement(
            verdict=Verdict.DRIFT_ONLY,
            why="No token differs, but the logits do from step 12 on.",
            next="Try more steps.",
        )
    return Judgement(
        verdict=Verdict.NEAR_TIE,
        why=f"The runs part at step {split.step}: A took {split.a.text!r} with a margin of "
        f"{split.a.margin:.4g} logits ({split.a.margin_ulps:.3g} ULP of {dtype}), "
        f"B took {split.b.text!r} from an exact tie at {split.b.logit:.6g}.",
        next="Repeat the pair in float32: rounding shrinks there, a mask or a weight difference does not.",
        inconclusive=True,
        evidence=("epsilon at the split is 0.0625 logits", "epsilon in clean fp64 is 5e-14 logits"),
    )
