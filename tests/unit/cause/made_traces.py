"""Traces made by hand, for searches and guards that must not need a model."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl

from divexplore.config import RunConfig
from divexplore.trace import FORMAT, Trace, trace_schema

__all__ = ["made"]

K = 2


def made(tokens: Sequence[int], bits: Sequence[int], config: RunConfig | None = None, **meta: Any) -> Trace:
    """A trace of these tokens, whose rows have equal hashes where `bits` are equal.

    Parameters
    ----------
    tokens
        Chosen ids; each leads its row by one logit.
    bits
        Anything that stands for the raw row of each step.
    meta
        Facts that differ from those of an honest run; ``effective`` is merged.
    """
    steps = len(tokens)
    config = config or RunConfig()
    columns = {
        "step": range(steps),
        "phase": ["prefill"] + ["decode"] * (steps - 1),
        "token_id": tokens,
        "bytes": [b"x"] * steps,
        "text": [f"t{token}" for token in tokens],
        "logit": [2.0] * steps,
        "logprob": [-0.3] * steps,
        "margin": [1.0] * steps,
        "margin_ulps": [8.0] * steps,
        "exact_tie": [False] * steps,
        "entropy": [0.6] * steps,
        "top_ids": np.array([[token, token + 1] for token in tokens], dtype=np.int32).reshape(steps, K),
        "top_logits": np.array([[2.0, 1.0]] * steps).reshape(steps, K),
        "row_hash": [hashlib.blake2b(str(bit).encode(), digest_size=16).digest() for bit in bits],
        "seconds": [0.0] * steps,
    }
    effective = {
        "dtype": config.dtype or "float32",
        "computing_dtype": config.dtype or "float32",
        "device": "cpu",
        "attn_implementation": config.attn_implementation or "sdpa",
        "num_threads": config.num_threads or 2,
        "use_cache": config.use_cache is not False,
        "batch_size": config.rows,
        "row": config.row or 0,
        "pads": [0] * config.rows,
    }
    facts: dict[str, Any] = {
        "format": FORMAT,
        "model": {"name": "made", "vocab_size": 100, "fingerprint": {"loaded": "w", "buffers": "b"}},
        "prompt": {"text": None, "ids": [1, 2, 3], "chat": False},
        "requested": config.to_dict(),
        "effective": effective | meta.pop("effective", {}),
        "rows": [{"prompt_ids": [1, 2, 3], "pads": 0, "token_ids": list(tokens)}] * config.rows,
        "inputs": {"rows": [config.rows], "forwards": steps, "cached": config.use_cache is not False, "deviations": {}},
        "tensors": {"parameters": "w", "buffers": "b"},
        "forced": 0,
        "finish_reason": "length",
        "partial": False,
        "error": None,
        "invalid": None,
        "warnings": [],
    }
    return Trace(pl.DataFrame(columns, schema=trace_schema(K)), facts | meta)
