"""What the ladder must not miss, nor see: late faults, faults behind a knob that does nothing in fp64, uneven rounding."""

from __future__ import annotations

import contextlib

import pytest
import torch
from small_models import BENIGN, PROMPT, nearly_tied, small
from tiny_models import tiny

import divexplore as dx
from divexplore.comparison.gather import BEYOND_SPLIT, JUMP, WITHOUT_SPLIT, covered_steps
from divexplore.engine.interventions import intervene
from divexplore.models import load_model
from divexplore.testing import faults


def on_the_head(hook):
    """In every run of the side with a seed, put something on the model's head: what no guard can see."""

    @contextlib.contextmanager
    def around(net, config):
        handle = hook(net.get_output_embeddings()) if config.seed == 1 else None
        try:
            yield
        finally:
            if handle is not None:
                handle.remove()

    return intervene(around)


def late(start: int, by: float):
    """One logit moves from a step on."""

    def hook(head):
        calls = 0

        def move(module, args, out):
            nonlocal calls
            calls += 1
            return out if calls <= start else out + by * (torch.arange(out.shape[-1]) == 7).to(out.dtype)

        return head.register_forward_hook(move)

    return on_the_head(hook)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_fault_that_begins_after_the_usual_steps_is_structural(dtype):
    with late(WITHOUT_SPLIT + 8, 1.0):
        found = dx.compare(small(), PROMPT, {"dtype": dtype}, {"dtype": dtype, "seed": 1}, WITHOUT_SPLIT + 16)
    assert found.verdict == "structural"
    assert found.evidence.floor.height == WITHOUT_SPLIT + 9
    assert any(f"begins at step {WITHOUT_SPLIT + 8}" in note for note in found.evidence.notes)


def test_what_was_not_covered_is_not_claimed():
    found = dx.compare(small(), PROMPT, {}, {"batch_size": 4}, WITHOUT_SPLIT + 8)
    assert found.verdict == "drift_only"
    assert f"over the first {WITHOUT_SPLIT} steps" in found.why
    whole = dx.compare(small(), PROMPT, {}, {"batch_size": 4}, WITHOUT_SPLIT + 8, evidence="full")
    assert "over the first" not in whole.why
    assert whole.evidence.floor.height == WITHOUT_SPLIT + 8


def test_the_top_rung_follows_the_drift_where_it_jumps_and_nowhere_else():
    rounding = [0.5, 1.0, 0.25] * 20
    assert covered_steps(rounding, None) == WITHOUT_SPLIT
    assert covered_steps(rounding, 10) == 11 + BEYOND_SPLIT
    assert covered_steps(rounding[:7], None) == 7
    assert covered_steps([], None) == 0
    jump = [*rounding[:50], JUMP * 1.01, 100.0, *rounding]
    assert covered_steps(jump, None) == 51
    assert covered_steps(jump, 10) == 51
    assert covered_steps([0.0] * 40 + [1e-9], None) == 41


@pytest.mark.parametrize("knob", [{"mkldnn": (True, False)}, {"float32_matmul_precision": ("highest", "medium")}])
def test_a_fault_is_seen_where_the_differing_knob_does_nothing(knob):
    ((name, values),) = knob.items()
    sides = [{name: value} for value in values]
    with faults.weight_changed("lm_head.weight", (slice(0, 40),), 2.0, only=sides[1]):
        found = dx.compare(small(), PROMPT, *sides, 12)
    assert found.verdict == "structural"
    assert not found.evidence.ladder[-1].vacuous
    assert found.evidence.missing is None


@pytest.mark.parametrize(("a", "b"), [("bfloat16", "float32"), ("float32", "float16"), ("bfloat16", "float16")])
@pytest.mark.parametrize("fault", ["weight", "mask", "cache"])
def test_another_dtype_hides_no_fault(a, b, fault):
    sides = [{"dtype": a, "left_pad": 3}, {"dtype": b, "left_pad": 3, "seed": 1}]
    bug = {
        "weight": lambda: faults.weight_changed("lm_head.weight", (slice(0, 40),), 2.0, only=sides[1]),
        "mask": lambda: faults.mask_dropped(only=sides[1]),
        "cache": lambda: faults.cache_one_short(only=sides[1]),
    }[fault]
    benign = dx.compare(small(), PROMPT, *sides, 12)
    assert benign.verdict in BENIGN
    assert benign.evidence.weight_rounding > 0
    with bug():
        assert dx.compare(small(), PROMPT, *sides, 12).verdict == "structural"


def test_a_fault_beside_another_dtype_is_seen_where_no_weight_is_rounded():
    """A bf16 checkpoint holds the same values in fp32: nothing of the difference is weight rounding."""
    sides = [{"dtype": "bfloat16"}, {"dtype": "float32", "seed": 1}]
    benign = dx.compare("fairy-tales", "The giant", *sides, 12)
    assert benign.verdict in BENIGN
    assert benign.evidence.weight_rounding < 1e-9
    name = "model.layers.0.self_attn.q_proj.weight"
    with faults.weight_changed(name, (slice(0, 64),), 0, only=sides[1]):
        assert dx.compare("fairy-tales", "The giant", *sides, 12).verdict == "structural"


def test_a_kernel_that_is_worse_than_its_dtype_makes_drift_inconclusive():
    """All of it vanishes in fp64, and no token differs; yet one side rounds far more than fp32 does."""

    def cut(module, args):
        hidden = args[0]
        return (hidden if hidden.dtype == torch.float64 else hidden.to(torch.float16).to(hidden.dtype), *args[1:])

    with on_the_head(lambda head: head.register_forward_pre_hook(cut)):
        found = dx.compare(small(), PROMPT, {}, {"seed": 1}, 6)
    assert found.verdict == "drift_only"
    assert found.inconclusive
    assert "B rounds" in found.why
    assert "times worse" in found.why
    assert not dx.compare(small(), PROMPT, {}, {"batch_size": 4}, 6).inconclusive


def test_rows_that_are_bit_equal_are_not_structural_in_a_model_that_multiplies_rounding():
    net = tiny("llama", 64, 7, num_hidden_layers=16, initializer_range=0.3)
    with torch.no_grad():
        for layer in net.model.layers:
            layer.self_attn.q_proj.weight *= 10
    found = dx.compare(load_model(net), PROMPT, {"dtype": "bfloat16"}, {"dtype": "bfloat16", "batch_size": 8}, 10)
    assert "structural" not in (found.verdict, *found.judgement.also)


@pytest.mark.parametrize("sides", [("float32", "float16"), ("float16", "float32"), ("float16", "float16")])
def test_full_evidence_keeps_a_run_without_one_step(sides):
    net = tiny("llama", 64, 3)
    with torch.no_grad():
        net.model.layers[0].mlp.up_proj.weight *= 3000
        net.model.layers[0].mlp.down_proj.weight *= 3000
    a, b = ({"dtype": dtype} for dtype in sides)
    found = dx.compare(load_model(net), PROMPT, a, b | {"seed": 1}, 8, evidence="full")
    assert found.verdict == "invalid"


def test_a_referee_that_sees_a_tie_is_undecided():
    """Two equal rows of the head: in fp64 too both ids hold one logit, whatever the last bits of a product say."""
    model, chosen, double = nearly_tied(1, apart=0)
    low, high = sorted((chosen, double))
    found = dx.compare(model, PROMPT, {}, {"suppress_tokens": [low]}, 6)
    assert {found.split.a.token_id, found.split.b.token_id} == {low, high}
    assert found.evidence.referee.undecided
    assert abs(found.evidence.referee.gap) < 1e-9


def test_a_fault_that_met_no_run_says_so():
    with pytest.warns(RuntimeWarning, match=r"never acted: no run had just only=dict\(left_pad=3\)"):  # noqa: SIM117
        with faults.mask_dropped(only={"left_pad": 3}):
            dx.run(small(), PROMPT, {"left_pad": 3, "num_threads": 1}, 2)


def test_a_fork_goes_on_as_the_configuration_would():
    """Past the end of a run that stopped by itself; and no further than an end-of-sequence token."""
    net = tiny("llama", 64, 1)
    tokens = dx.run(net, PROMPT, {}, 9).token_ids
    last = next(step for step in range(2, 8) if tokens[step] not in tokens[:step])
    chosen = tokens[last]
    model = load_model(net)
    model.eos_ids = frozenset({chosen})
    found = dx.compare(model, PROMPT, {}, {"seed": 1}, 9, evidence="fast")
    assert found.a.finish_reason == "eos"
    assert len(found.a) == last + 1
    other = next(token for token in found.a.top_ids[last].tolist() if token != chosen)
    on = found.fork("a", last, other)
    assert on.token_ids[: last + 1] == [*found.a.token_ids[:last], other]
    assert len(on) == 9 or on.finish_reason == "eos"
    assert len(on) > last + 1
    ended = found.fork("a", 1, chosen)
    assert (len(ended), ended.finish_reason, ended.partial) == (2, "eos", False)
