"""How do parameters get their canonical place? One cast, fresh aligned memory, no gradients, buffers as they came."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

if TYPE_CHECKING:
    from transformers import PreTrainedModel

__all__ = ["ALIGNMENT", "bytes_needed", "canonical_copy", "facts_of", "main_dtype", "settle"]

ALIGNMENT = 64
"""Bytes. Memory-mapped safetensors sit at 40 modulo 64, which alone moves fp32 logits by about 2e-5."""


def canonical_copy(
    source: PreTrainedModel, dtype: torch.dtype | None, device: torch.device | str | None = None
) -> PreTrainedModel:
    """An independent model with the parameters of `source`, cast once and placed canonically.

    Parameters
    ----------
    source
        Holds the checkpoint's tensors. It is only read.
    dtype
        Of the floating parameters; ``None`` keeps each parameter's own. Modules that the architecture keeps in fp32
        stay there, as ``from_pretrained`` would have it. Buffers are never cast: an fp32 ``inv_freq`` rounded to bf16
        costs more than the run it is used for.
    device
        Where the copy goes; ``None`` is where `source` is.
    """
    wide = _kept_in_fp32(source, dtype)
    # deepcopy finds each parameter in the memo and puts the cast one in its place: no second copy of the
    # checkpoint's dtype in between, and tied parameters stay one object.
    memo: dict[int, Any] = {
        id(parameter): nn.Parameter(
            _fresh(parameter, torch.float32 if name in wide else dtype, device), requires_grad=False
        )
        for name, parameter in source.named_parameters()
    }
    model = copy.deepcopy(source, memo)
    if device is not None:
        model.to(device=device)  # moves the buffers; the parameters are there
    if dtype is not None:
        model.config.dtype = dtype
    return model.eval()


def settle(model: PreTrainedModel) -> PreTrainedModel:
    """Place a model that nobody else holds canonically, in itself: parameter by parameter, so never twice in memory."""
    for parameter in model.parameters():
        parameter.requires_grad_(False)
        parameter.data = _fresh(parameter, None, None)
    return model.eval()


def facts_of(model: PreTrainedModel) -> dict[str, Any]:
    """The three hidden variables of a model as it came: alignment, gradients, dtypes of its floating buffers."""
    parameters = list(model.parameters())
    return {
        "aligned": all(p.data_ptr() % ALIGNMENT == 0 for p in parameters),
        "requires_grad": any(p.requires_grad for p in parameters),
        "buffer_dtypes": sorted(
            {str(b.dtype).removeprefix("torch.") for b in model.buffers() if b.is_floating_point()}
        ),
        "canonical_copy": True,
    }


def main_dtype(model: PreTrainedModel) -> torch.dtype:
    """The dtype of most floating parameters, by their number of elements."""
    counts: dict[torch.dtype, int] = {}
    for parameter in _floating(model):
        counts[parameter.dtype] = counts.get(parameter.dtype, 0) + parameter.numel()
    return max(counts, key=lambda dtype: counts[dtype])


def bytes_needed(model: PreTrainedModel, dtype: torch.dtype) -> int:
    """Bytes that the parameters of `model` take in `dtype`, tied ones once."""
    return sum(parameter.numel() for parameter in model.parameters()) * dtype.itemsize


def _fresh(parameter: torch.Tensor, dtype: torch.dtype | None, device: torch.device | str | None) -> torch.Tensor:
    """A contiguous copy in new memory, which torch aligns; integers keep their dtype."""
    data = parameter.detach()
    target = data.dtype if dtype is None or not data.is_floating_point() else dtype
    return data.to(device=device, dtype=target, copy=True, memory_format=torch.contiguous_format)


def _floating(model: PreTrainedModel) -> Iterator[torch.Tensor]:
    return (parameter for parameter in model.parameters() if parameter.is_floating_point())


def _kept_in_fp32(model: PreTrainedModel, dtype: torch.dtype | None) -> set[str]:
    """Names that transformers keeps in fp32: some only against fp16, the strict ones against bf16 as well."""
    patterns: set[str] = set()
    if dtype is torch.float16:
        patterns |= set(getattr(model, "_keep_in_fp32_modules", None) or ())
    if dtype in (torch.float16, torch.bfloat16):
        patterns |= set(getattr(model, "_keep_in_fp32_modules_strict", None) or ())
    if not patterns:
        return set()
    anywhere = re.compile("|".join(pattern.replace("*", ".*") for pattern in patterns))
    return {name for name, _ in model.named_parameters() if anywhere.search(name)}
