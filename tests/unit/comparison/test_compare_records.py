"""What a comparison says of prompts, lengths, ends, infinities, stops and of traces that were recorded before."""

from __future__ import annotations

import functools
import math

import pytest
import torch
from tiny_models import tiny

from divexplore.comparison.compare import compare, compare_traces
from divexplore.comparison.verdict import Verdict
from divexplore.engine.run import force, run
from divexplore.errors import Refusal
from divexplore.models import load_model
from divexplore.trace import Trace

PROMPT = [17, 4, 201, 96, 33, 150, 8, 77, 240, 5]
STEPS = 12


@functools.cache
def small(**changes):
    return load_model(tiny("llama", **changes))


@functools.cache
def recorded(dtype="float32", steps=STEPS):
    return run(small(), PROMPT, {"dtype": dtype}, steps)


def with_meta(trace, **changes):
    return Trace(trace.table, trace.meta | changes)


def test_left_out_both_sides_are_the_first_preset(fairy_tales):
    comparison = compare(fairy_tales, "The giant", max_new_tokens=2, evidence="fast")
    assert [trace.effective["batch_size"] for trace in (comparison.a, comparison.b)] == [1, 8]
    assert comparison.a.dtype == comparison.b.dtype == "bfloat16"


def test_a_wrong_side_is_refused_before_anything_runs():
    def never(*told):
        raise AssertionError("a side was run")

    with pytest.raises(Refusal, match="batch_sise"):
        compare(small(), PROMPT, {}, {"batch_sise": 8}, STEPS, progress=never)


def test_progress_names_the_side():
    seen = []
    compare(
        small(), PROMPT, {}, {}, 3, evidence="fast", progress=lambda side, done, total, text: seen.append((side, done))
    )
    assert seen == [("A", 1), ("A", 2), ("A", 3), ("B", 1), ("B", 2), ("B", 3)]


@pytest.mark.parametrize("stopped_in", ["A", "B"])
def test_a_stop_keeps_both_sides_as_far_as_they_came(stopped_in):
    """A partial comparison never claims that the runs agree."""
    pressed = []

    def progress(side, done, total, text):
        if side == stopped_in and done == 4:
            pressed.append(True)

    comparison = compare(small(), PROMPT, {}, {}, STEPS, progress=progress, stop=lambda: bool(pressed))
    stopped = comparison.a if stopped_in == "A" else comparison.b
    assert len(stopped) in (4, 5)
    assert stopped.partial
    assert comparison.inconclusive
    assert comparison.steps.height == min(len(comparison.a), len(comparison.b))
    assert comparison.a.token_ids[: comparison.steps.height] == comparison.b.token_ids[: comparison.steps.height]
    assert str(comparison)


@pytest.mark.parametrize("other", [None, 7, [], "a.parquet"], ids=repr)
def test_what_is_no_trace_is_refused(other):
    trace = run(load_model(tiny("llama")), [5, 6, 7], None, 1)
    for pair in ((trace, other), (other, trace)):
        with pytest.raises(Refusal, match="in place of a trace") as caught:
            compare_traces(*pair)
        assert all(caught.value.to_dict().values())


@pytest.mark.parametrize(("steps", "told"), [(11, False), (12, True)])
def test_steps_beyond_the_context_are_told_in_the_report(steps, told):
    model = load_model(tiny("llama", max_position_embeddings=16))
    found = compare(model, [17, 4, 201, 96, 33], {}, {"seed": 1}, steps, evidence="fast")
    sentence = "A and B: steps from 11 on lie beyond the model's context of 16 tokens"
    assert (sentence in found.judgement.evidence) == told
    assert (sentence in str(found)) == (sentence in found.to_markdown()) == told


def test_other_prompts_end_the_comparison_at_once():
    other = run(small(), [*PROMPT[:-1], 6], None, STEPS)
    comparison = compare_traces(recorded(), other)
    assert comparison.verdict is Verdict.PROMPT_MISMATCH
    assert comparison.steps.height == 0
    assert comparison.split is None
    assert comparison.judgement.also == ()
    assert f"position {len(PROMPT) - 1}" in comparison.why


def test_records_of_one_dtype_are_compared_by_their_hashes():
    comparison = compare_traces(recorded(), run(small(), PROMPT, {"batch_size": 8}, STEPS))
    direct = compare(small(), PROMPT, {}, {"batch_size": 8}, STEPS, evidence="fast")
    assert comparison.steps["differs"].to_list() == direct.steps["differs"].to_list()
    assert comparison.steps["epsilon"].null_count() == comparison.steps.height, "without rows there is no epsilon"
    assert comparison.first_drift == direct.first_drift
    assert comparison.verdict is direct.verdict


def test_records_of_two_dtypes_never_count_as_identical():
    comparison = compare_traces(recorded(steps=2), recorded("float64", 2))
    assert comparison.a.token_ids == comparison.b.token_ids
    assert comparison.steps["differs"].null_count() == 2
    assert comparison.inconclusive


def overruled(token):
    """A record in which step 5 took another token than the raw argmax, as a sampler or a penalty would."""
    prefix = [*recorded().token_ids[:5], token]
    return with_meta(force(small(), PROMPT, {"dtype": "float32"}, prefix), forced=0)


def test_a_token_below_the_raw_maximum_is_policy_and_its_gap_is_in_the_top_list():
    a, b = recorded(), overruled(int(recorded().top_ids[5, 1]))
    comparison = compare_traces(a, b)
    assert comparison.first_divergence == 5
    assert comparison.split.a.gap == a.top_logits[5, 0] - a.top_logits[5, 1]
    assert comparison.split.b.gap == -comparison.split.a.gap
    assert comparison.split.epsilon is None
    assert comparison.verdict is Verdict.POLICY
    assert "below the raw maximum" in comparison.why


def test_a_token_that_was_given_is_blamed_on_no_sampler():
    b = overruled(int(recorded().top_ids[5, 1]))
    comparison = compare_traces(recorded(), with_meta(b, forced=6))
    assert comparison.first_divergence == 5
    assert "was given, not chosen" in comparison.why
    assert "sampler" not in comparison.why


def test_a_token_outside_the_top_list_has_no_gap_rather_than_a_wrong_one():
    a = recorded()
    outside = next(token for token in range(257) if token not in a.top_ids[5])
    comparison = compare_traces(a, overruled(outside))
    assert comparison.split.a.gap is None
    assert comparison.split.pair_swing is None
    assert comparison.verdict is Verdict.POLICY
    assert "no gap" in str(comparison)
    assert comparison.to_dict()["split"]["pair_swing"] is None


def test_a_strict_prefix_is_no_divergence():
    comparison = compare_traces(recorded(), recorded(steps=STEPS - 4))
    assert comparison.first_divergence is None
    assert comparison.steps.height == STEPS - 4
    assert comparison.columns.height == STEPS


def test_an_end_on_one_side_only_is_a_stop_rule():
    free = recorded()
    end = next(token for token in free.token_ids[3:] if free.token_ids.index(token) >= 3)
    ended = run(small(eos_token_id=end), PROMPT, {"dtype": "float32"}, STEPS)
    assert ended.finish_reason == "eos"
    comparison = compare_traces(free, ended)
    assert comparison.verdict is Verdict.POLICY
    assert "eos" in comparison.why


def overflowing():
    net = tiny("llama")
    with torch.no_grad():
        net.model.layers[0].mlp.up_proj.weight *= 1000
        net.model.layers[0].mlp.down_proj.weight *= 1000
    return load_model(net)


@pytest.mark.parametrize("sides", [("float32", "float16"), ("float16", "float32"), ("float16", "float16")])
def test_nan_is_invalid_before_any_token_is_compared(sides):
    comparison = compare(overflowing(), PROMPT, *({"dtype": dtype} for dtype in sides), STEPS)
    assert comparison.verdict is Verdict.INVALID
    assert comparison.split is None
    assert "NaN" in comparison.why
    assert "float16" in comparison.why


def test_an_infinity_on_one_side_only_is_invalid():
    model = load_model(tiny("llama"))

    def suppress(module, args, output):
        if output.shape[0] == 2:
            output[..., 200] = -math.inf

    model.instance().lm_head.register_forward_hook(suppress)
    comparison = compare(model, PROMPT, {"batch_size": 1}, {"batch_size": 2}, 4, evidence="fast")
    assert comparison.verdict is Verdict.INVALID
    assert comparison.steps["epsilon"][0] == math.inf


def test_ids_suppressed_on_both_sides_are_no_difference():
    model = load_model(tiny("llama"))

    def suppress(module, args, output):
        output[..., 200:] = -math.inf

    model.instance().lm_head.register_forward_hook(suppress)
    comparison = compare(model, PROMPT, {}, {}, 4, evidence="fast")
    assert comparison.verdict is Verdict.IDENTICAL


def test_the_temporary_rows_are_deleted_when_a_side_fails(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    model = load_model(tiny("llama"))

    def interrupt(module, args, given):
        if given["input_ids"].shape[0] == 2:
            raise KeyboardInterrupt

    model.instance().register_forward_pre_hook(interrupt, with_kwargs=True)
    with pytest.raises(KeyboardInterrupt):
        compare(model, PROMPT, {}, {"batch_size": 2}, 4)
    assert list(tmp_path.iterdir()) == []


def test_a_side_out_of_memory_leaves_the_other_whole():
    model = load_model(tiny("llama"))

    def fail(module, args, given):
        if given["input_ids"].shape[0] == 8 and given["input_ids"].shape[1] == 1:
            raise torch.OutOfMemoryError("CUDA out of memory")

    model.instance().register_forward_pre_hook(fail, with_kwargs=True)
    comparison = compare(model, PROMPT, {}, {"batch_size": 8}, 4, evidence="fast")
    assert len(comparison.a) == 4
    assert len(comparison.b) == 1
    assert comparison.inconclusive
    assert "out of memory" in comparison.b.meta["error"]
    assert "out of memory" in str(comparison)
