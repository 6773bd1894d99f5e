"""Random tiny models, large enough to drift: five architectures, two layers each, in no time."""

from __future__ import annotations

from typing import Any

import torch
from transformers import (
    BloomConfig,
    BloomForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    MixtralConfig,
    MixtralForCausalLM,
    PreTrainedModel,
)

__all__ = ["KINDS", "tiny"]

KINDS = ("llama", "gpt2", "mistral", "bloom", "mixtral")

# with the usual range of 0.02 a random model repeats itself and nothing diverges
_COMMON = {
    "vocab_size": 257,
    "initializer_range": 0.2,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
}
_CLASSES: dict[str, tuple[Any, Any]] = {
    "llama": (LlamaConfig, LlamaForCausalLM),
    "gpt2": (GPT2Config, GPT2LMHeadModel),
    "mistral": (MistralConfig, MistralForCausalLM),
    "bloom": (BloomConfig, BloomForCausalLM),
    "mixtral": (MixtralConfig, MixtralForCausalLM),
}


def tiny(kind: str = "llama", hidden: int = 64, seed: int = 0, **changes: Any) -> PreTrainedModel:
    """A random model in fp32: vocabulary 257, 2 layers, 4 heads (2 key-value heads), no end-of-sequence token.

    Parameters
    ----------
    kind
        One of `KINDS`; Mistral has a window of 8, Mixtral 4 experts of which 2 act.
    hidden
        Width; a multiple of 8.
    seed
        Of the weights; the global generator is left as it was.
    changes
        Fields of the transformers configuration, such as ``eos_token_id=3``.
    """
    config_class, model_class = _CLASSES[kind]
    config = config_class(**_COMMON | _shape(kind, hidden) | changes)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return model_class(config).eval()


def _shape(kind: str, hidden: int) -> dict[str, Any]:
    if kind == "gpt2":
        return {"n_embd": hidden, "n_layer": 2, "n_head": 4, "n_positions": 512}
    if kind == "bloom":
        return {"hidden_size": hidden, "n_layer": 2, "n_head": 4}
    shape = {
        "hidden_size": hidden,
        "intermediate_size": 2 * hidden,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 512,
    }
    if kind == "mistral":
        shape["sliding_window"] = 8
    if kind == "mixtral":
        shape |= {"num_local_experts": 4, "num_experts_per_tok": 2}
    return shape
