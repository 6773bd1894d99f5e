"""The split in numbers: each side's margin, its gap to the other side's token, and the swing between them."""

from __future__ import annotations

import math

from divexplore.comparison.comparison import Side, Split
from divexplore.trace import Trace

__all__ = ["logit_of", "split_of"]


def split_of(a: Trace, b: Trace, step: int, epsilon: float | None, logits: tuple[float | None, float | None]) -> Split:
    """The split at `step`.

    Parameters
    ----------
    epsilon
        max |Δlogit| there, or ``None`` where full rows were not at hand.
    logits
        A's logit of B's token and B's logit of A's token, or ``None`` where not recorded.
    """
    side_a, side_b = _side(a, step, logits[0]), _side(b, step, logits[1])
    swing = None if side_a.gap is None or side_b.gap is None else side_a.gap + side_b.gap
    return Split(step=step, epsilon=epsilon, pair_swing=swing, a=side_a, b=side_b)


def logit_of(trace: Trace, step: int, token_id: int) -> float | None:
    """The recorded raw logit of a token at a step, or ``None`` below the top list."""
    row = trace.table.row(step, named=True)
    found = dict(zip(row["top_ids"] or (), row["top_logits"] or (), strict=True))
    return found.get(token_id)


def _side(trace: Trace, step: int, other: float | None) -> Side:
    row = trace.table.row(step, named=True)
    return Side(
        token_id=row["token_id"],
        text=row["text"],
        logit=row["logit"],
        probability=None if row["logprob"] is None else math.exp(row["logprob"]),
        margin=row["margin"],
        margin_ulps=row["margin_ulps"],
        gap=None if other is None or row["logit"] is None else row["logit"] - other,
        exact_tie=row["exact_tie"],
    )
