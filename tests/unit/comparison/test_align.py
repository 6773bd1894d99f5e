"""Two streams side by side: nothing lost, the split one column, and what meets again stands together."""

from __future__ import annotations

import difflib

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from divexplore.comparison.align import align, first_divergence

STREAM = st.lists(st.integers(0, 4), max_size=40)
WIDE = st.lists(st.integers(0, 200_000), max_size=40)


@given(a=STREAM | WIDE, b=STREAM | WIDE, head=STREAM)
def test_read_without_its_gaps_a_column_is_the_stream(a, b, head):
    a, b = head + a, head + b
    columns = align(a, b)
    assert columns.schema == {"a": pl.Int32, "b": pl.Int32}
    assert columns["a"].drop_nulls().to_list() == list(range(len(a)))
    assert columns["b"].drop_nulls().to_list() == list(range(len(b)))
    assert all(row != (None, None) for row in columns.iter_rows())


@given(a=STREAM, b=STREAM, head=STREAM)
def test_the_split_is_one_column_with_both_its_tokens(a, b, head):
    a, b = head + a, head + b
    split = first_divergence(a, b)
    columns = align(a, b)
    if split is None:
        common = min(len(a), len(b))
        assert a[:common] == b[:common]
        assert columns.rows()[:common] == [(step, step) for step in range(common)]
    else:
        assert a[:split] == b[:split]
        assert a[split] != b[split]
        assert columns.rows()[: split + 1] == [(step, step) for step in range(split + 1)]


@given(a=STREAM, b=STREAM)
def test_sides_are_treated_alike(a, b):
    forth, back = align(a, b), align(b, a)
    assert first_divergence(a, b) == first_divergence(b, a)
    assert cost(forth, a, b) == cost(back, b, a)


@given(a=STREAM, b=STREAM)
def test_no_other_alignment_after_the_split_is_cheaper(a, b):
    split = first_divergence(a, b)
    head = min(len(a), len(b)) if split is None else split + 1
    columns = align(a, b)[head:]
    matched = sum(x is not None and y is not None and a[x] == b[y] for x, y in columns.iter_rows())
    other = difflib.SequenceMatcher(None, a[head:], b[head:], autojunk=False)
    edits = sum(max(i2 - i1, j2 - j1) for tag, i1, i2, j1, j2 in other.get_opcodes() if tag != "equal")
    assert columns.height - matched <= edits


def cost(columns, a, b):
    return sum(x is None or y is None or a[x] != b[y] for x, y in columns.iter_rows())


def test_streams_that_meet_again_are_side_by_side_again():
    tail = list(range(100, 120))
    columns = align([1, 2, 3, *tail], [1, 9, 8, 7, 6, *tail])
    assert columns.rows()[-20:] == [(step, step + 2) for step in range(3, 23)]
    assert columns["a"].null_count() == 2
    assert columns["b"].null_count() == 0


@pytest.mark.parametrize(("a", "b", "expected"), [([], [], None), ([1], [], None), ([1, 2], [1], None), ([1], [2], 0)])
def test_a_strict_prefix_is_no_divergence(a, b, expected):
    assert first_divergence(a, b) is expected if expected is None else first_divergence(a, b) == expected
    assert align(a, b).height == max(len(a), len(b))
