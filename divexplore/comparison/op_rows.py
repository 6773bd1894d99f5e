"""Which part of an operation's output belongs to the observed row, without its pads? Shapes of both sides decide."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

__all__ = ["Cut", "Frame", "cuts"]


@dataclass(frozen=True)
class Frame:
    """One side's forward: rows of the batch, the observed one, its pads, and the columns that it feeds and attends to."""

    rows: int
    row: int
    pads: int
    queries: int
    columns: int


@dataclass(frozen=True)
class Cut:
    """How to cut the observed row out of an output: the batch axis, how many entries of it a row has, leading ones to drop."""

    rows: int
    row: int
    axis: int | None
    per_row: int
    drops: tuple[tuple[int, int], ...]

    def __call__(self, output: torch.Tensor) -> torch.Tensor:
        """The observed row's part; a view of `output`."""
        if self.axis is not None:
            if self.per_row != 1:  # a merged axis has the batch outermost
                output = output.unflatten(self.axis, (self.rows, self.per_row))
            output = output.select(self.axis, self.row)
        for axis, drop in self.drops:
            output = output.narrow(axis, drop, output.shape[axis] - drop)
        return output


def cuts(a: Sequence[int], b: Sequence[int], frame_a: Frame, frame_b: Frame) -> tuple[Cut, Cut] | str:
    """The cuts that make two outputs of one operation comparable, or why there are none.

    Parameters
    ----------
    a, b
        Shapes of the outputs.

    Notes
    -----
    The batch axis is the first whose sizes stand in the ratio of the two batches. Axes as long as the columns of each
    side lose that row's left pads; where one side feeds more columns than the other, as without a cache, the last ones
    are common.
    """
    if len(a) != len(b):
        return f"{len(a)} axes in A, {len(b)} in B"
    found = _batch_axis(a, b, frame_a, frame_b)
    if found is None:
        if len(a) or frame_a.rows != 1 or frame_b.rows != 1:
            return "no axis stands in the ratio of the batches"
        return Cut(1, 0, None, 1, ()), Cut(1, 0, None, 1, ())
    axis, per_row = found
    rest_a, rest_b = _rest(a, axis, per_row[0]), _rest(b, axis, per_row[1])
    drops_a, drops_b = [], []
    for index, (x, y) in enumerate(zip(rest_a, rest_b, strict=True)):
        if (frame_a.pads or frame_b.pads) and (x, y) == (frame_a.columns, frame_b.columns):
            drops_a.append((index, frame_a.pads))
            drops_b.append((index, frame_b.pads))
        elif x != y and (x, y) == (frame_a.queries, frame_b.queries):
            drops_a.append((index, x - min(x, y)))
            drops_b.append((index, y - min(x, y)))
        elif x != y:
            return f"shapes {list(rest_a)} and {list(rest_b)} of one row"
    return (
        Cut(frame_a.rows, frame_a.row, axis, per_row[0], tuple(drops_a)),
        Cut(frame_b.rows, frame_b.row, axis, per_row[1], tuple(drops_b)),
    )


def _batch_axis(
    a: Sequence[int], b: Sequence[int], frame_a: Frame, frame_b: Frame
) -> tuple[int, tuple[int, int]] | None:
    # where both batches are equal, every axis of equal size stands in their ratio: only the outermost is believed
    for axis in range(min(1, len(a)) if frame_a.rows == frame_b.rows else len(a)):
        if a[axis] % frame_a.rows or b[axis] % frame_b.rows:
            continue
        per_row = a[axis] // frame_a.rows, b[axis] // frame_b.rows
        if per_row[0] == per_row[1] or per_row == (frame_a.queries, frame_b.queries):
            return axis, per_row
    return None


def _rest(shape: Sequence[int], axis: int, per_row: int) -> tuple[int, ...]:
    return (*shape[:axis], *((per_row,) if per_row != 1 else ()), *shape[axis + 1 :])
