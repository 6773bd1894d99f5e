"""Each guard fires where it must, with the outcome that it names, and not where the runs are honest."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from made_traces import made
from tiny_models import tiny

import divexplore as dx
from divexplore.comparison.guards import GUARDS, guards, observe
from divexplore.config import RunConfig
from divexplore.testing import faults

TOKENS, BITS = [4, 5, 6], [0, 1, 2]
HONEST = made(TOKENS, BITS)


def fired(a, b, **known):
    return {guard.name: guard for guard in guards(a, b, **known) if guard.ok is False}


def seen(**changes):
    return {"rows": [1], "forwards": 3, "cached": True, "deviations": {}} | changes


def below_the_maximum():
    table = HONEST.table.with_columns(logit=HONEST.table["logit"] - 0.5)
    return dataclasses.replace(HONEST, table=table)


DISHONEST = {
    "prompt_ids": lambda: made(TOKENS, BITS, prompt={"text": None, "ids": [1, 1, 2, 3], "chat": False}),
    "greedy": below_the_maximum,
    "finite": lambda: made(TOKENS, BITS, invalid={"step": 3, "nan": 7}),
    "inputs": lambda: made(TOKENS, BITS, inputs=seen(deviations={"mask": "forward 0: 5 columns are visible"})),
    "weights": lambda: made(TOKENS, BITS, tensors={"parameters": "other", "buffers": "b"}),
    "buffers": lambda: made(TOKENS, BITS, tensors={"parameters": "w", "buffers": "other"}),
    "batch": lambda: made(TOKENS, BITS, RunConfig(batch_size=8), inputs=seen(rows=[1])),
    "cache": lambda: made(TOKENS, BITS, RunConfig(use_cache=True), inputs=seen(cached=False)),
    "kernel": lambda: made(
        TOKENS, BITS, RunConfig(attn_implementation="eager"), effective={"attn_implementation": "sdpa"}
    ),
    "dtype": lambda: made(TOKENS, BITS, RunConfig(dtype="bfloat16"), effective={"dtype": "float32"}),
    "threads": lambda: made(TOKENS, BITS, RunConfig(num_threads=4), effective={"num_threads": 2}),
}


@pytest.mark.parametrize("name", DISHONEST)
def test_a_guard_fires_with_the_outcome_it_names(name):
    for pair in ((HONEST, DISHONEST[name]()), (DISHONEST[name](), HONEST)):
        found = fired(*pair)
        assert name in found
        assert found[name].outcome == GUARDS[name]
        assert found[name].why.endswith(".")


def test_the_observer_fires_with_the_outcome_it_names():
    found = fired(HONEST, HONEST, observed=("step 2 chooses 'x'", None))
    assert list(found) == ["observer"]
    assert found["observer"].outcome == "inconclusive"
    assert guards(HONEST, HONEST, observed=(None, None))[-1].ok is True


def test_no_guard_fires_on_an_honest_pair():
    found = guards(HONEST, made(TOKENS, [9, 9, 9], RunConfig(batch_size=8)), epsilons=(0.1, 0.2, 0.1))
    assert [guard.name for guard in found] == list(GUARDS)
    assert [guard.name for guard in found if guard.ok is not True] == ["observer"]  # which was not asked
    assert set(found[0].to_dict()) == {"name", "ok", "why", "outcome"}


def test_an_infinity_on_one_side_only_is_seen():
    assert list(fired(HONEST, HONEST, epsilons=(0.0, float("inf")))) == ["finite"]


def test_threads_that_nobody_named_are_seen():
    assert list(fired(HONEST, made(TOKENS, BITS, effective={"num_threads": 8}))) == ["threads"]


def test_two_dtypes_of_one_checkpoint_are_honest_and_of_two_are_not():
    narrow = RunConfig(dtype="bfloat16")
    assert fired(HONEST, made(TOKENS, BITS, narrow, tensors={"parameters": "cast", "buffers": "b"})) == {}
    other = {"name": "made", "vocab_size": 100, "fingerprint": {"loaded": "x", "buffers": "b"}}
    assert list(fired(HONEST, made(TOKENS, BITS, narrow, model=other))) == ["weights"]


def test_an_old_record_is_neither_honest_nor_dishonest():
    old = made(TOKENS, BITS)
    del old.meta["inputs"], old.meta["tensors"], old.meta["forced"]
    unknown = [guard.name for guard in guards(old, HONEST) if guard.ok is None]
    assert unknown == ["inputs", "weights", "buffers", "batch", "cache", "observer"]


@pytest.fixture(scope="module")
def model():
    return dx.load_model(tiny("gpt2"))


PROMPT = [3, 1, 4, 1, 5]
PADDED = {"left_pad": 3}


@pytest.mark.parametrize(
    ("fault", "b", "name"),
    [
        (lambda only: faults.mask_dropped(only=only), PADDED, "inputs"),
        (lambda only: faults.positions_missing(only=only), PADDED, "inputs"),
        (lambda only: faults.positions_shifted(only=only), {"seed": 1}, "inputs"),
        (lambda only: faults.cache_one_short(only=only, at_step=2), {"seed": 1}, "inputs"),
        (
            lambda only: faults.weight_changed("transformer.h.0.mlp.c_fc.weight", (0, 0), only=only),
            {"seed": 1},
            "weights",
        ),
    ],
    ids=["mask", "positions missing", "positions shifted", "cache", "weight"],
)
def test_a_real_fault_is_seen_at_the_models_door(model, fault, b, name):
    with fault(b):
        a, b = dx.run(model, PROMPT, {}, 4), dx.run(model, PROMPT, b, 4)
    assert list(fired(a, b)) == [name]


def test_a_buffer_that_was_rounded_is_seen():
    rotary = dx.load_model(tiny("llama"))
    a = dx.run(rotary, PROMPT, {"seed": 0}, 3)
    module = rotary.master.model.rotary_emb
    module.inv_freq.data = module.inv_freq.to(torch.bfloat16).float()
    assert list(fired(a, dx.run(rotary, PROMPT, {"seed": 1}, 3))) == ["buffers"]


@pytest.mark.parametrize(
    "config",
    [
        {"batch_size": 4, "fill": [[7], [8, 9], [1, 2, 3, 4, 5, 6, 7]]},
        {"left_pad": 2, "batch_size": 2},
        {"use_cache": False},
        {"prefill_chunk": 2},
        {"dtype": "bfloat16", "attn_implementation": "eager"},
    ],
    ids=str,
)
def test_honest_runs_of_every_kind_pass(model, config):
    a, b = dx.run(model, PROMPT, {}, 4), dx.run(model, PROMPT, config, 4)
    observed = observe(model, model.encode(PROMPT), RunConfig.of(config), b)
    assert observed is None
    assert fired(a, b, observed=(None, observed)) == {}


def test_a_batch_that_is_not_real_is_seen(model, monkeypatch):
    """The closest peer's batch of 8 is a batch of 1."""
    from divexplore.engine import run as engine

    monkeypatch.setattr(engine, "fill_batch", lambda m, ids, config, chat: _fill(m, ids, RunConfig(), chat=chat))
    a, b = dx.run(model, PROMPT, {}, 3), dx.run(model, PROMPT, {"batch_size": 8}, 3)
    assert list(fired(a, b)) == ["batch"]


def _fill(*args, **options):
    from divexplore.engine.batch import fill_batch

    return fill_batch(*args, **options)


def test_tokens_that_only_a_recorded_run_has_are_seen(model):
    trace = dx.run(model, PROMPT, {}, 4)
    table = trace.table.with_columns(token_id=trace.table["token_id"] + (trace.table["step"] == 2))
    said = observe(model, model.encode(PROMPT), RunConfig(), dataclasses.replace(trace, table=table))
    assert said.startswith("step 2 ")
