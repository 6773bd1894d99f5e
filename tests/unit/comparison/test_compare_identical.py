"""A against A is identical: in one process, and against a model loaded afresh. Hidden variables would show here."""

from __future__ import annotations

import pytest
import torch
from transformers import LlamaForCausalLM

from divexplore.comparison.compare import compare, compare_traces
from divexplore.comparison.verdict import Verdict
from divexplore.config import PRESETS
from divexplore.engine.run import run
from divexplore.models import load_model

PROMPT, STEPS = "The giant", 16
SIDES = {}
for preset in PRESETS.values():
    for side in (preset.a, preset.b):
        SIDES.setdefault(str(side), side)


@pytest.fixture(scope="module")
def loaded_again():
    """Another load of the same weights, with casts of its own."""
    return load_model("fairy-tales")


@pytest.mark.parametrize("side", SIDES.values(), ids=SIDES)
def test_a_side_of_a_preset_against_itself(fairy_tales, side):
    comparison = compare(fairy_tales, PROMPT, side, side, STEPS, evidence="fast")
    assert comparison.verdict is Verdict.IDENTICAL
    assert not comparison.inconclusive
    assert comparison.first_drift is None
    assert comparison.first_divergence is None
    assert comparison.steps["epsilon"].to_list() == [0.0] * STEPS
    assert comparison.a.table["row_hash"].equals(comparison.b.table["row_hash"])
    assert str(STEPS) in comparison.why


@pytest.mark.parametrize("side", SIDES.values(), ids=SIDES)
def test_a_side_of_a_preset_against_a_model_loaded_again(fairy_tales, loaded_again, side):
    assert loaded_again is not fairy_tales
    one, other = (run(model, PROMPT, side, STEPS) for model in (fairy_tales, loaded_again))
    comparison = compare_traces(one, other)
    assert comparison.verdict is Verdict.IDENTICAL
    assert not comparison.inconclusive


def test_the_order_of_casts_leaves_no_mark(fairy_tales):
    """A cast starts from the checkpoint's tensors, never from an earlier and narrower cast."""
    before = run(fairy_tales, PROMPT, {"dtype": "float32"}, STEPS)
    run(fairy_tales, PROMPT, {"dtype": "float16"}, 2)
    run(fairy_tales, PROMPT, {"dtype": "bfloat16"}, 2)
    assert compare_traces(before, run(fairy_tales, PROMPT, {"dtype": "float32"}, STEPS)).verdict is Verdict.IDENTICAL


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_a_cast_is_what_from_pretrained_loads_in_that_dtype(fairy_tales, tmp_path, dtype):
    """Parameters are rounded and buffers are not: a rounded ``inv_freq`` would cost more than a batch of eight."""
    fairy_tales.to_transformers().save_pretrained(tmp_path)
    theirs = LlamaForCausalLM.from_pretrained(tmp_path, dtype=getattr(torch, dtype))
    loaded = load_model(theirs, fairy_tales.tokenizer)
    text = "Once upon a time there was a giant who lived in a castle behind the dark forest"
    one, other = (
        run(model, text, config, STEPS) for model, config in ((fairy_tales, {"dtype": dtype}), (loaded, None))
    )
    assert other.dtype == dtype
    assert compare_traces(one, other).verdict is Verdict.IDENTICAL


def test_the_bundled_pair_is_a_comparison_that_can_fail(fairy_tales):
    """The same measures see drift where there is some: bf16 against fp32 always has it."""
    comparison = compare(fairy_tales, PROMPT, PRESETS["bf16-fp32"].a, PRESETS["bf16-fp32"].b, STEPS, evidence="fast")
    assert comparison.verdict is not Verdict.IDENTICAL
    assert comparison.first_drift == 0
