"""What is recorded of one raw row of logits: its best ids in a fixed order, margin, entropy, and a hash of its bits."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

__all__ = ["RowStatistics", "best_id", "computing_dtype", "row_bytes", "row_statistics", "top_k"]

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
    hash: bytes

    @property
    def valid(self) -> bool:
        """Whether an argmax means something: no NaN, no +inf, not all -inf."""
        return math.isfinite(self.logsumexp)


def row_statistics(row: torch.Tensor, k: int) -> RowStatistics:
    """Statistics of a raw row.

    Parameters
    ----------
    row
        Raw logits on any device, shape ``(vocab,)``.
    k
        Length of the top list; at most the vocabulary.
    """
    row = row.detach().cpu().contiguous()
    digest = hashlib.blake2b(row_bytes(row), digest_size=16).digest()
    ids, logits = top_k(row, min(k, len(row)))
    largest = float(logits[0])
    # numpy from here on: torch would wake its threads for each of these small steps
    with np.errstate(invalid="ignore"):  # of inf - inf, in a row that is not valid
        # exp(-800) is 0 in fp64; an id at -inf would add 0 * -inf to the entropy, which is NaN and not nothing
        shifted = np.maximum(row.double().numpy() - largest, -800.0)
    weights = np.exp(shifted)
    total = float(weights.sum())
    log_total = math.log(total) if total > 0 else math.nan
    entropy = log_total - float((weights * shifted).sum()) / total
    margin = largest - float(logits[1]) if len(logits) > 1 else math.inf
    return RowStatistics(ids, logits, largest + log_total, max(0.0, entropy), margin, digest)


def row_bytes(row: torch.Tensor) -> memoryview:
    """The raw bytes of a contiguous CPU row, whatever its dtype."""
    return memoryview(row.view(torch.uint8).numpy())


def top_k(row: torch.Tensor, k: int) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """The `k` largest logits in a fixed order: logit descending, id ascending.

    ``torch.topk`` picks arbitrary ids among those tied with the k-th value, so it is asked only for that value; all ids
    that are not below it are then sorted, in the order of ids where they tie.
    """
    lowest = float(torch.topk(row, k).values[-1])
    wide = row.double().numpy()
    found = np.flatnonzero(~(wide < lowest))  # so that NaN, which compares with nothing, is not lost
    order = np.argsort(-wide[found], kind="stable")[:k]
    ids = found[order]
    return ids.astype(np.int32), wide[ids]


def best_id(row: torch.Tensor) -> int:
    """The id of the largest value of a row, shape ``(vocab,)``: the lowest one where several tie, unlike ``torch.argmax``."""
    return int(torch.nonzero(row == row.max())[0, 0])


def computing_dtype(row: torch.Tensor, parameters: torch.dtype) -> str:
    """The dtype whose grid the logits lie on: narrower than the stored one where a model up-casts its own logits.

    Only dtypes no wider than the parameters' are tried, for a fp32 model's logits are on a coarser grid by chance alone.
    """
    candidates = _NARROWER.get(row.dtype, ()) if row.dtype != parameters else ()
    for narrow in candidates:
        if narrow.itemsize <= parameters.itemsize and torch.equal(row.to(narrow).to(row.dtype), row):
            return str(narrow).removeprefix("torch.")
    return str(row.dtype).removeprefix("torch.")
