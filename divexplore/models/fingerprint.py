"""Are two models the same weights? Hashes as loaded and after rounding, so that a cast copy is recognised as one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from transformers import PreTrainedModel

__all__ = ["Fingerprint", "fingerprint_of"]

_CHUNK = 1 << 22  # elements rounded at a time: a large embedding is never held twice


@dataclass(frozen=True)
class Fingerprint:
    """Hashes (hex, 16 bytes) of a model's tensors by canonical name, tied tensors once.

    Parameters
    ----------
    loaded
        Parameters as loaded, dtype included.
    bf16, fp16
        Parameters rounded to bfloat16 and to float16.
    buffers
        Floating buffers (such as ``inv_freq``), dtype included: a rounded one shows here and nowhere else.
    """

    loaded: str
    bf16: str
    fp16: str
    buffers: str

    def compare(self, other: Fingerprint) -> str:
        """Parameters: ``same``, ``same after rounding to bf16``, ``same after rounding to fp16`` or ``different``."""
        if self.loaded == other.loaded:
            return "same"
        if self.bf16 == other.bf16:
            return "same after rounding to bf16"
        if self.fp16 == other.fp16:
            return "same after rounding to fp16"
        return "different"

    def to_dict(self) -> dict[str, str]:
        """The four hashes as plain JSON values."""
        return {"loaded": self.loaded, "bf16": self.bf16, "fp16": self.fp16, "buffers": self.buffers}


def fingerprint_of(model: PreTrainedModel) -> Fingerprint:
    """Hash a model tensor by tensor; nothing is copied but one chunk at a time."""
    # named_parameters gives a tied tensor once, under its first name
    parameters = sorted(model.named_parameters())
    buffers = sorted((name, buffer) for name, buffer in model.named_buffers() if buffer.is_floating_point())
    return Fingerprint(
        loaded=_hash(parameters, None),
        bf16=_hash(parameters, torch.bfloat16),
        fp16=_hash(parameters, torch.float16),
        buffers=_hash(buffers, None),
    )


def _hash(tensors: Iterable[tuple[str, torch.Tensor]], dtype: torch.dtype | None) -> str:
    total = blake2b(digest_size=16)
    for name, tensor in tensors:
        tensor = tensor.detach()
        target = dtype if dtype is not None and tensor.is_floating_point() else tensor.dtype
        total.update(f"{name} {tuple(tensor.shape)} {target};".encode())
        for chunk in tensor.reshape(-1).split(_CHUNK):
            total.update(chunk.to(device="cpu", dtype=target).contiguous().view(torch.uint8).numpy())
    return total.hexdigest()
