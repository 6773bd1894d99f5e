"""The precision ladder: does the difference vanish when the same two configurations compute in a higher precision?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from divexplore.comparison.decode_paths import OF_CHOICE, differing_paths
from divexplore.comparison.drift import epsilon
from divexplore.engine.clean64 import fits, raised, rung_mode
from divexplore.engine.isolated import needs_isolation, run_isolated
from divexplore.engine.rowfile import RowFile
from divexplore.engine.run import decode
from divexplore.ulp import EXPLICIT_BITS, UNIT_ROUNDOFF

if TYPE_CHECKING:
    from divexplore.config import RunConfig
    from divexplore.models.model import Model, Prompt
    from divexplore.trace import Trace

__all__ = ["NEGLIGIBLE", "Pair", "TopRung", "climb", "coarser", "differing_knobs", "lasting_steps", "structural_part"]

NEGLIGIBLE = 2.0**-40
"""Of max |logit|: what rounding in clean fp64 may move."""

_VACUOUS = {
    "float64": {"dtype", "float32_matmul_precision", "mkldnn", "onednn_max_cpu_isa"},
    "float32": {"dtype"},
}
"""Knobs that do nothing on a rung: that what differs in them alone vanishes there shows nothing."""

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

    @property
    def isolated(self) -> bool:
        """Whether both sides run in fresh processes, since one of them has a setting that is read at start."""
        return needs_isolation(self.config_a, self.config_b)

    def decode(self, config: RunConfig, steps: int, **options: Any) -> Trace:
        """`divexplore.engine.run.decode` of this pair's prompt, where the pair runs: here, or in a fresh process."""
        run = run_isolated if self.isolated else decode
        return run(self.model, self.prompt, config, steps, **options)


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
    apart = {"decode"} if differing_paths(a, b) else set()  # older records do not name theirs
    names = set(a.effective) - _INERT - {"decode"}
    return apart | {name for name in names if a.effective[name] != b.effective.get(name)}


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
    native = [str(trace.effective["dtype"]) for trace in (pair.a, pair.b)]
    if not above(native, dtype) and set(native) != {"float64"}:
        return f"the pair computes in {' and '.join(dict.fromkeys(native))}, {dtype} is no rung above it"
    nets = {config: pair.model.instance(config.dtype, config.device) for config in (pair.config_a, pair.config_b)}
    if not fits(nets[pair.config_a], getattr(torch, dtype)):
        return f"a copy of the model in {dtype} does not fit into memory"
    knobs = differing_knobs(pair.a, pair.b) - OF_CHOICE  # tokens are given here, nothing is chosen
    # of two dtypes, B also runs with A's weights where its own are rounded otherwise: the rounding is no knob
    apart = native[0] != native[1] and not _equal_values(nets[pair.config_a], nets[pair.config_b])
    with RowFile() as top_rows:
        measured = _Measured(rows_a, rows_b, top_rows, split, (pair.a.token_ids, pair.b.token_ids))
        runs = [("A", pair.config_a, measured.see_a)]
        runs += [("B", pair.config_a, measured.see_same)] if apart else []
        one_net = nets[pair.config_b] is nets[pair.config_a]  # not so on two devices
        runs += [("B", pair.config_a if one_net else pair.config_b, measured.see_b)]
        top: Any = None
        held: RunConfig | None = None
        for side, weights, see in runs:
            if held != weights and not pair.isolated:
                top = None  # one raised copy in memory at a time
                top, held = raised(nets[weights], getattr(torch, dtype)), weights
            failed = _forced(pair, side, weights, covered, dtype, top, see, watch(f"{side} in {dtype}"))
            if failed is not None:
                return f"the rung {dtype} could not run: {failed}"
    return TopRung(
        dtype=dtype,
        vacuous=bool(knobs) and knobs <= _VACUOUS[dtype],
        epsilon=measured.same if apart else measured.own,
        own=measured.own,
        e_a=measured.e_a,
        e_b=measured.e_b,
        largest=measured.largest,
        preferences=(measured.crossed["A"], measured.crossed["B"]) if len(measured.crossed) == 2 else None,
    )


def _equal_values(a: Any, b: Any) -> bool:
    """Whether two models hold the same numbers, whatever their dtypes; not where they live on two devices."""
    pairs = zip(a.parameters(), b.parameters(), strict=True)
    return all(p.device == q.device and torch.equal(p.double(), q.double()) for p, q in pairs)


def _forced(
    pair: Pair,
    side: str,
    weights: RunConfig,
    covered: int,
    dtype: str,
    top: Any,
    see: Callable[[int, torch.Tensor], None],
    watched: dict[str, Any],
) -> str | None:
    """One side on A's tokens on a rung, with the weights that the configuration `weights` ran with; why it failed."""
    config, own = (pair.config_a, pair.a) if side == "A" else (pair.config_b, pair.b)
    where: dict[str, Any] = {"net": top, "within": rung_mode(dtype)}
    if pair.isolated:
        where = {"rung": dtype, "weights": weights.dtype}
    trace = pair.decode(
        config,
        covered,
        forced=pair.a.token_ids[:covered],
        fillers=own,
        on_row=lambda step, row, token: see(step, row.cpu()),
        **where,
        **watched,
    )
    if trace.finish_reason == "invalid":
        return f"{side} in {dtype} gave non-finite logits"
    return trace.meta["error"] or ("it was stopped" if len(trace) < covered else None)


class _Measured:
    """What the rows of a rung show, step by step, against each other and against the pair's own rows."""

    def __init__(
        self, rows_a: RowFile, rows_b: RowFile, top: RowFile, split: int | None, tokens: tuple[list[int], list[int]]
    ) -> None:
        self._rows_a, self._rows_b, self._top, self._split, self._tokens = rows_a, rows_b, top, split, tokens
        self.same: list[float] = []
        self.own: list[float] = []
        self.e_a: list[float] = []
        self.e_b: list[float] = []
        self.largest: list[float] = []
        self.crossed: dict[str, tuple[float, float]] = {}

    def see_a(self, step: int, row: torch.Tensor) -> None:
        self._top.append(row)
        self.e_a.append(epsilon(self._rows_a.read(step), row))
        self.largest.append(float(row[torch.isfinite(row)].abs().max()))
        self._cross("A", step, row)

    def see_same(self, step: int, row: torch.Tensor) -> None:
        self.same.append(epsilon(self._top.read(step), row))

    def see_b(self, step: int, row: torch.Tensor) -> None:
        self.own.append(epsilon(self._top.read(step), row))
        self.e_b.append(epsilon(self._rows_b.read(step), row))
        self._cross("B", step, row)

    def _cross(self, side: str, step: int, row: torch.Tensor) -> None:
        if step == self._split:
            first, second = (tokens[step] for tokens in self._tokens)
            self.crossed[side] = float(row[first]), float(row[second])


def structural_part(top: TopRung, pair_epsilon: list[float], pair_dtype: str, split: int | None) -> float | None:
    """The part of epsilon that does not vanish on the top rung, logits; ``None`` where all of it does.

    It vanishes where ``eps(top) <= 2**10 * u_top / u_pair * rounding``, or ``eps(top) <= 2**-40 * max|logit|``, at the
    split and at the top rung's own maximum. The rounding is the pair's largest epsilon or noise floor, whichever is
    larger: that of both sides may cancel by chance, at one step or, where both round alike, at all of them. A pair that
    computes in fp64 has only the second bound; clean fp64 is no finer than it, yet free of fp32 casts.

    Parameters
    ----------
    pair_epsilon
        Of the pair in its own dtype, a value a covered step.
    pair_dtype
        The coarser of the pair's dtypes.
    """
    lasting = lasting_steps(top, pair_epsilon, pair_dtype)
    steps = range(len(top.epsilon))
    looked_at = {max(steps, key=lambda step: top.epsilon[step])} if steps else set()
    if split is not None:
        looked_at.add(split)
    return max((top.epsilon[step] for step in lasting if step in looked_at), default=None)


def lasting_steps(top: TopRung, pair_epsilon: list[float], pair_dtype: str) -> list[int]:
    """The steps whose epsilon does not vanish on the top rung, as `structural_part` says it."""
    if not top.epsilon:
        return []
    shrink = 2.0**10 * UNIT_ROUNDOFF[top.dtype] / UNIT_ROUNDOFF[pair_dtype] if pair_dtype != top.dtype else 0.0
    floor = max(map(sum, zip(top.e_a, top.e_b, strict=True)))
    bound = shrink * max(floor, *pair_epsilon[: len(top.epsilon)])
    return [
        step
        for step, (epsilon, largest) in enumerate(zip(top.epsilon, top.largest, strict=True))
        if not (epsilon <= bound or epsilon <= NEGLIGIBLE * largest)
    ]
