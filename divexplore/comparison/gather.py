"""Gather the evidence for a pair of free runs: B forced on A's tokens, then both on the top rung."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from divexplore.comparison.cascade import cascade_of
from divexplore.comparison.drift import RowDrift, row_drift
from divexplore.comparison.evidence import Evidence, Flip, Referee, Rung
from divexplore.comparison.ladder import (
    NEGLIGIBLE,
    Pair,
    TopRung,
    above,
    climb,
    coarser,
    differing_knobs,
    lasting_steps,
    structural_part,
)
from divexplore.comparison.landmarks import landmarks
from divexplore.engine.rowfile import RowFile
from divexplore.ulp import UNIT_ROUNDOFF

if TYPE_CHECKING:
    import polars as pl

    from divexplore.trace import Trace

__all__ = ["covered_steps", "forced_drift", "gather"]

BEYOND_SPLIT = 8
"""Steps covered by the top rung after the split."""

WITHOUT_SPLIT = 32
"""Steps covered by the top rung where no token differs."""

JUMP = 8.0
"""By how much epsilon may grow beyond the covered steps before the top rung has to follow it there."""

_BLIND = "with fp32 as the top rung a structural part below 1/64 of the noise floor cannot be seen"

Watch = Callable[[str], dict[str, Any]]


def gather(
    pair: Pair, rows_a: RowFile, columns: pl.DataFrame, split: int | None, *, everything: bool, watch: Watch
) -> Evidence:
    """Measure what a verdict needs.

    Parameters
    ----------
    rows_a
        A's raw rows, of the free run.
    columns
        The aligned streams.
    split
        The first divergence, or ``None``.
    everything
        Whether fp32 is run as well as clean fp64, and both cover all steps.
    watch
        Gives the ``progress`` and ``stop`` of a run, by its label.
    """
    with RowFile() as rows_b:
        forced, flips, failed = forced_drift(pair, rows_a, rows_b, watch("B on A's tokens"))
        epsilons = forced["epsilon"].to_list()
        covered = len(epsilons) if everything else covered_steps(epsilons, split)
        missing = failed or ("nothing was recorded to compare" if covered == 0 else None)
        tops: list[TopRung] = []
        if missing is None:
            tops, missing = _climb(pair, rows_a, rows_b, covered, split, everything, watch)
    cascade = None if split is None else cascade_of(pair.a, pair.b, columns, split, flips)
    own = _own_rung(pair, epsilons, covered, split)
    if not tops:
        return Evidence(forced=forced, cascade=cascade, ladder=own, missing=missing)
    top = tops[-1]
    dtype = coarser(pair.a.dtype, pair.b.dtype)
    structural = structural_part(top, epsilons, dtype, split)
    if structural is not None:
        missing = None  # it is seen, whatever the rung was expected to show
    elif top.vacuous:
        knobs = ", ".join(sorted(differing_knobs(pair.a, pair.b)))
        missing = f"what differs ({knobs}) does nothing in {top.dtype}, so that rung shows nothing"
    elif dtype == top.dtype:
        missing = f"the pair computes in {dtype} already, no rung lies above it"
    notes = [_BLIND] if top.dtype == "float32" and not top.vacuous else []
    if structural is not None:
        notes += landmarks(pair, lasting_steps(top, epsilons, dtype)[0])
    return Evidence(
        forced=forced,
        cascade=cascade,
        floor=_floor(top),
        ladder=(*own, *(_rung(top, split, shows=structural is not None) for top in tops)),
        referee=_referee(pair, top, split),
        structural=structural,
        flip_survives=None if top.preferences is None else _survives(top),
        weight_rounding=max(top.own) if "dtype" in differing_knobs(pair.a, pair.b) else None,
        missing=missing,
        notes=tuple(notes),
        routed=_routed(pair),
    )


def covered_steps(epsilons: list[float], split: int | None) -> int:
    """How many steps the top rung covers: to the split and some beyond, and to where the drift jumps later, if it does.

    Rounding goes on as it began; what begins late, at the edge of a window or of a context, does not.
    """
    usual = min(len(epsilons), WITHOUT_SPLIT if split is None else split + 1 + BEYOND_SPLIT)
    most = JUMP * max(epsilons[:usual], default=0.0)
    return next((step + 1 for step in range(usual, len(epsilons)) if epsilons[step] > most), usual)


def _climb(
    pair: Pair, rows_a: RowFile, rows_b: RowFile, covered: int, split: int | None, everything: bool, watch: Watch
) -> tuple[list[TopRung], str | None]:
    """The rungs that could run, the top last, and why there is none."""
    native = [str(trace.effective["dtype"]) for trace in (pair.a, pair.b)]
    top = climb(pair, rows_a, rows_b, covered, split, watch=watch)
    missing = top if isinstance(top, str) else None
    tops = [] if isinstance(top, str) else [top]
    stop = watch("fp32").get("stop")
    if stop is not None and stop():  # another rung would only be stopped in its turn
        return tops, missing
    if above(native, "float32") and (everything or missing is not None):  # where fp64 cannot run, fp32 is the top
        lower = climb(pair, rows_a, rows_b, covered, split, dtype="float32", watch=watch)
        if not isinstance(lower, str):
            tops, missing = [lower, *tops], None
    return tops, missing


def forced_drift(
    pair: Pair, rows_a: RowFile, rows_b: RowFile, watched: dict[str, Any]
) -> tuple[pl.DataFrame, tuple[Flip, ...], str | None]:
    """B forced on A's tokens in the same shapes: the drift of every step without the cascade.

    Returns
    -------
    The table of `Evidence.forced`, the flips, and why the run ended early, or ``None``.
    """
    import polars as pl

    drifts: list[RowDrift] = []
    flips: list[Flip] = []

    def see(step: int, row: torch.Tensor, token: int) -> None:
        row = row.cpu()
        rows_b.append(row)
        drift = row_drift(rows_a.read(step), row, token)
        drifts.append(drift)
        if not drift.top1_agree:  # of raw rows: what a penalty or a draw makes of equal ones is no flip
            wide = row.double()
            gap = float(wide.max() - wide[best[step]])
            flips.append(Flip(step=step, gap=gap, epsilon=drift.epsilon))

    tokens, best = pair.a.token_ids, pair.a.top_ids[:, 0].tolist()
    trace = _forced_on(pair, tokens, see, watched) if tokens else None
    schema = {
        "step": pl.Int32,
        "epsilon": pl.Float64,
        "kld": pl.Float64,
        "top1_agree": pl.Boolean,
        "delta_p": pl.Float64,
        "rank": pl.Int32,
    }
    columns = {name: [getattr(drift, name) for drift in drifts] for name in schema if name != "step"}
    table = pl.DataFrame({"step": range(len(drifts)), **columns}, schema=schema)
    failed = None
    if trace is not None and len(trace) < len(tokens):
        failed = f"B on A's tokens ended at step {len(trace)}: {trace.meta['error'] or trace.finish_reason}"
    return table, tuple(flips), failed


def _forced_on(pair: Pair, tokens: list[int], see: Any, watched: dict[str, Any]) -> Trace:
    return pair.decode(pair.config_b, len(tokens), forced=tokens, fillers=pair.b, on_row=see, **watched)


def _own_rung(pair: Pair, epsilons: list[float], covered: int, split: int | None) -> tuple[Rung, ...]:
    if covered == 0:
        return ()
    at_split = epsilons[split] if split is not None and split < covered else None
    dtype = coarser(pair.a.dtype, pair.b.dtype)
    return (Rung(dtype=dtype, epsilon_at_split=at_split, epsilon_max=max(epsilons[:covered])),)


def _rung(top: TopRung, split: int | None, *, shows: bool) -> Rung:
    at_split = top.epsilon[split] if split is not None and split < len(top.epsilon) else None
    vacuous = top.vacuous and not shows
    return Rung(dtype=top.dtype, epsilon_at_split=at_split, epsilon_max=max(top.epsilon), vacuous=vacuous)


def _floor(top: TopRung) -> pl.DataFrame:
    import polars as pl

    floor = [x + y for x, y in zip(top.e_a, top.e_b, strict=True)]
    return pl.DataFrame(
        {"step": range(len(floor)), "e_a": top.e_a, "e_b": top.e_b, "floor": floor, "top": top.own},
        schema={"step": pl.Int32, **dict.fromkeys(("e_a", "e_b", "floor", "top"), pl.Float64)},
    )


def _routed(pair: Pair) -> bool:
    config = pair.model.config.get_text_config(decoder=True)
    names = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")
    return any((getattr(config, name, None) or 0) > 1 for name in names)


def _survives(top: TopRung) -> bool:
    assert top.preferences is not None
    (a_first, a_second), (b_first, b_second) = top.preferences
    return a_first > a_second and b_second > b_first


def _referee(pair: Pair, top: TopRung, split: int | None) -> Referee | None:
    if split is None or top.preferences is None:
        return None
    gaps = [first - second for first, second in top.preferences]  # above 0: A's token
    token = (pair.a if gaps[0] > 0 else pair.b).token_ids[split]
    agree = (gaps[0] > 0) == (gaps[1] > 0)
    rounding = NEGLIGIBLE if top.dtype == "float64" else 16 * UNIT_ROUNDOFF[top.dtype]
    least = max(2 * top.own[split], rounding * top.largest[split])  # where the sides agree in bits, they still round
    return Referee(
        token_id=token,
        text=pair.model.token_text(token),
        gap=abs(gaps[0]),
        undecided=not agree or abs(gaps[0]) < least,
    )
