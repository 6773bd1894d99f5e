"""What `generate` shows of the same batch: the rows of logits as the model gave them, and every row's tokens."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import torch

from divexplore.engine.batch import Batch
from divexplore.engine.statistics import row_bytes

__all__ = ["Generated", "by_generate"]


@dataclass(frozen=True)
class Generated:
    """Tokens of every row, pads after an early end included, and the observed row's raw logits, step by step."""

    tokens: list[list[int]]
    rows: list[torch.Tensor]
    hashes: list[bytes]


def by_generate(net: Any, batch: Batch, max_new_tokens: int, **options: Any) -> Generated:
    """Decode a batch with ``generate(output_logits=True)`` in the same shapes.

    `generate` hands logits out in fp32; the model's own dtype is read by a hook, and both must be the same values.
    """
    ids, mask, _ = batch.inputs(net.device)
    native: list[torch.Tensor] = []
    hook = net.register_forward_hook(lambda module, args, output: native.append(output.logits[batch.row, -1].clone()))
    try:
        result = net.generate(
            ids,
            attention_mask=torch.ones_like(ids) if mask is None else mask,
            do_sample=False,
            max_new_tokens=max_new_tokens,
            output_logits=True,
            return_dict_in_generate=True,
            pad_token_id=batch.pad_id,
            **options,
        )
    finally:
        hook.remove()
    rows = [logits[batch.row] for logits in result.logits]
    assert len(rows) == len(native)
    for cast, row in zip(rows, native):
        assert torch.equal(cast, row.to(cast.dtype))
    return Generated(
        tokens=result.sequences[:, ids.shape[1] :].tolist(),
        rows=rows,
        hashes=[hashlib.blake2b(row_bytes(row.contiguous()), digest_size=16).digest() for row in native],
    )
