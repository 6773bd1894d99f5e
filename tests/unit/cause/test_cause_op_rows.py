"""Which part of an output is the observed row's: the batch axis, merged axes, pads."""

from __future__ import annotations

import pytest
import torch

from divexplore.comparison.op_rows import Frame, cuts

ONE = Frame(rows=1, row=0, pads=0, queries=4, columns=4)


def rows_of(frame, *, heads=3, width=5):
    """An attention-like output whose entries tell their row, and whose pads are garbage."""
    out = torch.zeros(frame.rows, heads, frame.columns, width)
    for row in range(frame.rows):
        out[row] = row
    out[frame.row, :, : frame.pads] = float("nan")
    return out


@pytest.mark.parametrize("row", [0, 3, 7])
def test_the_observed_row_is_cut_out_without_its_pads(row):
    eight = Frame(rows=8, row=row, pads=2, queries=6, columns=6)
    a, b = rows_of(ONE), rows_of(eight)
    cut_a, cut_b = cuts(a.shape, b.shape, ONE, eight)
    assert cut_a(a).shape == cut_b(b).shape == (3, 4, 5)
    assert (cut_b(b) == row).all()


def test_a_merged_axis_is_split_with_the_batch_outermost():
    four = Frame(rows=4, row=2, pads=0, queries=4, columns=4)
    a, b = torch.zeros(1 * 4, 5), torch.arange(16.0).reshape(16, 1).expand(16, 5)
    _, cut_b = cuts(a.shape, b.shape, ONE, four)
    assert cut_b(b)[:, 0].tolist() == [8, 9, 10, 11]


def test_a_merged_axis_with_pads_loses_them():
    two = Frame(rows=2, row=1, pads=3, queries=7, columns=7)
    cut_a, cut_b = cuts((4, 5), (14, 5), ONE, two)
    assert cut_a(torch.zeros(4, 5)).shape == cut_b(torch.zeros(14, 5)).shape == (4, 5)
    assert cut_b(torch.arange(14.0).reshape(14, 1).expand(14, 5))[:, 0].tolist() == [10, 11, 12, 13]


def test_a_step_drops_pads_of_the_keys_only():
    a, b = Frame(1, 0, 0, 1, 9), Frame(8, 5, 2, 1, 11)
    cut_a, cut_b = cuts((1, 3, 1, 9), (8, 3, 1, 11), a, b)
    assert cut_a(torch.zeros(1, 3, 1, 9)).shape == cut_b(torch.zeros(8, 3, 1, 11)).shape == (3, 1, 9)


def test_the_last_columns_are_common_where_one_side_has_no_cache():
    cached, whole = Frame(1, 0, 0, 1, 9), Frame(1, 0, 0, 9, 9)
    _, cut = cuts((1, 1, 5), (1, 9, 5), cached, whole)
    assert cut(torch.arange(9.0).reshape(1, 9, 1).expand(1, 9, 5)).tolist() == [[8.0] * 5]


@pytest.mark.parametrize(
    ("a", "b", "frame"),
    [
        ((4, 5), (4, 5), Frame(8, 0, 0, 4, 4)),  # no axis grew with the batch
        ((), (), Frame(8, 0, 0, 4, 4)),
        ((1, 3, 1, 9), (1, 9, 3, 1), Frame(1, 0, 0, 1, 4)),  # another layout
        ((1, 5), (1, 5, 1), ONE),
    ],
)
def test_what_fits_no_rule_is_not_compared(a, b, frame):
    assert isinstance(cuts(a, b, ONE, frame), str)


def test_equal_batches_believe_the_outermost_axis_only():
    """A table of 16 positions beside 8 rows is no merged batch axis."""
    eight = Frame(8, 1, 0, 16, 16)
    assert isinstance(cuts((1, 16, 5), (1, 16, 5), eight, eight), str)
