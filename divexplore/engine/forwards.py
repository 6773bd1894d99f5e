"""The decoding loop's bare forwards: prefill, then one step after another, in the shapes that `generate` uses."""

from __future__ import annotations

import inspect
from collections.abc import Generator
from typing import Any

import torch
from transformers import DynamicCache

from divexplore.engine.batch import Batch
from divexplore.errors import Refusal

__all__ = ["forwards"]


def forwards(
    net: Any, batch: Batch, *, use_cache: bool = True, prefill_chunk: int | None = None
) -> Generator[torch.Tensor, torch.Tensor, None]:
    """Yield the last position's raw logits, shape ``(rows, vocab)``; send the next token of every row, shape ``(rows,)``.

    The first value is the prefill's, each later one a decode step's. Inference mode is entered for each forward, since it
    belongs to the thread and must not leak to the caller between two steps.

    Parameters
    ----------
    net
        A transformers causal language model in ``eval()``.
    batch
        The rows to decode.
    use_cache
        Without a cache every step is a prefill of all tokens so far.
    prefill_chunk
        Tokens of a prefill chunk; ``None`` prefills in one piece.
    """
    accepted = set(inspect.signature(net.forward).parameters)
    if use_cache and not accepted & {"cache", "past_key_values"}:
        raise Refusal(
            f"use_cache=True on {type(net).__name__}, which takes no key-value cache",
            "use_cache=False",
            "Its recurrent state is not carried here; without a cache each step is a prefill of all tokens.",
        )
    cache_name = "cache" if "cache" in accepted else "past_key_values"  # its older name, before transformers 5.2x
    ids, mask, positions = batch.inputs(next(net.parameters()).device)
    cache = DynamicCache(config=net.config.get_text_config(decoder=True)) if use_cache else None

    def forward(ids: torch.Tensor, positions: torch.Tensor, columns: int) -> torch.Tensor:
        given: dict[str, Any] = {"use_cache": use_cache, "return_dict": True}
        if cache is not None:
            given[cache_name] = cache
        if "position_ids" in accepted:
            given["position_ids"] = positions
        if "logits_to_keep" in accepted:
            given["logits_to_keep"] = 1
        return net(input_ids=ids, attention_mask=None if mask is None else mask[:, :columns], **given).logits[:, -1]

    with torch.inference_mode():
        width = ids.shape[1]
        for start in range(0, width, prefill_chunk or width):
            stop = min(start + (prefill_chunk or width), width)
            # contiguous() where `generate` clones: a strided slice would be another input to the same kernel
            logits = forward(ids[:, start:stop].contiguous(), positions[:, start:stop], stop)
    while True:
        tokens = yield logits
        with torch.inference_mode():
            width += 1
            if mask is not None:
                mask = torch.cat([mask, mask.new_ones(mask.shape[0], 1)], dim=-1)
            fed, after = tokens[:, None], positions[:, -1:] + 1
            # with a cache the new tokens are all that is fed
            ids = fed if use_cache else torch.cat([ids, fed], dim=-1)
            positions = after if use_cache else torch.cat([positions, after], dim=-1)
            logits = forward(ids, positions, width)
