"""What chose each side's tokens, and what must hold before a knob may be blamed for a difference between them?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from divexplore.trace import Trace

__all__ = ["GREEDY", "OF_CHOICE", "decode_path", "differing_paths", "samples", "unmet", "unrepeatable"]

GREEDY = "greedy"
"""The decode path of records that do not name theirs: no other one was known when they were made."""

OF_CHOICE = frozenset({"decode", "seed"})
"""Effective settings that choose tokens and move no logit."""


def decode_path(trace: Trace) -> str:
    """What chose the tokens, as `divexplore.engine.choice.decode_path` put it."""
    return str(trace.effective.get("decode", GREEDY))


def samples(trace: Trace) -> bool:
    """Whether any token of a run was drawn at random; those that were given to it were not."""
    return decode_path(trace).startswith("sample") and len(trace) > trace.meta.get("forced", 0)


def unrepeatable(trace: Trace) -> bool:
    """Whether a second run draws other numbers."""
    return samples(trace) and trace.effective.get("seed") is None


def differing_paths(a: Trace, b: Trace) -> str | None:
    """Both decode paths in a few words, or ``None`` where they are one."""
    paths = decode_path(a), decode_path(b)
    return None if paths[0] == paths[1] else f"A {paths[0]}; B {paths[1]}"


def unmet(a: Trace, b: Trace, knobs: set[str]) -> str | None:
    """Why none of the differing settings may be blamed yet, as a sentence; ``None`` where both sides are deterministic.

    Parameters
    ----------
    knobs
        The effective settings that differ.
    """
    sides = {name: trace for name, trace in (("A", a), ("B", b)) if samples(trace)}
    if not sides:
        return None
    reasons = ["the decoding is not greedy (" + "; ".join(f"{n}: {_drawn(t)}" for n, t in sides.items()) + ")"]
    seeds = [trace.effective.get("seed") for trace in sides.values()]
    if None in seeds:
        reasons.append("without a seed no draw repeats")
    elif len(set(seeds)) > 1:
        reasons.append(f"the seeds differ ({seeds[0]} and {seeds[1]})")
    blamed = knobs - OF_CHOICE
    if "dtype" in blamed and len(blamed) > 1:
        reasons.append("dtype differs as well")
        blamed = blamed - {"dtype"}
    named = ", ".join(sorted(blamed))
    return f"{f'{named} can be neither blamed nor cleared' if named else 'No setting can be blamed'}: {'; '.join(reasons)}."


def _drawn(trace: Trace) -> str:
    seed: Any = trace.effective.get("seed")
    return f"{decode_path(trace)}, {'no seed' if seed is None else f'seed {seed}'}"
