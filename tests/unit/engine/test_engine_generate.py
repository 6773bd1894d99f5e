"""A free run is what `generate` does, bit for bit in the same shapes: no knob of ours moves a logit."""

from __future__ import annotations

import functools

import pytest
import torch
from by_generate import by_generate
from tiny_models import tiny

from divexplore.config import RunConfig
from divexplore.engine.batch import fill_batch
from divexplore.engine.run import decode, run
from divexplore.models import load_model

PROMPT = [17, 4, 201, 96, 33, 150, 8, 77, 240, 5]
STEPS = 10
SHAPES = {
    "alone": {},
    "eight copies": {"batch_size": 8},
    "mixed lengths": {"fill": [[9, 8, 7], [3] * 13, [100, 50], PROMPT[:7]], "row": 2},
    "padded": {"left_pad": 3},
}
DTYPES = ("float32", "bfloat16", "float16")


@functools.cache
def small(kind):
    return load_model(tiny(kind))


def both_ways(model, config, steps):
    """A recorded free run and `generate`, of one batch; the run's rows are kept as they came."""
    prompt = model.encode(PROMPT)
    rows = []
    trace = decode(model, prompt, config, steps, on_row=lambda step, row, token: rows.append(row.clone()))
    batch = fill_batch(model, prompt.ids, config, chat=False)
    net = model.instance(config.dtype)
    generated = by_generate(net, batch, steps, use_cache=config.use_cache is not False)
    return trace, rows, generated


def assert_equal(trace, rows, generated):
    assert trace.table["row_hash"].to_list() == generated.hashes
    for row, expected in zip(rows, generated.rows, strict=True):
        assert torch.equal(row.to(expected.dtype), expected)
    assert [row["token_ids"] for row in trace.meta["rows"]] == generated.tokens
    assert trace.token_ids == generated.tokens[trace.effective["row"]]


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", ["llama", "gpt2", "mistral", "bloom"])
def test_a_free_run_is_generate_bit_for_bit(kind, dtype, shape):
    config = RunConfig(dtype=dtype, **shape)
    trace, rows, generated = both_ways(small(kind), config, STEPS)
    assert len(set(trace.table["row_hash"])) == STEPS, "a run that repeats itself proves little"
    assert rows[0].dtype == getattr(torch, dtype)
    assert_equal(trace, rows, generated)


@pytest.mark.parametrize("kind", ["llama", "gpt2", "bloom"])
def test_without_a_cache_too(kind):
    trace, rows, generated = both_ways(small(kind), RunConfig(use_cache=False, batch_size=2, left_pad=1), 5)
    assert_equal(trace, rows, generated)
    assert set(trace.table["phase"]) == {"prefill"}


@pytest.mark.parametrize("batch_size", [1, 8])
def test_on_a_model_with_weights_of_a_language(fairy_tales, batch_size):
    config = RunConfig(dtype="bfloat16", batch_size=batch_size)
    trace, rows, generated = both_ways(fairy_tales, config, 12)
    assert_equal(trace, rows, generated)


def test_a_filler_that_ends_early_is_fed_pads_as_generate_does():
    """The batch never shrinks, and the observed row goes on to its last step."""
    config = RunConfig(fill=[[9, 8, 7], [60, 61], [200] * 4, [1, 2, 3, 4, 5]], row=1)
    without = run(small("llama"), PROMPT, config, STEPS)
    observed, streams = without.token_ids, [row["token_ids"] for row in without.meta["rows"]]
    index, end = next((i, token) for i in range(5) for token in streams[i][:4] if token not in observed)
    filler = streams[index]
    model = load_model(tiny("llama", eos_token_id=end))
    trace, rows, generated = both_ways(model, config, STEPS)
    assert_equal(trace, rows, generated)
    ended = filler.index(end)
    pads = trace.meta["rows"][index]["token_ids"][ended + 1 :]
    assert len(pads) == STEPS - ended - 1
    assert set(pads) == {end}, "the end-of-sequence id stands in for a pad id that the model lacks"
    assert filler[ended + 1 :] != pads, "without an end the filler went on otherwise"
    assert trace.token_ids == observed
    assert trace.finish_reason == "length"


def test_the_observed_row_ends_the_run_at_its_end_of_sequence():
    free = run(small("llama"), PROMPT, None, STEPS)
    end = next(token for token in free.token_ids[2:] if free.token_ids.index(token) >= 2)
    at = free.token_ids.index(end)
    model = load_model(tiny("llama", eos_token_id=end))
    for batch_size in (1, 3):
        trace = run(model, PROMPT, {"batch_size": batch_size}, STEPS)
        assert trace.token_ids == free.token_ids[: at + 1]
        assert trace.finish_reason == "eos"
        assert not trace.partial
    assert_equal(*both_ways(model, RunConfig(), STEPS))
