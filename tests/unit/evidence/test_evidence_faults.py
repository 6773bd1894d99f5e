"""Faults act on the side that they are given to, in every dtype, and leave nothing behind."""

from __future__ import annotations

import pytest
import torch
from small_models import PROMPT, small

import divexplore as dx
from divexplore.engine.interventions import surround
from divexplore.testing import faults

WEIGHT = ("model.layers.0.mlp.up_proj.weight", (3, slice(2, 6)))
FAULTS = {
    "mask_dropped": (faults.mask_dropped, {"left_pad": 3}),
    "positions_missing": (faults.positions_missing, {"left_pad": 3}),
    "positions_shifted": (faults.positions_shifted, {"seed": 1}),
    "cache_one_short": (faults.cache_one_short, {"seed": 1}),
    "weight_changed": (lambda only=None: faults.weight_changed(*WEIGHT, only=only), {"seed": 1}),
    "non_causal": (faults.non_causal, {"seed": 1}),
    "state_carried_over": (faults.state_carried_over, {"seed": 1}),
}
MOVING = [name for name in FAULTS if name not in ("positions_missing", "state_carried_over")]  # on a rotary model


def hashes(config, steps=8):
    return dx.run(small(), PROMPT, config, steps).table["row_hash"].to_list()


def state_of(net):
    """What a fault could leave behind: weights, hooks, and flags of causality."""
    return (
        [parameter.clone() for parameter in net.parameters()],
        [(len(m._forward_pre_hooks), len(m._forward_hooks)) for m in net.modules()],
        [
            (getattr(m, "is_causal", None), getattr(getattr(m, "config", None), "is_causal", None))
            for m in net.modules()
        ],
    )


@pytest.mark.parametrize("name", FAULTS)
def test_nothing_is_left_behind(name):
    make, side = FAULTS[name]
    net = small().master
    weights, *rest = state_of(net)
    before = hashes(side)
    with make(only=side):
        hashes(side)
    after, *rest_after = state_of(net)
    assert all(torch.equal(x, y) for x, y in zip(weights, after))
    assert rest_after == rest
    assert hashes(side) == before


@pytest.mark.parametrize("name", FAULTS)
def test_nothing_is_left_behind_by_a_run_that_fails(name):
    make, side = FAULTS[name]
    net = small().master
    weights, *rest = state_of(net)
    with make(only=side), pytest.raises(KeyError), surround(net, dx.RunConfig.of(side)):
        raise KeyError
    after, *rest_after = state_of(net)
    assert all(torch.equal(x, y) for x, y in zip(weights, after))
    assert rest_after == rest


@pytest.mark.parametrize("name", MOVING)
def test_it_acts_on_its_own_side_whatever_the_dtype(name):
    make, side = FAULTS[name]
    for dtype in ("float32", "bfloat16"):
        plain = {"dtype": dtype}
        mine, other = hashes(plain | side), hashes(plain)
        with make(only=side | {"dtype": "float16"}):
            assert hashes(plain | side) != mine
            assert hashes(plain) == other


@pytest.mark.parametrize("name", MOVING)
def test_without_a_side_it_acts_on_both(name):
    make, side = FAULTS[name]
    plain = hashes(side)
    with make():
        assert hashes(side) != plain


@pytest.mark.parametrize("name", ["positions_shifted", "cache_one_short"])
@pytest.mark.parametrize("use_cache", [True, False])
def test_a_fault_with_a_step_begins_there(name, use_cache):
    config = {"use_cache": use_cache}
    plain = hashes(config)
    with faults.positions_shifted(from_step=3) if name == "positions_shifted" else faults.cache_one_short(at_step=3):
        moved = hashes(config)
    assert moved[:3] == plain[:3]
    assert (moved[3] != plain[3]) == (use_cache or name == "positions_shifted"), "without a cache nothing can be lost"


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_a_changed_weight_is_changed_once_on_every_rung(dtype):
    """A head's row times minus one turns the sign of its logit; twice would undo it."""
    model, side = small(), {"seed": 1, "dtype": dtype}
    token = dx.run(model, PROMPT, {"dtype": dtype}, 1).token_ids[0]
    with faults.weight_changed("lm_head.weight", token, -1.0, only=side):
        found = dx.compare(model, PROMPT, {"dtype": dtype}, side, 4)
    own, top = found.evidence.ladder
    logit = found.a.table["logit"][0]
    assert own.epsilon_at_split == 2 * abs(logit)
    assert top.epsilon_at_split == pytest.approx(own.epsilon_at_split, rel=0.02)


def test_every_other_side_picks_up_the_state_that_was_left():
    side = {"seed": 1}
    with faults.state_carried_over(only=side):
        first, second = hashes({}), hashes({})
        left = hashes(side)
        third = hashes({})
    assert first == second == left
    assert third != first


@pytest.mark.parametrize("factor", [3.0, 0.1, float("nan"), float("inf")])
def test_a_factor_that_rounds_is_refused(factor):
    with pytest.raises(dx.Refusal, match="power of two"):
        faults.weight_changed("lm_head.weight", 0, factor)


def test_an_unknown_weight_is_refused_with_the_nearest_name():
    with faults.weight_changed("lm_head.wieght", 0), pytest.raises(dx.Refusal, match=r"Did you mean 'lm_head\.weight'"):
        hashes({}, 1)


@pytest.mark.parametrize("step", [0, -1, True, 1.5])
def test_a_fault_before_the_first_decode_step_is_refused(step):
    with pytest.raises(dx.Refusal, match="1 or more"):
        faults.cache_one_short(at_step=step)
    with pytest.raises(dx.Refusal, match="1 or more"):
        faults.positions_shifted(from_step=step)


def test_a_fault_that_a_fresh_process_would_not_have_is_refused_there():
    with faults.mask_dropped(), pytest.raises(dx.Refusal, match="fresh process"):
        dx.compare(small(), PROMPT, {}, {"mkl_cbwr": "COMPATIBLE"}, 2)
