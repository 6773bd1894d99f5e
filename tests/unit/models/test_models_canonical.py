"""One canonical load: parameters alone are cast, from the checkpoint, into aligned memory."""

import pytest
import torch
from tiny_models import KINDS, tiny
from transformers import AutoModelForCausalLM

from divexplore.errors import Refusal
from divexplore.models import load_model
from divexplore.models.catalog import bundled_folder

DTYPES = {"float64": torch.float64, "float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@pytest.mark.parametrize("kind", KINDS)
def test_an_instance_is_cast_aligned_and_without_gradients(kind):
    source = tiny(kind)
    model = load_model(source)
    for name, dtype in DTYPES.items():
        instance = model.instance(name)
        pairs = list(zip(source.named_parameters(), instance.named_parameters(), strict=True))
        assert not instance.training
        for (name_before, before), (name_after, after) in pairs:
            assert name_before == name_after
            assert after.dtype == dtype
            assert after.data_ptr() % 64 == 0
            assert after.data_ptr() != before.data_ptr()
            assert not after.requires_grad
            assert torch.equal(after, before.to(dtype))


@pytest.mark.parametrize("kind", KINDS)
def test_buffers_keep_the_values_that_from_pretrained_leaves(kind):
    source = tiny(kind)
    instance = load_model(source).instance("bfloat16")
    expected = dict(source.named_buffers())
    found = dict(instance.named_buffers())
    assert expected.keys() == found.keys()
    for name, buffer in expected.items():
        assert found[name].dtype == buffer.dtype
        assert torch.equal(found[name], buffer)


def test_the_bundled_model_keeps_fp32_rotary_frequencies_though_its_weights_are_bf16(fairy_tales):
    base = 10000.0 ** (-torch.arange(0, 32, 2, dtype=torch.float64) / 32)
    for dtype in (None, "float32", "bfloat16"):
        frequencies = fairy_tales.instance(dtype).model.rotary_emb.inv_freq
        assert frequencies.dtype == torch.float32
        # a frequency rounded to bf16 is off by up to 2^-9
        assert torch.allclose(frequencies.double(), base, rtol=2**-22, atol=0)


def test_casts_start_from_the_checkpoint_not_from_an_earlier_cast():
    model = load_model(tiny("llama"))
    expected = {name: parameter.clone() for name, parameter in model.instance("float32").named_parameters()}
    model.instance("bfloat16")
    for name, parameter in model.instance("float32").named_parameters():
        assert torch.equal(parameter, expected[name])


def test_tied_embeddings_stay_one_tensor(fairy_tales):
    for dtype in (None, "float32"):
        instance = fairy_tales.instance(dtype)
        assert instance.lm_head.weight is instance.model.embed_tokens.weight


def test_instances_are_cached_by_dtype(fairy_tales):
    assert fairy_tales.instance("float32") is fairy_tales.instance(torch.float32)
    assert fairy_tales.instance() is fairy_tales.instance("bfloat16")


def test_earlier_casts_are_dropped_when_memory_would_not_hold_both(monkeypatch):
    model = load_model(tiny("llama"))
    first = model.instance("float64")
    monkeypatch.setattr("divexplore.models.model.psutil.virtual_memory", lambda: type("Memory", (), {"available": 0}))
    model.instance("bfloat16")
    assert model.instance("float64") is not first


def test_modules_kept_in_fp32_stay_there_as_transformers_does_it():
    source = tiny("llama")
    source._keep_in_fp32_modules = {"q_proj"}
    source._keep_in_fp32_modules_strict = {"mlp.gate*"}
    model = load_model(source)
    wide = {
        dtype: {name for name, p in model.instance(dtype).named_parameters() if p.dtype == torch.float32}
        for dtype in ("float16", "bfloat16", "float64")
    }
    queries = {f"model.layers.{i}.self_attn.q_proj.weight" for i in (0, 1)}
    gates = {f"model.layers.{i}.mlp.gate_proj.weight" for i in (0, 1)}
    assert wide == {"float16": queries | gates, "bfloat16": gates, "float64": set()}


def test_a_model_in_memory_is_left_as_it_is_and_its_facts_are_kept():
    source = tiny("llama").train()
    before = {name: parameter.clone() for name, parameter in source.named_parameters()}
    model = load_model(source)
    model.instance("bfloat16")
    assert source.training
    assert all(parameter.requires_grad for parameter in source.parameters())
    assert all(torch.equal(parameter, before[name]) for name, parameter in source.named_parameters())
    assert model.facts["requires_grad"] is True
    assert model.facts["buffer_dtypes"] == ["float32"]
    assert model.name == model.architecture == "LlamaForCausalLM"


def test_later_training_of_the_callers_model_does_not_reach_the_copy():
    source = tiny("llama")
    model = load_model(source)
    with torch.no_grad():
        source.lm_head.weight.zero_()
    assert model.instance().lm_head.weight.abs().sum() > 0


def test_to_transformers_hands_out_an_independent_model(fairy_tales):
    mine = fairy_tales.to_transformers("float32")
    with torch.no_grad():
        mine.lm_head.weight.zero_()
    assert fairy_tales.instance("float32").lm_head.weight.abs().sum() > 0
    assert {p.dtype for p in mine.parameters()} == {torch.float32}


def test_the_canonical_load_gives_the_logits_of_from_pretrained_up_to_rounding(fairy_tales):
    plain = AutoModelForCausalLM.from_pretrained(bundled_folder(), dtype=torch.float32)
    ids = torch.tensor([fairy_tales.encode("The giant").ids])
    with torch.inference_mode():
        expected = plain(ids).logits
        found = fairy_tales.instance("float32")(ids).logits
    assert torch.allclose(found, expected, rtol=0, atol=1e-3)


@pytest.mark.parametrize("dtype", ["int8", "float8_e4m3fn", "bf17"])
def test_an_unknown_dtype_is_refused_with_the_known_ones(fairy_tales, dtype):
    with pytest.raises(Refusal) as refused:
        fairy_tales.instance(dtype)
    assert dtype in refused.value.asked
    assert "bfloat16" in refused.value.allowed


def test_a_device_that_is_not_there_is_refused(fairy_tales):
    with pytest.raises(Refusal, match="cuda:99"):
        fairy_tales.instance("float32", "cuda:99")


def test_a_closed_model_says_so():
    model = load_model(tiny("llama"))
    model.close()
    with pytest.raises(Refusal, match="close"):
        model.instance("float32")
