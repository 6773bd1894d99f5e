"""What is recorded of one raw row of logits: its best ids in a fixed order, margin, entropy, and a hash of its bits."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from divexplore.ulp import spacing

__all__ = ["RowStatistics", "computing_dtype", "row_bytes", "row_statistics", "top_k"]

_NARROWER = {
    torch.float32: (torch.bfloat16, torch.float16),
    torch.float64: (torch.bfloat16, torch.float16, torch.float32),
}


@dataclass(frozen=True)
class RowStatistics:
    """One raw row in a few numbers; logits in fp64 after an exact cast.

    `top_ids` int32 and `top_logits` float64 have shape ``(k,)``; `logsumexp` and `entropy` are in nats; `margin` in logits.
    """

    top_ids: NDArray[np.int32]
    top_logits: NDArray[np.float64]
    logsumexp: float
    entropy: float
    margin: float
    margin_ulps: float
    hash: bytes

    @property
    def valid(self) -> bool:
        """Whether an argmax means something: no NaN, no +inf, not all -inf."""
        return math.isfinite(self.logsumexp)


def row_statistics(row: torch.Tensor, k: int, dtype: str) -> RowStatistics:
    """Statistics of a raw row.

    Parameters
    ----------
    row
        Raw logits on any device, shape ``(vocab,)``.
    k
        Length of the top list; at most the vocabulary.
    dtype
        The computing dtype, whose spacing counts the margin.
    """
    row = row.detach().cpu().contiguous()
    digest = hashlib.blake2b(row_bytes(row), digest_size=16).digest()
    ids, logits = top_k(row, min(k, len(row)))
    wide = row.double()
    largest = float(logits[0])
    shifted = (wide - largest).exp_()
    total = float(shifted.sum())
    logsumexp = largest + math.log(total) if total > 0 else math.nan
    weighted = shifted * wide if math.isfinite(logsumexp) else shifted
    # a probability of 0 with a logit of -inf adds nothing: 0 * -inf would be NaN
    mean = float(torch.nan_to_num(weighted, nan=0.0, neginf=0.0).sum()) / total if total > 0 else math.nan
    margin = largest - float(logits[1]) if len(logits) > 1 else math.inf
    unit = float(spacing(np.abs(logits[:2]).max(), dtype)) if np.isfinite(logits[:2]).all() else math.nan
    return RowStatistics(ids, logits, logsumexp, max(0.0, logsumexp - mean), margin, margin / unit, digest)


def row_bytes(row: torch.Tensor) -> memoryview:
    """The raw bytes of a contiguous CPU row, whatever its dtype."""
    return memoryview(row.view(torch.uint8).numpy())


def top_k(row: torch.Tensor, k: int) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """The `k` largest logits in a fixed order: logit descending, id ascending.

    ``torch.topk`` picks arbitrary ids among those tied with the k-th value, so it is asked only for the values: all ids
    above the k-th value belong to the list, then the lowest ids equal to it.
    """
    values, found = torch.topk(row, k)
    above = found[values > values[-1]]
    if len(above) < k and not torch.isnan(values[-1]):
        level = torch.nonzero(row == values[-1])[: k - len(above), 0]
        found = torch.cat([above, level])
    ids = found.numpy()
    logits = row[found].double().numpy()
    order = np.lexsort((ids, -logits))
    return ids[order].astype(np.int32), logits[order]


def computing_dtype(row: torch.Tensor, parameters: torch.dtype) -> str:
    """The dtype whose grid the logits lie on: narrower than the stored one where a model up-casts its own logits.

    Only dtypes no wider than the parameters' are tried, for a fp32 model's logits are on a coarser grid by chance alone.
    """
    candidates = _NARROWER.get(row.dtype, ()) if row.dtype != parameters else ()
    for narrow in candidates:
        if narrow.itemsize <= parameters.itemsize and torch.equal(row.to(narrow).to(row.dtype), row):
            return str(narrow).removeprefix("torch.")
    return str(row.dtype).removeprefix("torch.")
