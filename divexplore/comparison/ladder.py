"""The precision ladder: does the difference vanish when the same two configurations compute in a higher precision?"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from divexplore.comparison.drift import epsilon
from divexplore.engine.clean64 import CleanFloat64, fits, raised
from divexplore.engine.rowfile import RowFile
from divexplore.engine.run import decode
from divexplore.ulp import EXPLICIT_BITS, UNIT_ROUNDOFF

if TYPE_CHECKING:
    from divexplore.config import RunConfig
    from divexplore.models.model import Model, Prompt
    from divexplore.trace import Trace

__all__ = ["Pair", "TopRung", "climb", "coarser", "differing_knobs", "structural_part"]

_VACUOUS = {
    "float64": {"dtype", "float32_matmul_precision", "mkldnn"},
    "float32": {"dtype"},
}
"""Knobs that do nothing on a rung: what differs in them alone is not judged there."""

_INERT = {"pads", "mask", "computing_dtype"}  # consequences of other knobs, not knobs


@dataclass(frozen=True)
class Pair:
    """Two configurations of one prompt, with the free runs that say what every row of both batches was fed."""

    model: Model
    prompt: Prompt
    config_a: RunConfig
    config_b: RunConfig
    a: Trace
    b: Trace


@dataclass(frozen=True)
class TopRung:
    """Both configurations on A's tokens in a higher precision, a value a covered step; all in logits.

    `epsilon` is between the two configurations with the same weights; `own` with each side's own rounded weights, which
    differs from it for a pair of dtypes; `e_a` and `e_b` are the rounding that each side really commits; `largest` is
    max |logit| of A's raised row. `preferences` are A's and B's raised logits of (A's token, B's token) at the split.
    """

    dtype: str
    vacuous: bool
    epsilon: list[float]
    own: list[float]
    e_a: list[float]
    e_b: list[float]
    largest: list[float]
    preferences: tuple[tuple[float, float], tuple[float, float]] | None


def differing_knobs(a: Trace, b: Trace) -> set[str]:
    """Names of the effective settings in which two runs differ."""
    return {name for name in a.effective if name not in _INERT and a.effective[name] != b.effective.get(name)}


def coarser(a: str, b: str) -> str:
    """The dtype with fewer bits of significand."""
    return min(a, b, key=EXPLICIT_BITS.__getitem__)


def above(native: list[str], dtype: str) -> bool:
    """Whether `dtype` is wider than the coarser of a pair's dtypes and holds the values of both."""
    bits = [EXPLICIT_BITS[name] for name in native]
    return min(bits) < EXPLICIT_BITS[dtype] and max(bits) <= EXPLICIT_BITS[dtype]


def climb(
    pair: Pair,
    rows_a: RowFile,
    rows_b: RowFile,
    covered: int,
    split: int | None,
    *,
    dtype: str = "float64",
    watch: Callable[[str], dict[str, Any]] = lambda side: {},
) -> TopRung | str:
    """Run both configurations on A's tokens in `dtype`, with the weights the pair ran with; or say why it cannot be.

    Parameters
    ----------
    rows_a, rows_b
        Raw rows of A and of B forced on A's tokens.
    covered
        Steps to run.
    split
        The first divergence, or ``None``.
    watch
        Gives the ``progress`` and ``stop`` of a side's run.
    """
    wide = getattr(torch, dtype)
    native = [str(trace.effective["dtype"]) for trace in (pair.a, pair.b)]
    if not above(native, dtype) and set(native) != {"float64"}:
        return f"the pair computes in {' and '.join(dict.fromkeys(native))}, {dtype} is no rung above it"
    nets = [pair.model.instance(config.dtype, config.device) for config in (pair.config_a, pair.config_b)]
    if not fits(nets[0], wide):
        return f"a copy of the model in {dtype} does not fit into memory"
    knobs = differing_knobs(pair.a, pair.b)
    two_dtypes = nets[0] is not nets[1]
    others = knobs - {"dtype"} if two_dtypes else set()
    split_tokens = None if split is None else (pair.a.token_ids[split], pair.b.token_ids[split])
    tokens = pair.a.token_ids[:covered]
    mode = CleanFloat64 if dtype == "float64" else contextlib.nullcontext

    def forced(side: str, net: Any, see: Callable[[int, torch.Tensor], None]) -> str | None:
        config, own = (pair.config_a, pair.a) if side == "A" else (pair.config_b, pair.b)
        trace = decode(
            pair.model,
            pair.prompt,
            config,
            covered,
            forced=tokens,
            fillers=own,
            net=net,
            within=mode,
            on_row=lambda step, row, token: see(step, row),
            **watch(f"{side} in {dtype}"),
        )
        if trace.finish_reason == "invalid":
            return f"{side} in {dtype} gave non-finite logits"
        return trace.meta["error"] or ("it was stopped" if len(trace) < covered else None)

    same: list[float] = []
    own: list[float] = []
    e_a: list[float] = []
    e_b: list[float] = []
    largest: list[float] = []
    crossed: dict[str, tuple[float, float]] = {}

    def keep(side: str, step: int, row: torch.Tensor) -> None:
        if step == split and split_tokens is not None:
            crossed[side] = float(row[split_tokens[0]]), float(row[split_tokens[1]])

    with RowFile() as top_rows:

        def see_a(step: int, row: torch.Tensor) -> None:
            row = row.cpu()
            top_rows.append(row)
            e_a.append(epsilon(rows_a.read(step), row))
            largest.append(float(row[torch.isfinite(row)].abs().max()))
            keep("A", step, row)

        def see_b(step: int, row: torch.Tensor) -> None:
            row = row.cpu()
            own.append(epsilon(top_rows.read(step), row))
            e_b.append(epsilon(rows_b.read(step), row))
            keep("B", step, row)

        top = raised(nets[0], wide)
        failed = forced("A", top, see_a)
        if failed is None and others:  # B's knobs with A's weights: what remains is not the weights' rounding
            failed = forced("B", top, lambda step, row: same.append(epsilon(top_rows.read(step), row.cpu())))
        if two_dtypes:
            del top
            top = raised(nets[1], wide) if failed is None else None
        failed = failed or forced("B", top, see_b)
    if failed is not None:
        return f"the rung {dtype} could not run: {failed}"
    return TopRung(
        dtype=dtype,
        vacuous=bool(knobs) and knobs <= _VACUOUS[dtype],
        epsilon=same if two_dtypes and others else own,
        own=own,
        e_a=e_a,
        e_b=e_b,
        largest=largest,
        preferences=(crossed["A"], crossed["B"]) if len(crossed) == 2 else None,
    )


def structural_part(top: TopRung, pair_epsilon: list[float], pair_dtype: str, split: int | None) -> float | None:
    """The part of epsilon that does not vanish on the top rung, logits; ``None`` where all of it does.

    It vanishes where ``eps(top) <= 2**10 * u_top / u_pair * eps(pair)``, or ``eps(top) <= 2**-40 * max|logit|``, at the
    split and at the top rung's own maximum, with the pair's largest epsilon: at one step its rounding may cancel by
    chance. A pair that computes in fp64 has only the second bound; clean fp64 is no finer than it, yet free of fp32 casts.

    Parameters
    ----------
    pair_epsilon
        Of the pair in its own dtype, a value a covered step.
    pair_dtype
        The coarser of the pair's dtypes.
    """
    if top.vacuous or not top.epsilon:
        return None
    steps = range(len(top.epsilon))
    shrink = 2.0**10 * UNIT_ROUNDOFF[top.dtype] / UNIT_ROUNDOFF[pair_dtype] if pair_dtype != top.dtype else 0.0
    looked_at = {max(steps, key=lambda step: top.epsilon[step])} | ({split} if split in steps else set())
    bound = shrink * max(pair_epsilon[: len(top.epsilon)])
    left = [
        top.epsilon[s]
        for s in looked_at
        if not (top.epsilon[s] <= bound or top.epsilon[s] <= 2.0**-40 * top.largest[s])
    ]
    return max(left, default=None)
