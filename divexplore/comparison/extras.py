"""Evidence on demand: does a run repeat, does it leave state behind, what do the probes say?"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from divexplore.comparison.decode_paths import unrepeatable
from divexplore.comparison.evidence import Evidence
from divexplore.comparison.ladder import Pair
from divexplore.comparison.probes import causal_probe, pad_probe
from divexplore.trace import Trace

__all__ = ["add_extras", "repeats", "reverse_forcing"]


def add_extras(
    evidence: Evidence, pair: Pair, second: Trace, last: Trace, watch: Callable[[str], dict[str, Any]]
) -> Evidence:
    """The evidence with all that is measured on demand: A's repeats, A forced on B's tokens, both probes.

    Parameters
    ----------
    second, last
        A again, before and after B ran.
    watch
        Gives the ``progress`` and ``stop`` of a run, by its label.
    """
    leak, unsteady, repeated = repeats(pair.a, second, last)
    notes = [*evidence.notes, repeated]
    watched = watch("A on B's tokens")
    stop = watched.get("stop") or (lambda: False)
    noncausal = padded = None
    if len(pair.b) and not stop():
        flips, steps = reverse_forcing(pair, **watched)
        notes += [f"A, forced on B's tokens, would choose another one at {flips} of {steps} steps."] if steps else []
    if not stop():
        noncausal, looked = causal_probe(pair)
        notes.append(looked)
    if not stop():
        padded, padding = pad_probe(pair)
        notes += [padding] if padding else []
    if stop():
        notes.append("Stopped before all of the evidence was measured.")
    return dataclasses.replace(
        evidence,
        notes=tuple(notes),
        state_leak=leak,
        unsteady=unsteady,
        steady=leak is unsteady is None,
        noncausal=noncausal,
        padded=padded,
    )


def repeats(first: Trace, second: Trace, last: Trace) -> tuple[str | None, str | None, str]:
    """Judge A, A, B, A: whether B left state behind, and a sentence on run-to-run determinism.

    A repeat that ended early is compared as far as it came, and is no certainty.

    Returns
    -------
    The state leak and the lack of repeatability, each as a sentence or ``None``, and what was seen.
    """
    before, after = _first_difference(first, second), _first_difference(second, last)
    short = next((trace for trace in (second, last) if trace.partial and len(trace) < len(first)), None)
    if unrepeatable(first):
        drawn = "A samples without a seed, so that its runs draw other numbers"
        seen = next((step for step in (before, after) if step is not None), None)
        unsteady = f"{drawn}." if seen is None else f"{drawn}: two of them differ from step {seen} on."
        return None, unsteady, unsteady
    if before is not None:
        unsteady = f"A does not repeat itself: two runs in a row differ from step {before} on."
        return None, unsteady, unsteady
    if after is not None:
        leak = f"A repeats itself, but differs from step {after} on once B has run."
        return leak, None, "A, A, B, A: the last A differs."
    if short is not None:
        ended = f"A run of A ended early at step {len(short)} ({short.meta['error'] or short.finish_reason})"
        unsteady = f"{ended}: whether A repeats itself is not known beyond it."
        return None, unsteady, unsteady
    return (
        None,
        None,
        f"A, A, B, A: three runs of A have equal row hashes over {min(map(len, (first, second, last)))} steps.",
    )


def reverse_forcing(pair: Pair, **watched: Any) -> tuple[int, int]:
    """A forced on B's tokens: the number of steps at which A would choose another token, and of all steps."""
    tokens = pair.b.token_ids
    trace = pair.decode(pair.config_a, len(tokens), forced=tokens, fillers=pair.a, **watched)
    best = pair.b.top_ids[: len(trace), 0]  # of raw rows, whatever B made of them
    flips = int((trace.top_ids[:, 0] != best).sum())
    return flips, len(trace)


def _first_difference(a: Trace, b: Trace) -> int | None:
    pairs = zip(a.table["row_hash"], b.table["row_hash"], strict=False)
    found = next((step for step, (x, y) in enumerate(pairs) if x != y), None)
    if found is not None or len(a) == len(b) or a.partial or b.partial:  # what a partial run lacks is no difference
        return found
    return min(len(a), len(b))
