"""What follows a flip: tokens that differ, runs that meet again, and flips of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from divexplore.comparison.evidence import Cascade, Flip

if TYPE_CHECKING:
    import polars as pl

    from divexplore.trace import Trace

__all__ = ["REJOIN", "cascade_of"]

REJOIN = 3
"""Equal columns in a row that count as the streams having met again; one or two are commas and articles."""


def cascade_of(a: Trace, b: Trace, columns: pl.DataFrame, split: int, flips: tuple[Flip, ...]) -> Cascade:
    """The cascade of a pair that split at step `split`, with its flips under teacher forcing."""
    tokens_a, tokens_b = a.token_ids, b.token_ids
    pairs = list(zip(columns["a"].to_list(), columns["b"].to_list(), strict=True))[split:]  # equal up to the split
    equal = [x is not None and y is not None and tokens_a[x] == tokens_b[y] for x, y in pairs]
    runs, run = 0, 0
    for same in [*equal, False]:
        if not same and run >= REJOIN:
            runs += 1
        run = run + 1 if same else 0
    differing = {x for (x, _), same in zip(pairs, equal, strict=True) if not same}
    return Cascade(
        differing_tokens=equal.count(False),
        later_tokens=len(equal),
        rejoins=runs,
        independent_flips=flips,
        independent_tokens=sum(flip.step > split and flip.step in differing for flip in flips),
    )
