"""The same weights are recognised: after a reload, after rounding, and not after a change of one value."""

import json
import os
import subprocess
import sys

import pytest
import torch
from tiny_models import tiny

from divexplore.models import load_model
from divexplore.models.fingerprint import fingerprint_of


def test_two_loads_are_the_same(tmp_path):
    source = tiny("llama")
    source.save_pretrained(tmp_path)
    assert load_model(source).fingerprint.compare(load_model(tmp_path).fingerprint) == "same"


@pytest.mark.parametrize(("dtype", "word"), [("bfloat16", "bf16"), ("float16", "fp16")])
def test_a_rounded_copy_is_the_same_after_rounding(dtype, word):
    model = load_model(tiny("gpt2"))
    rounded = fingerprint_of(model.instance(dtype))
    assert model.fingerprint.compare(rounded) == f"same after rounding to {word}"
    assert rounded.compare(model.fingerprint) == f"same after rounding to {word}"


def test_one_value_moved_by_one_ulp_is_different():
    model = load_model(tiny("llama"))
    other = model.to_transformers("bfloat16")
    weight = other.model.layers[1].mlp.down_proj.weight
    one = weight[0, 0].clone()
    weight[0, 0] = torch.nextafter(one, torch.tensor(torch.inf, dtype=one.dtype))
    assert fingerprint_of(model.instance("bfloat16")).compare(fingerprint_of(other)) == "different"


def test_the_same_values_under_another_name_are_different():
    model = load_model(tiny("llama")).to_transformers()
    before = fingerprint_of(model)
    first, second = model.model.layers[0].self_attn, model.model.layers[1].self_attn
    first.q_proj, second.q_proj = second.q_proj, first.q_proj
    assert before.compare(fingerprint_of(model)) == "different"


def test_tied_tensors_count_once():
    tied = load_model(tiny("llama", tie_word_embeddings=True)).to_transformers()
    before = fingerprint_of(tied)
    tied.lm_head.weight = torch.nn.Parameter(tied.lm_head.weight.clone())
    assert before.compare(fingerprint_of(tied)) == "different"


def test_a_rounded_buffer_shows_in_the_buffers_and_nowhere_else():
    model = load_model(tiny("llama")).to_transformers()
    before = fingerprint_of(model)
    model.model.rotary_emb.inv_freq = model.model.rotary_emb.inv_freq.bfloat16().float()
    after = fingerprint_of(model)
    assert before.compare(after) == "same"
    assert before.buffers != after.buffers


def test_it_is_the_same_in_another_process(fairy_tales):
    script = (
        "import json; from divexplore.models import load_model; print(json.dumps(load_model().fingerprint.to_dict()))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"PYTHONHASHSEED": "7"},
    )
    assert json.loads(done.stdout) == fairy_tales.fingerprint.to_dict()


def test_a_large_model_is_not_hashed_before_someone_asks(monkeypatch):
    model = load_model(tiny("llama"))
    monkeypatch.setattr(model, "parameter_count", 7_000_000_000)
    assert model.known_fingerprint is None
    asked = model.fingerprint
    assert model.known_fingerprint is asked


def test_a_small_model_is_hashed_at_once():
    assert load_model(tiny("llama")).known_fingerprint is not None
