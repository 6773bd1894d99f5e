"""How far are two outputs of one operation apart? In value, in ULPs, and in the share of elements that differ."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass

import torch

from divexplore.engine.statistics import row_bytes
from divexplore.ulp import EXPLICIT_BITS, spacing

__all__ = ["Figures", "digest", "figures"]


@dataclass(frozen=True)
class Figures:
    """The difference of two outputs.

    Parameters
    ----------
    max_abs
        Largest absolute difference; infinite where only one side is not finite.
    ulps
        That difference in the spacing of the coarser dtype at the larger of its two values.
    relative
        That difference by the largest magnitude of A's output.
    share
        Share of the elements that differ, 0 to 1.
    """

    max_abs: float
    ulps: float
    relative: float
    share: float


def digest(tensor: torch.Tensor, dtype: torch.dtype | None) -> bytes:
    """16 bytes of a tensor's bits, of any layout; in `dtype` where the two sides have different ones."""
    tensor = _real(tensor).detach()
    tensor = tensor.to(device="cpu", dtype=dtype or tensor.dtype).contiguous().reshape(-1)
    return hashlib.blake2b(row_bytes(tensor) if tensor.numel() else b"", digest_size=16).digest()


def figures(a: torch.Tensor, b: torch.Tensor) -> Figures:
    """Compare two outputs of one shape, in fp64 after an exact cast."""
    a, b = _real(a), _real(b).to(a.device)
    dtypes = (str(x.dtype).removeprefix("torch.") for x in (a, b))
    dtype = min((name for name in dtypes if name in EXPLICIT_BITS), key=EXPLICIT_BITS.__getitem__, default="float64")
    a, b = a.double().reshape(-1), b.double().reshape(-1)
    different = (a != b) & ~(a.isnan() & b.isnan())
    if not bool(different.any()):
        return Figures(0.0, 0.0, 0.0, 0.0)
    gap = torch.where(different, (a - b).abs(), 0.0).nan_to_num(nan=math.inf)
    at = int(gap.argmax())
    largest = float(gap[at])
    reach = max(abs(float(a[at])), abs(float(b[at])))
    unit = float(spacing(reach, dtype)) if math.isfinite(reach) else math.nan
    scale = float(a[a.isfinite()].abs().max()) if bool(a.isfinite().any()) else 0.0
    return Figures(
        max_abs=largest,
        ulps=largest / unit,
        relative=largest / scale if scale else math.inf,
        share=float(different.double().mean()),
    )


def _real(tensor: torch.Tensor) -> torch.Tensor:
    return torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor
