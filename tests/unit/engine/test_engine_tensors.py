"""The short hash of what ran: one bit of one weight or buffer changes it, the order of loading does not."""

from __future__ import annotations

import pytest
import torch
from tiny_models import tiny

from divexplore.engine.witness import tensors_in_force
from divexplore.models import load_model


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16", "float16"])
def test_one_bit_of_one_weight_shows(dtype):
    net = load_model(tiny("gpt2")).instance(dtype)
    before = tensors_in_force(net)
    assert tensors_in_force(net) == before
    weight = next(parameter for name, parameter in net.named_parameters() if name.endswith("ln_f.bias"))
    weight[5] = torch.nextafter(weight[5], torch.tensor(9.0, dtype=weight.dtype))
    after = tensors_in_force(net)
    assert after["parameters"] != before["parameters"]
    assert after["buffers"] == before["buffers"]


def test_one_buffer_shows():
    net = load_model(tiny("llama")).instance()
    before = tensors_in_force(net)
    net.model.rotary_emb.inv_freq[3] *= 1 + 1e-6
    after = tensors_in_force(net)
    assert after["parameters"] == before["parameters"]
    assert after["buffers"] != before["buffers"]


def test_odd_shapes_are_read_too():
    """A parameter whose bytes are no multiple of eight."""

    class Odd(torch.nn.Module):
        def __init__(self, last):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.tensor([1.0, 2.0, last], dtype=torch.bfloat16), requires_grad=False)

    assert tensors_in_force(Odd(3.0)) == tensors_in_force(Odd(3.0))
    assert tensors_in_force(Odd(3.0)) != tensors_in_force(Odd(4.0))


def test_a_model_loaded_twice_has_the_same_tensors(fairy_tales):
    assert tensors_in_force(load_model("fairy-tales").instance("bfloat16")) == tensors_in_force(
        fairy_tales.instance("bfloat16")
    )
