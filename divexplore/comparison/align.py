"""Align two token streams: equal prefix, the split, and the rest by edit distance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rapidfuzz.distance import Levenshtein

if TYPE_CHECKING:
    import polars as pl

__all__ = ["align", "first_divergence"]


def first_divergence(a: Sequence[int], b: Sequence[int]) -> int | None:
    """The first index at which both streams have a token and the tokens differ; ``None`` where one is a prefix of the other."""
    return next((step for step, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), None)


def align(a: Sequence[int], b: Sequence[int]) -> pl.DataFrame:
    """Columns of two aligned streams: ``a`` and ``b`` are steps, or null for a gap.

    The split is always one column, both its tokens in it; what follows is aligned by Levenshtein distance on the ids, so
    streams that meet again are side by side again. Reading either column without its nulls gives that stream whole.
    """
    import polars as pl

    split = first_divergence(a, b)
    head = min(len(a), len(b)) if split is None else split + 1
    left: list[int | None] = list(range(head))
    right: list[int | None] = list(range(head))
    for operation in Levenshtein.opcodes(list(a[head:]), list(b[head:])):
        from_a = range(head + operation.src_start, head + operation.src_end)
        from_b = range(head + operation.dest_start, head + operation.dest_end)
        left += [*from_a, *[None] * (len(from_b) - len(from_a))]
        right += [*from_b, *[None] * (len(from_a) - len(from_b))]
    return pl.DataFrame({"a": left, "b": right}, schema={"a": pl.Int32, "b": pl.Int32})
