"""What cannot be served is refused with a way out, and what was recorded before trouble came is kept."""

from __future__ import annotations

import functools

import pytest
import torch
from tiny_models import tiny

from divexplore.engine.run import force, run
from divexplore.errors import Refusal
from divexplore.models import load_model

PROMPT = [17, 4, 201, 96, 33]


@functools.cache
def small(kind="llama", **changes):
    return load_model(tiny(kind, **changes))


@pytest.fixture
def failing(request):
    """A model whose forward raises `error` at its call number `at`, counted from 0."""

    def make(error, at):
        model = load_model(tiny("llama"))
        calls = []

        def fail(module, args):
            calls.append(None)
            if len(calls) == at + 1:
                raise error

        model.instance().register_forward_pre_hook(fail)
        return model

    return make


def refused(*arguments, **options):
    with pytest.raises(Refusal) as caught:
        run(*arguments, **options)
    refusal = caught.value
    assert refusal.asked
    assert refusal.allowed
    assert refusal.do.endswith((".", "?"))
    assert str(refusal).startswith(refusal.asked)
    return refusal


def test_an_unknown_field_of_the_configuration():
    assert "batch_size" in refused(small(), PROMPT, {"batch_sise": 8}).do


@pytest.mark.parametrize("prompt", ["", []])
def test_an_empty_prompt(fairy_tales, prompt):
    assert "empty prompt" in refused(fairy_tales, prompt).asked


@pytest.mark.parametrize("steps", [0, -1, 2.5, "8", None, True])
def test_a_number_of_steps_that_is_none(steps):
    assert f"max_new_tokens={steps!r}" in refused(small(), PROMPT, None, steps).asked


def test_a_prompt_longer_than_the_context():
    refusal = refused(small("llama", max_position_embeddings=16), [1] * 16)
    assert "16 tokens" in refusal.asked
    assert "context of 16" in refusal.allowed


@pytest.mark.parametrize("config", [{"left_pad": 12}, {"fill": [[1] * 17]}])
def test_a_batch_wider_than_the_context(config):
    refusal = refused(small("llama", max_position_embeddings=16), PROMPT, config)
    assert "17 tokens wide" in refusal.asked


def test_more_steps_than_there_are_learned_positions():
    """GPT-2 would end in an index error deep in an embedding."""
    refusal = refused(small("gpt2", n_positions=16), PROMPT, None, 12)
    assert "at most 11" in refusal.do
    assert len(run(small("gpt2", n_positions=16), PROMPT, None, 11)) == 11


def test_learned_positions_are_counted_with_the_pads_that_a_filler_needs():
    """Positions are counted without pads, so the longest row decides."""
    model = small("gpt2", n_positions=16)
    filler = [[1] * 9]
    refusal = refused(model, PROMPT, {"fill": filler}, 8)
    assert "at most 7" in refusal.do
    assert not run(model, PROMPT, {"fill": filler}, 7).partial


def test_steps_beyond_the_context_of_a_rotary_model_are_warned_of():
    trace = run(small("llama", max_position_embeddings=16), PROMPT, None, 14)
    assert len(trace) == 14
    assert any("from 11 on" in warning and "16 tokens" in warning for warning in trace.meta["warnings"])


def test_a_device_that_is_not_here():
    refusal = refused(small(), PROMPT, {"device": "cuda:7"})
    assert "cuda:7" in refusal.asked


def test_a_dtype_that_the_device_cannot_do(monkeypatch):
    real = torch.nn.functional.linear

    def linear(one, *others):
        if one.dtype is torch.float16:
            raise RuntimeError("\"addmm_impl_cpu_\" not implemented for 'Half'\nat a place that nobody knows")
        return real(one, *others)

    monkeypatch.setattr(torch.nn.functional, "linear", linear)
    refusal = refused(small(), PROMPT, {"dtype": "float16"})
    assert "dtype=float16 on device=cpu" in refusal.asked
    assert "not implemented for 'Half'" in refusal.asked
    assert "\n" not in str(refusal)


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB"),
        RuntimeError(
            "[enforce fail at alloc_cpu.cpp:124] DefaultCPUAllocator: can't allocate memory: you tried 9 bytes"
        ),
        MemoryError(),
    ],
    ids=["cuda", "cpu", "python"],
)
@pytest.mark.parametrize("at", [0, 3])
def test_out_of_memory_keeps_what_was_recorded(failing, error, at):
    whole = run(small(), PROMPT, None, 8)
    with pytest.warns(RuntimeWarning, match="out of memory"):
        trace = run(failing(error, at), PROMPT, None, 8)
    assert trace.finish_reason == "error"
    assert trace.partial
    assert "smaller batch" in trace.meta["error"]
    assert trace.token_ids == whole.token_ids[:at]
    assert trace.table.schema == whole.table.schema
    assert trace.table.drop("seconds").equals(whole.table[:at].drop("seconds"))
    assert [len(row["token_ids"]) for row in trace.meta["rows"]] == [at]


def test_any_other_error_keeps_what_was_recorded_and_is_told(failing, tmp_path):
    with pytest.warns(RuntimeWarning, match="IndexError: a hole"):
        trace = run(failing(IndexError("a hole"), 2), PROMPT, {"batch_size": 2}, 8)
    assert len(trace) == 2
    assert trace.meta["error"] == "IndexError: a hole"
    assert type(trace).load(trace.save(tmp_path / "partial.parquet")) == trace


def test_stop_in_mid_run_keeps_the_trace_and_takes_at_most_one_more_step():
    whole = run(small(), PROMPT, None, 8)
    pressed = False

    def progress(done, total, text):
        nonlocal pressed
        assert total == 8
        pressed = done == 3

    trace = run(small(), PROMPT, None, 8, progress=progress, stop=lambda: pressed)
    assert 3 <= len(trace) <= 4
    assert trace.finish_reason == "stopped"
    assert trace.partial
    assert trace.token_ids == whole.token_ids[: len(trace)]


def test_a_stop_after_the_last_step_is_no_partial_run():
    done: list[int] = []
    trace = run(small(), PROMPT, None, 2, progress=lambda *told: done.append(told[0]), stop=lambda: 2 in done)
    assert done == [1, 2]
    assert trace.finish_reason == "length"
    assert not trace.partial


def test_a_run_that_was_stopped_before_it_began_has_no_step():
    trace = run(small(), PROMPT, None, 2, stop=lambda: True)
    assert (len(trace), trace.finish_reason, trace.partial) == (0, "stopped", True)


def test_progress_tells_steps_and_the_end_of_the_text(fairy_tales):
    seen = []
    trace = run(fairy_tales, "The giant", None, 30, progress=lambda *told: seen.append(told))
    assert [done for done, _, _ in seen] == list(range(1, 31))
    assert all(len(text) <= 40 for _, _, text in seen)
    assert "".join(trace.texts).endswith(seen[-1][2])
    assert len(seen[-1][2]) == 40


def overflowing():
    """CASES 15: a block whose products overflow fp16 and no other dtype."""
    net = tiny("llama")
    with torch.no_grad():
        net.model.layers[0].mlp.up_proj.weight *= 1000
        net.model.layers[0].mlp.down_proj.weight *= 1000
    return load_model(net)


def test_nan_is_no_token(tmp_path):
    """`argmax` of NaN is a token: the first NaN's id, with nothing to show that it means nothing."""
    model = overflowing()
    trace = run(model, PROMPT, {"dtype": "float16"}, 4)
    assert trace.finish_reason == "invalid"
    assert trace.token_ids == []
    assert trace.meta["invalid"]["step"] == 0
    assert trace.meta["invalid"]["nan"] > 0
    assert not trace.partial
    assert type(trace).load(trace.save(tmp_path / "invalid.parquet")) == trace
    for dtype in ("float32", "bfloat16"):
        assert len(run(model, PROMPT, {"dtype": dtype}, 4)) == 4


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_is_not_finite_in_mid_run_ends_it_there(value):
    model = load_model(tiny("llama"))
    calls = []

    def spoil(module, args, output):
        calls.append(None)
        if len(calls) == 3:
            output[0, -1, 200] = value

    model.instance().lm_head.register_forward_hook(spoil)
    trace = run(model, PROMPT, None, 8)
    assert trace.finish_reason == "invalid"
    assert trace.token_ids == run(small(), PROMPT, None, 2).token_ids
    facts = trace.meta["invalid"]
    assert facts["step"] == 2
    assert facts["nan"] + facts["positive_infinite"] == 1


def test_not_finite_in_another_row_is_no_matter_of_the_observed_one():
    model = load_model(tiny("llama"))

    def spoil(module, args, output):
        output[1, -1] = float("nan")

    model.instance().lm_head.register_forward_hook(spoil)
    trace = run(model, PROMPT, {"batch_size": 2, "fill": [[5, 6]]}, 4)
    assert trace.finish_reason == "length"
    assert len(trace) == 4


def test_a_forced_run_refuses_an_empty_list():
    with pytest.raises(Refusal):
        force(small(), PROMPT, None, [])
