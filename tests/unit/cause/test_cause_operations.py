"""The first operation that differs: injected changes are found where they were put, and honest pairs where they must."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from tiny_models import tiny

import divexplore as dx
from divexplore.comparison.op_keys import short
from divexplore.comparison.operations import moments, trace_moments, trace_ops
from divexplore.config import RunConfig
from divexplore.engine.probe import probe
from divexplore.errors import Refusal
from divexplore.testing import faults

PROMPT = (5, 17, 3, 200, 41)


@pytest.fixture(scope="module")
def models():
    return {kind: dx.load_model(tiny(kind)) for kind in ("llama", "gpt2", "bloom", "mixtral")}


def weighted(net):
    """Modules with a weight of their own: where one element can change."""
    return [name for name, module in net.named_modules() if "weight" in dict(module.named_parameters(recurse=False))]


def output_of(moment, module):
    """The observed row's part of what a module puts out at this moment."""
    seen = []
    hook = module.register_forward_hook(lambda m, args, out: seen.append(out[moment.batch.row].clone()))
    try:
        moment.replay()
    finally:
        hook.remove()
    return seen[-1]


def injected(model, a, b, name, step=2):
    """Both moments, with one element of one module's weight changed in B's own copy; asserted to alter the output."""
    a, b = RunConfig.of(a), RunConfig.of(b)
    net = model.to_transformers(b.dtype)
    module = net.get_submodule(name)
    prompt = model.encode(PROMPT)
    tokens = dx.run(model, PROMPT, a, step).token_ids if step else []
    with torch.no_grad():
        row = [*PROMPT, *tokens][-1] if isinstance(module, torch.nn.Embedding) else 0
        row = row if module.weight.shape[0] > row else len(PROMPT) + step - 1
        where = (row, 1) if module.weight.dim() > 1 else (1,)
        module.weight[where] += 2.0
    pair = moments(model, prompt, a, b, step, 8, nets=(None, net))
    own = pair[0].net.get_submodule(name)
    assert not torch.equal(output_of(pair[0], own), output_of(pair[1], module)), f"{name} was not reached"
    return pair, short(name, net.base_model_prefix)


@pytest.mark.parametrize("kind", ["llama", "gpt2", "bloom"])
def test_a_changed_element_is_found_at_its_module_eager_against_eager(models, kind):
    model, config = models[kind], {"dtype": "float32", "attn_implementation": "eager"}
    names = [name for name in weighted(model.master) if not name.endswith(("wpe", "lm_head"))]
    for name in names:
        pair, module = injected(model, config, config, name)
        found = trace_moments(*pair)
        assert found.kind == "operations"
        assert found.first_difference.module == module, str(found)


@pytest.mark.parametrize("name", ["embed_tokens", "layers.0.input_layernorm", "layers.0.self_attn.v_proj"])
def test_a_changed_element_is_found_between_two_attention_kernels(models, name):
    a, b = ({"dtype": "float32", "attn_implementation": kernel} for kernel in ("eager", "sdpa"))
    pair, module = injected(models["llama"], a, b, f"model.{name}")
    found = trace_moments(*pair)
    assert found.kind == "modules"
    assert found.first_difference.module == module, str(found)
    assert found.absorbing.height == 0


@pytest.mark.parametrize("row", [0, 3, 7])
def test_a_changed_element_is_found_in_any_row_of_a_batch(models, row):
    model = models["llama"]
    for dtype in ("bfloat16", "float16", "float64"):
        a, b = {"dtype": dtype}, {"dtype": dtype, "batch_size": 8, "row": row}
        if trace_ops(model, PROMPT, a, b, 2).first_difference is None:
            break
    else:
        pytest.fail("one row and eight differ in every dtype: there is no pair to inject into")
    for name in ("model.layers.0.mlp.up_proj", "model.layers.1.self_attn.o_proj", "lm_head"):
        pair, module = injected(model, a, b, name)
        assert trace_moments(*pair).first_difference.module == module


def test_batch_drift_in_fp32_begins_at_the_first_product(fairy_tales):
    width = fairy_tales.config.hidden_size
    if probe(("float32",), (8,), (width,), threads=()).table["equal"].all():
        pytest.skip("this processor multiplies one row and eight to equal bits in fp32")
    found = trace_ops(fairy_tales, "The giant", {"dtype": "float32"}, {"dtype": "float32", "batch_size": 8})
    first = found.first_difference
    assert (first.module, first.operation) == ("layers.0.self_attn.q_proj", "aten.linear")
    assert 0 < first.share <= 1
    assert first.ulps >= 1
    assert found.epsilon > 0
    assert found.forwards <= 30


def test_the_record_of_a_bfloat16_batch_is_whole(fairy_tales):
    found = trace_ops(fairy_tales, "The giant", {"dtype": "bfloat16"}, {"dtype": "bfloat16", "batch_size": 8}, 2)
    assert found.unmatched.height == 0
    assert found.table["order"].to_list() == list(range(found.table.height))
    before = found.table.head(found.first_difference.order if found.first_difference else found.table.height)
    assert (before["state"] == "equal").all()
    logits = found.table.filter(found.table["module"] == "lm_head")
    assert logits["max_abs"].to_list() == [found.epsilon]


def test_pads_are_dropped_and_other_calls_are_listed_not_compared(fairy_tales):
    found = trace_ops(fairy_tales, "The giant", {"dtype": "float32"}, {"dtype": "float32", "left_pad": 3}, 2)
    embedding = found.table.row(0, named=True)
    assert (embedding["module"], embedding["state"]) == ("embed_tokens", "equal")
    assert found.unmatched["max_abs"].null_count() == found.unmatched.height
    assert found.unmatched["why"].null_count() == 0
    assert found.compared > 100


def test_experts_of_other_sizes_are_not_compared(models):
    found = trace_ops(models["mixtral"], PROMPT, {"dtype": "float32"}, {"dtype": "float32", "batch_size": 4}, 1)
    experts = found.unmatched.filter(found.unmatched["module"].str.contains("experts"))
    assert experts.height > 0
    assert found.compared > experts.height


def test_a_difference_that_the_residual_absorbs_is_followed_no_further(models):
    """One weight moved by one ULP changes one element of a product, which the addition to a larger number rounds away."""
    model, config = models["llama"], RunConfig(dtype="bfloat16")
    net = model.to_transformers("bfloat16")
    weight = net.get_submodule("model.layers.0.mlp.down_proj").weight
    for column in range(weight.shape[1]):
        before = weight[0, column].clone()
        with torch.no_grad():
            weight[0, column] = before * (1 + 2**-7)
        found = trace_moments(*moments(model, model.encode(PROMPT), config, config, 0, 4, nets=(None, net)))
        with torch.no_grad():
            weight[0, column] = before
        if found.differing.height == 1:
            break
    else:
        pytest.fail("no single weight was absorbed")
    assert found.first_difference.module == "layers.0.mlp.down_proj"
    assert [*found.absorbing.select("module", "operation").row(0)] == ["layers.0", "aten.add"]
    assert found.absorbing.height == 1
    assert found.epsilon == 0


def test_a_bug_that_changes_the_inputs_is_traced_too(models):
    config = RunConfig(dtype="float32", seed=1)
    with faults.positions_shifted(only=config):
        found = trace_ops(models["llama"], PROMPT, {"dtype": "float32", "seed": 0}, config, 3)
    assert found.first_difference.module == "rotary_emb"


def test_a_forward_that_does_not_repeat_itself_is_refused(models):
    moment, _ = moments(models["llama"], models["llama"].encode(PROMPT), RunConfig(), RunConfig(), 1, 4)
    moment.replay()
    with pytest.raises(RuntimeError, match="other logits"):
        dataclasses.replace(moment, logits=moment.logits + 1).replay()


def test_nothing_is_left_on_the_model(models):
    net = models["llama"].instance("float32")
    trace_ops(models["llama"], PROMPT, {"dtype": "float32"}, {"dtype": "float32", "batch_size": 2}, 1)
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in net.modules())


@pytest.mark.parametrize("step", [-1, True, 2.0])
def test_a_step_that_is_none_is_refused(models, step):
    with pytest.raises(Refusal, match="step"):
        trace_ops(models["llama"], PROMPT, {}, {"batch_size": 2}, step)


def test_stop_ends_a_trace(models):
    with pytest.raises(Refusal, match="stopped"):
        trace_ops(models["llama"], PROMPT, {}, {"batch_size": 2}, 1, stop=lambda: True)


def test_smollm2_in_bfloat16_differs_in_few_operations(smollm2):
    prompt = "Tell me a short story about a robot who learns to paint."
    a, b = {"dtype": "bfloat16"}, {"dtype": "bfloat16", "batch_size": 8}
    found = trace_ops(smollm2, prompt, a, b, max_new_tokens=20)
    if found.first_difference is None:
        sums = (smollm2.config.hidden_size, smollm2.config.intermediate_size)
        assert probe(("bfloat16",), (8,), sums, threads=()).table["equal"].all(), "the batch was not real"
        pytest.skip("this processor multiplies one row and eight of this model's shapes to equal bits")
    assert found.first_difference.operation == "aten.linear"
    assert found.first_difference.module.startswith("layers.")
    assert found.differing.height < found.compared / 4
