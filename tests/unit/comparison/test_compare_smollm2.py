"""The premise on a real model: batch 1 against 8 splits in bf16 and drifts in fp32; the same twice is the same."""

from __future__ import annotations

import pytest
from row_products import products_that_depend_on_rows

from divexplore.comparison.compare import compare
from divexplore.comparison.verdict import Verdict
from divexplore.engine.run import run
from divexplore.ulp import spacing

PROMPT = "Tell me a short story about a robot who learns to paint."


def assert_batch_is_of_no_matter_here(model, dtype):
    """Only a processor that multiplies one row as it multiplies eight may make both sides agree."""
    differing = products_that_depend_on_rows(model.instance(dtype))
    assert differing == [], "products here depend on the rows, so a batch of eight was not real"


@pytest.fixture(scope="module")
def in_bf16(smollm2):
    a, b = ({"dtype": "bfloat16", "batch_size": size} for size in (1, 8))
    return compare(smollm2, PROMPT, a, b, 40, evidence="fast")


def test_bf16_splits_within_forty_steps(smollm2, in_bf16):
    assert in_bf16.b.effective["batch_size"] == 8
    assert in_bf16.b.effective["pads"] == [0] * 8
    if in_bf16.split is None:
        assert_batch_is_of_no_matter_here(smollm2, "bfloat16")
        pytest.skip("this processor multiplies one row as it multiplies eight")
    split = in_bf16.split
    assert in_bf16.first_drift <= split.step
    assert in_bf16.verdict in (Verdict.NEAR_TIE, Verdict.EXACT_TIE)
    assert split.pair_swing == split.a.gap + split.b.gap <= 2 * split.epsilon
    for side in (split.a, split.b):
        smaller = min(abs(side.logit), abs(side.logit - side.gap))
        assert float(side.gap / spacing(smaller, "bfloat16")).is_integer(), "logits of bf16 lie on a grid, so do gaps"


@pytest.mark.parametrize("side", ["a", "b"])
def test_the_same_configuration_twice_is_bit_identical(smollm2, in_bf16, side):
    recorded = getattr(in_bf16, side)
    again = run(smollm2, PROMPT, recorded.requested, 12)
    assert again.table["row_hash"].to_list() == recorded.table["row_hash"].to_list()[:12]


def test_fp32_drifts_without_a_split(smollm2):
    """Twenty-four steps, beyond the one where bf16 splits: a batch of eight in fp32 is the slowest thing here."""
    a, b = ({"dtype": "float32", "batch_size": size} for size in (1, 8))
    comparison = compare(smollm2, PROMPT, a, b, 24, evidence="fast")
    assert comparison.split is None
    if comparison.verdict is Verdict.IDENTICAL:
        assert_batch_is_of_no_matter_here(smollm2, "float32")
        pytest.skip("this processor multiplies one row as it multiplies eight, in fp32 too")
    assert comparison.verdict is Verdict.DRIFT_ONLY
    assert 0 < comparison.steps["epsilon"].max() < 1e-3, "rounding of fp32, not of anything else"
