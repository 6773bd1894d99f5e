"""How far two rows are apart, against scipy, with infinities as they are defined."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.special
import scipy.stats
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from divexplore.comparison.drift import epsilon, kld, row_drift

INFINITE = -math.inf
DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]


@st.composite
def pairs(draw):
    """Two rows of one length, some ids suppressed on both sides."""
    length = draw(st.integers(2, 40))
    values = st.lists(st.floats(-40, 40, width=16), min_size=length, max_size=length)
    a, b = (torch.tensor(draw(values), dtype=torch.float64) for _ in range(2))
    gone = draw(st.sets(st.integers(1, length - 1), max_size=length - 2))
    for index in gone:
        a[index] = b[index] = INFINITE
    return a, b


@given(pairs())
def test_epsilon_is_the_largest_difference_of_ids_that_both_sides_have(pair):
    a, b = pair
    finite = torch.isfinite(a)
    assert epsilon(a, b) == float((a - b)[finite].abs().max())
    assert epsilon(a, b) == epsilon(b, a)
    assert epsilon(a, a.clone()) == 0


@pytest.mark.parametrize("one", DTYPES, ids=str)
@pytest.mark.parametrize("other", DTYPES, ids=str)
def test_epsilon_of_two_dtypes_is_taken_after_the_exact_cast(one, other):
    row = torch.randn(200, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 9
    a, b = row.to(one), row.to(other)
    expected = np.abs(a.double().numpy() - b.double().numpy()).max()
    assert epsilon(a, b) == expected
    assert (expected == 0) == (one == other)


@pytest.mark.parametrize("other", [0.0, math.inf])
def test_an_infinity_on_one_side_is_infinitely_far(other):
    a, b = torch.tensor([1.0, INFINITE]), torch.tensor([1.0, other])
    assert epsilon(a, b) == math.inf
    assert epsilon(b, a) == math.inf


def test_nan_is_no_distance():
    assert math.isnan(epsilon(torch.tensor([1.0, math.nan]), torch.zeros(2)))
    assert math.isnan(epsilon(torch.zeros(2), torch.tensor([1.0, math.nan])))


def test_rows_are_not_changed_by_measuring_them():
    a, b = torch.tensor([1.0, INFINITE], dtype=torch.float64), torch.tensor([2.0, INFINITE], dtype=torch.float64)
    before = a.clone(), b.clone()
    row_drift(a, b, 0)
    assert torch.equal(a, before[0])
    assert torch.equal(b, before[1])


@given(pairs())
def test_kld_is_that_of_scipy_and_never_negative(pair):
    a, b = pair
    found = row_drift(a, b, 0).kld
    expected = scipy.stats.entropy(scipy.special.softmax(a.numpy()), scipy.special.softmax(b.numpy()))
    assert found >= 0
    assert found == pytest.approx(float(expected), rel=1e-9, abs=1e-12)


@given(pairs())
def test_kld_of_bit_equal_rows_is_exactly_zero(pair):
    assert row_drift(pair[0], pair[0].clone(), 0).kld == 0.0


@given(pairs())
def test_kld_of_rows_one_constant_apart_is_next_to_nothing(pair):
    """Logits are only defined up to a constant; epsilon sees it, probabilities do not."""
    drift = row_drift(pair[0], pair[0] + 3.0, 0)
    assert drift.epsilon == 3.0
    assert drift.kld == pytest.approx(0.0, abs=1e-12)


def test_kld_with_an_id_that_only_one_side_suppresses():
    a, b = torch.tensor([1.0, 1.0]), torch.tensor([1.0, INFINITE])
    assert row_drift(a, b, 0).kld == math.inf
    assert row_drift(b, a, 0).kld == pytest.approx(math.log(2))
    assert math.isnan(kld(torch.tensor([math.nan]), torch.tensor([0.0])))


@given(pairs(), st.data())
def test_rank_counts_what_stands_before_the_token(pair, data):
    a, b = pair
    token = data.draw(st.integers(0, len(a) - 1))
    assume(torch.isfinite(b[token]))
    order = sorted(range(len(b)), key=lambda index: (-float(b[index]), index))
    drift = row_drift(a, b, token)
    assert order[drift.rank] == token
    best = [min(range(len(row)), key=lambda index: (-float(row[index]), index)) for row in pair]
    assert drift.top1_agree == (best[0] == best[1])
    change = scipy.special.softmax(b.numpy())[token] - scipy.special.softmax(a.numpy())[token]
    assert drift.delta_p == pytest.approx(change, abs=1e-12)
