"""What is recorded of a row, against plain Python, numpy and scipy."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.special
import scipy.stats
import torch
from hypothesis import given
from hypothesis import strategies as st
from tiny_models import tiny

from divexplore.engine.recorder import TOP_K
from divexplore.engine.rowfile import RowFile
from divexplore.engine.run import run
from divexplore.engine.statistics import computing_dtype, row_statistics, top_k
from divexplore.models import load_model
from divexplore.ulp import spacing

DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]
FEW_VALUES = st.lists(st.sampled_from([-math.inf, -3.0, -1.5, 0.0, -0.0, 0.25, 1.0, 1.0078125, 9.0]), min_size=2)
SMOOTH = st.lists(st.floats(-60, 60, width=16), min_size=2, max_size=300)


def by_hand(values, k):
    """Top list in the documented order: logit descending, id ascending."""
    order = sorted(range(len(values)), key=lambda index: (-values[index], index))[:k]
    return order, [values[index] for index in order]


def statistics(row, k=20):
    return row_statistics(row, k)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@given(values=FEW_VALUES | SMOOTH, k=st.integers(1, 30))
def test_the_top_list_has_the_lowest_ids_among_ties(dtype, values, k):
    row = torch.tensor(values, dtype=dtype)
    k = min(k, len(row))
    ids, logits = top_k(row, k)
    expected_ids, expected = by_hand(row.double().tolist(), k)
    assert ids.tolist() == expected_ids
    assert logits.tolist() == expected
    assert ids.dtype == np.int32
    assert logits.dtype == np.float64


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("length", [4, 257, 2048])
def test_a_tie_at_the_top_goes_to_the_lowest_id(dtype, length):
    """``torch.topk`` gives another one first, and `argmax` is not bound to it."""
    row = torch.zeros(length, dtype=dtype)
    row[1:4] = 1.0
    found = statistics(row)
    assert found.top_ids[:3].tolist() == [1, 2, 3]
    assert found.margin == 0.0


def test_a_tie_at_the_last_rank_goes_to_the_lowest_id():
    row = torch.tensor([0.0, 1.0] + [0.5] * 60)
    ids, _ = top_k(row, 20)
    assert ids.tolist() == [1, *range(2, 21)]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@given(values=FEW_VALUES.filter(lambda values: max(values) > -math.inf) | SMOOTH)
def test_log_probabilities_entropy_and_margin(dtype, values):
    row = torch.tensor(values, dtype=dtype)
    wide = row.double().numpy()
    found = statistics(row)
    assert found.valid
    assert found.logsumexp == pytest.approx(scipy.special.logsumexp(wide), rel=1e-12, abs=1e-12)
    assert found.entropy == pytest.approx(scipy.stats.entropy(scipy.special.softmax(wide)), abs=1e-9)
    first, second = np.sort(wide)[::-1][:2]
    assert found.margin == first - second


@given(st.lists(st.floats(-30, 30, width=16), min_size=2, max_size=50))
def test_a_margin_is_a_whole_number_of_steps_at_the_smaller_logit(values):
    """bf16 logits lie on a grid; the step at the larger of the two can be twice as wide, so halves occur."""
    found = statistics(torch.tensor(values, dtype=torch.bfloat16))
    smaller = np.abs(found.top_logits[:2]).min()
    assert (found.margin / spacing(smaller, "bfloat16")).is_integer()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    "values",
    [[math.nan] * 30, [0.0, math.nan, 1.0], [math.inf, 0.0, 1.0], [math.inf, math.inf, 0.0], [-math.inf] * 30],
    ids=["all NaN", "one NaN", "infinite", "two infinite", "all suppressed"],
)
def test_a_row_without_a_meaningful_argmax_is_not_valid(dtype, values):
    assert not statistics(torch.tensor(values, dtype=dtype)).valid


def test_a_nan_beyond_the_top_list_is_seen():
    row = torch.arange(100.0)
    row[0] = math.nan
    assert not statistics(row).valid


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@given(data=st.data())
def test_the_hash_tells_bits_apart_and_nothing_else(dtype, data):
    row = torch.tensor(data.draw(SMOOTH), dtype=dtype)
    at = data.draw(st.integers(0, len(row) - 1))
    other = row.clone()
    other[at] = torch.nextafter(row[at], torch.tensor(99.0, dtype=dtype))
    assert statistics(row).hash == statistics(row.clone()).hash
    assert statistics(torch.stack([row, other], dim=1)[:, 0]).hash == statistics(row).hash, "strides are not bits"
    assert statistics(row).hash != statistics(other).hash
    assert len(statistics(row).hash) == 16


@pytest.mark.parametrize(
    ("stored", "parameters", "through", "expected"),
    [
        (torch.bfloat16, torch.bfloat16, None, "bfloat16"),
        (torch.float32, torch.bfloat16, torch.bfloat16, "bfloat16"),
        (torch.float32, torch.float16, torch.float16, "float16"),
        (torch.float32, torch.bfloat16, None, "float32"),
        (torch.float32, torch.float32, torch.bfloat16, "float32"),
        (torch.float64, torch.float32, torch.float32, "float32"),
        (torch.float64, torch.float64, None, "float64"),
    ],
    ids=str,
)
def test_logits_that_a_model_casts_up_count_in_the_dtype_that_computed_them(stored, parameters, through, expected):
    row = torch.randn(500, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    row = row.to(stored) if through is None else row.to(through).to(stored)
    assert computing_dtype(row, parameters) == expected


def test_a_model_that_casts_its_logits_up_is_recorded_in_ulps_of_its_own_dtype():
    model = load_model(tiny("llama"))
    as_it_is = run(model, [5, 6, 7], {"dtype": "bfloat16"}, 4)
    model.instance("bfloat16").register_forward_hook(
        lambda module, args, output: setattr(output, "logits", output.logits.float())
    )
    cast_up = run(model, [5, 6, 7], {"dtype": "bfloat16"}, 4)
    assert cast_up.dtype == as_it_is.dtype == "bfloat16"
    assert cast_up.table["margin_ulps"].equals(as_it_is.table["margin_ulps"])
    assert not cast_up.table["row_hash"].equals(as_it_is.table["row_hash"]), "the raw rows are other bits"


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16", "float16"])
def test_margins_are_counted_in_ulps_of_the_larger_logit(dtype):
    trace = run(load_model(tiny("llama")), [5, 6, 7], {"dtype": dtype}, 6)
    assert trace.dtype == dtype
    for margin, ulps, (first, second) in zip(
        trace.table["margin"], trace.table["margin_ulps"], trace.top_logits[:, :2], strict=True
    ):
        assert margin == first - second
        assert ulps == margin / spacing(max(abs(first), abs(second)), dtype)


def test_a_vocabulary_smaller_than_the_list_is_recorded_whole():
    trace = run(load_model(tiny("gpt2", vocab_size=7)), [1, 2], None, 3)
    assert trace.top_ids.shape == (3, 7)
    assert sorted(trace.top_ids[0]) == list(range(7))
    assert np.allclose(np.exp(trace.top_logits - scipy.special.logsumexp(trace.top_logits, axis=1)[:, None]).sum(1), 1)


def test_memory_of_a_trace_does_not_grow_with_the_vocabulary():
    small, large = (run(load_model(tiny("gpt2", vocab_size=size)), [1, 2], None, 4) for size in (100, 20_000))
    assert small.table.schema == large.table.schema
    assert small.top_ids.shape[1] == TOP_K
    assert large.table.estimated_size() <= 1.1 * small.table.estimated_size()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_rows_come_back_from_disk_bit_for_bit(dtype):
    rows = torch.randn(5, 300, generator=torch.Generator().manual_seed(1)).to(dtype)
    rows[2, 7], rows[3, 0] = math.nan, -math.inf
    with RowFile() as kept:
        for row in rows:
            kept.append(row)
        assert len(kept) == 5
        for step in (4, 0, 2, 3):  # in any order
            back = kept.read(step)
            assert back.dtype == dtype
            assert torch.equal(back.view(torch.uint8), rows[step].view(torch.uint8))
        kept.append(rows[0])
        assert torch.equal(kept.read(5), rows[0])
        for step in (-1, 6):
            with pytest.raises(IndexError):
                kept.read(step)


def test_a_row_read_from_disk_may_be_changed_without_changing_the_record():
    with RowFile() as kept:
        kept.append(torch.ones(4))
        kept.read(0).zero_()
        assert kept.read(0).tolist() == [1.0] * 4


def test_the_file_of_rows_is_gone_afterwards(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def interrupted():
        with RowFile() as kept:
            kept.append(torch.ones(4))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert list(tmp_path.iterdir()) == []
