"""Which fields of a configuration make the difference? One at a time, then delta debugging, over any runner."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from divexplore.comparison.align import first_divergence
from divexplore.config import RunConfig
from divexplore.errors import Refusal

if TYPE_CHECKING:
    from divexplore.trace import Trace

__all__ = ["Effect", "Runner", "Search", "Stopped", "effect_of", "minimise", "mixed", "search"]

Runner = Callable[[RunConfig], "Trace"]
"""Runs one configuration. A `Refusal` or a `RuntimeError` says that this configuration cannot run."""


class Stopped(Exception):
    """Raised by a runner when the person has pressed Stop."""


@dataclass(frozen=True)
class Effect:
    """What a configuration changes against A, on the common steps.

    Parameters
    ----------
    first_drift
        First step whose raw row differs, or ``None``.
    split
        First step whose token differs, or ``None``.
    failed
        Why the configuration could not run, or ``None``.
    """

    first_drift: int | None = None
    split: int | None = None
    failed: str | None = None


@dataclass(frozen=True, kw_only=True)
class Search:
    """What a search found.

    Parameters
    ----------
    fields
        The fields in which A and B differ.
    repeats
        The effect of running A, and B, a second time: ``a`` and ``b``.
    single
        The effect of each field alone, where it was tried.
    minimal_flip, minimal_drift
        A 1-minimal set of fields that makes the tokens part on these steps, and one that makes any drift; ``None`` where B
        does neither, or where the search did not come so far.
    runs
        Runs that were made, those that failed included.
    stopped
        Whether it was stopped.
    """

    fields: tuple[str, ...]
    repeats: Mapping[str, Effect]
    single: Mapping[str, Effect] = field(default_factory=dict)
    minimal_flip: tuple[str, ...] | None = None
    minimal_drift: tuple[str, ...] | None = None
    runs: int = 0
    stopped: bool = False

    @property
    def repeatable(self) -> bool:
        """Whether each arm gave equal bits twice; without that no field can be blamed."""
        return all(found == Effect() for found in self.repeats.values())


def search(run: Runner, a: RunConfig, b: RunConfig, first: tuple[Trace, Trace] | None = None) -> Search:
    """Run both arms twice, then each differing field alone, then reduce the set that flips and the set that drifts.

    Parameters
    ----------
    first
        Traces of A and B that are at hand, which saves two runs. Every comparison is made on the common steps, so later
        runs may be shorter.
    """
    runs = 0
    known: dict[RunConfig, Effect] = {}
    fields = a.difference(b)
    found: dict[str, Any] = {"fields": fields, "repeats": {}}

    def attempt(config: RunConfig) -> Trace:
        nonlocal runs
        runs += 1
        return run(config)

    def effect(names: Sequence[str]) -> Effect:
        try:
            config = mixed(a, b, names)
        except Refusal as refusal:
            return Effect(failed=str(refusal))
        if config not in known:
            try:
                known[config] = effect_of(trace_a, attempt(config))
            except (Refusal, RuntimeError) as error:  # it would fail again
                known[config] = Effect(failed=str(error))
        return known[config]

    try:
        trace_a, trace_b = first or (attempt(a), attempt(b))
        again_a, again_b = attempt(a), attempt(b)
        found["repeats"] = {"a": effect_of(trace_a, again_a), "b": effect_of(trace_b, again_b)}
        whole = known[b] = effect_of(trace_a, trace_b)
        known[a] = Effect()
        if all(repeat == Effect() for repeat in found["repeats"].values()):
            single = found["single"] = {}
            for name in fields:
                single[name] = effect([name])
            if whole.split is not None:
                found["minimal_flip"] = minimise(fields, lambda names: effect(names).split is not None)
            if whole.first_drift is not None:
                found["minimal_drift"] = minimise(fields, lambda names: effect(names).first_drift is not None)
    except Stopped:
        found["stopped"] = True
    return Search(**found, runs=runs)


def minimise(fields: Sequence[str], holds: Callable[[Sequence[str]], bool]) -> tuple[str, ...]:
    """A 1-minimal subset of `fields` for which `holds` is true: without any one of its members it is not.

    A single field that suffices is taken at once. Otherwise delta debugging (Zeller and Hildebrandt 2002). Rounding is not
    monotone, so other minimal sets may exist, a smaller one among them.

    Parameters
    ----------
    fields
        A set for which `holds` is true.
    holds
        Whether a subset has the effect; asked more than once of the same one.
    """
    for name in fields:
        if holds([name]):
            return (name,)
    left, pieces = list(fields), 2
    while len(left) > 1:
        size = -(-len(left) // pieces)
        chunks = [left[start : start + size] for start in range(0, len(left), size)]
        rests = [[name for name in left if name not in chunk] for chunk in chunks]
        smaller = next((chunk for chunk in chunks if len(chunk) < len(left) and holds(chunk)), None)
        if smaller is not None:
            left, pieces = smaller, 2
            continue
        rest = next((rest for rest in rests if rest and holds(rest)), None)
        if rest is not None:
            left, pieces = rest, max(pieces - 1, 2)
        elif pieces >= len(left):
            break
        else:
            pieces = min(2 * pieces, len(left))
    return tuple(left)


def mixed(a: RunConfig, b: RunConfig, names: Sequence[str]) -> RunConfig:
    """A with some fields of B.

    Raises
    ------
    Refusal
        Where these fields make no sense without others, such as a row beyond A's batch.
    """
    return a.replace(**{name: getattr(b, name) for name in names})


def effect_of(a: Trace, other: Trace) -> Effect:
    """What `other` changes against `a`, on the common steps and up to the split.

    Rows of one computing dtype are compared by their hashes, others by the values of their top lists.
    """
    split = first_divergence(a.token_ids, other.token_ids)
    steps = min(len(a), len(other)) if split is None else split + 1
    if a.dtype == other.dtype:
        same = [x == y for x, y in zip(a.table["row_hash"][:steps], other.table["row_hash"][:steps], strict=True)]
    else:
        same = [
            bool(
                (a.top_ids[step] == other.top_ids[step]).all() and (a.top_logits[step] == other.top_logits[step]).all()
            )
            for step in range(steps)
        ]
    drift = next((step for step, equal in enumerate(same) if not equal), None)
    return Effect(drift, split)
