"""A difference that does not vanish is placed: at the prefill with its pads and chunks, or where the text outgrows a length."""

from __future__ import annotations

import contextlib

import pytest
from small_models import PROMPT, ids, small

import divexplore as dx
from divexplore.engine.interventions import intervene
from divexplore.testing import faults


def said(found):
    assert found.verdict == "structural"
    return " ".join(found.judgement.evidence)


@contextlib.contextmanager
def wider_window(net, config):
    """The window of one side is not that of the other, as in a kernel that ignores it."""
    before = net.config.sliding_window
    net.config.sliding_window = 64 if config.seed else before
    try:
        yield
    finally:
        net.config.sliding_window = before


def test_a_window_that_one_side_ignores_is_named_where_the_text_outgrows_it():
    with intervene(wider_window):
        found = dx.compare(small("mistral"), ids(5), {}, {"seed": 1}, 8)
    assert "outgrows the attention window of 8 tokens" in said(found)
    assert "begins at step 4, after 9 tokens" in said(found), "the ninth is the first that does not see the first"


def test_a_wrong_mask_is_named_with_its_pads():
    with faults.mask_dropped(only={"left_pad": 2}):
        found = dx.compare(small(), PROMPT, {}, {"left_pad": 2}, 4)
    assert "begins at step 0, after 10 tokens" in said(found)
    assert "0 pads in A and 2 in B" in said(found)


def test_a_wrong_chunk_is_named_with_its_length():
    side = {"prefill_chunk": 4}
    with faults.positions_shifted(only=side):
        found = dx.compare(small(), PROMPT, {}, side, 4)
    assert "the prompt of 10 tokens enters by all in A and by 4 in B" in said(found)


@pytest.mark.parametrize("at", [2, 5])
def test_elsewhere_the_step_is_all_that_is_said(at):
    with faults.cache_one_short(only={"seed": 1}, at_step=at):
        found = dx.compare(small(), PROMPT, {}, {"seed": 1}, 8)
    assert f"begins at step {at}, after {10 + at} tokens" in said(found)
    assert "outgrows" not in said(found)


def test_rounding_has_no_landmark():
    found = dx.compare(small(), PROMPT, {}, {"left_pad": 2}, 4)
    assert "does not vanish" not in " ".join(found.judgement.evidence)
