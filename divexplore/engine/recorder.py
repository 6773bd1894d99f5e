"""Collect what a run shows, step by step, and make the trace of it, however the run ended."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from divexplore.config import RunConfig
from divexplore.engine.batch import Batch
from divexplore.engine.choice import decode_path
from divexplore.engine.statistics import RowStatistics, computing_dtype, row_statistics
from divexplore.engine.witness import Witness
from divexplore.environment import snapshot
from divexplore.trace import FORMAT, Trace, trace_schema
from divexplore.ulp import spacing

if TYPE_CHECKING:
    from divexplore.models.model import Model, Prompt

__all__ = ["TOP_K", "Recorder"]

TOP_K = 20
"""Alternatives recorded at each step."""

_TAIL = 40


class Recorder:
    """The steps of one run; memory grows with `TOP_K`, not with the vocabulary."""

    def __init__(self, model: Model, prompt: Prompt, config: RunConfig, batch: Batch, in_force: dict[str, Any]) -> None:
        self._model, self._prompt, self._config, self._batch, self._in_force = model, prompt, config, batch, in_force
        self._parameters = getattr(torch, in_force["dtype"])
        self._statistics: list[RowStatistics] = []
        self._chosen: list[tuple[int, float]] = []  # id, logit
        self._seconds: list[float] = []
        self._row_tokens: list[list[int]] = []  # of every row, a list a step
        self._dtype: str | None = None
        self._rows = len(batch.prompts)
        self._invalid: dict[str, int] | None = None
        self._error: str | None = None
        self.finish_reason = "length"
        self.forced = 0
        self.asked: int | None = None  # steps, where a number of them was asked for
        self.warnings: list[str] = []
        self.witness = Witness(batch, in_force["use_cache"])
        self.tensors: dict[str, str | None] = {}

    def see(self, row: torch.Tensor, rows: int, seconds: float) -> RowStatistics | None:
        """Take in the observed raw row of a step; ``None`` where no argmax of it means anything.

        Parameters
        ----------
        row
            Raw logits, shape ``(vocab,)``.
        rows
            Rows that the forward really had.
        seconds
            What the forward took.
        """
        self._rows = rows
        dtype = computing_dtype(row, self._parameters)
        if self._dtype is None or torch.finfo(getattr(torch, dtype)).eps < torch.finfo(getattr(torch, self._dtype)).eps:
            self._dtype = dtype  # the finest grid that any row needs
        statistics = row_statistics(row, TOP_K)
        if not statistics.valid:
            self._invalid = {
                "step": len(self._chosen),
                "nan": int(row.isnan().sum()),
                "positive_infinite": int(row.isposinf().sum()),
                "negative_infinite": int(row.isneginf().sum()),
            }
            self.finish_reason = "invalid"
            return None
        self._statistics.append(statistics)
        self._seconds.append(seconds)
        return statistics

    def take(self, token: int, row: torch.Tensor, fed: list[int]) -> None:
        """The token taken after the last row, and what every row of the batch is fed next."""
        self._chosen.append((token, float(row[token])))
        self._row_tokens.append(fed)

    def fail(self, error: Exception) -> None:
        """The run met an error: keep the steps that are whole."""
        self.finish_reason = "error"
        self._error = _explain(error)

    def tail(self) -> str:
        """The last characters of the text so far."""
        return "".join(self._model.token_text(token) for token, _ in self._chosen[-_TAIL:])[-_TAIL:]

    @contextlib.contextmanager
    def keeping_warnings(self) -> Iterator[None]:
        """Keep what transformers warns of during the run, which would be lost in a log."""
        handler = _Collector(self.warnings)
        library = logging.getLogger("transformers")
        library.addHandler(handler)
        try:
            yield
        finally:
            library.removeHandler(handler)

    def trace(self) -> Trace:
        """The trace of all whole steps."""
        import polars as pl

        steps = len(self._chosen)
        statistics = self._statistics[:steps]
        ids = [token for token, _ in self._chosen]
        k = min(TOP_K, self._model.vocab_size)
        top_logits = np.array([s.top_logits for s in statistics], dtype=np.float64).reshape(steps, k)
        margins = np.array([s.margin for s in statistics], dtype=np.float64)
        # in the dtype that the trace shows beside them, which may be finer than a single row lets one see
        units = spacing(np.abs(top_logits[:, :2]).max(axis=1, initial=0.0), self.computing_dtype)
        columns = {
            "step": range(steps),
            "phase": ["prefill" if step == 0 or not self._in_force["use_cache"] else "decode" for step in range(steps)],
            "token_id": ids,
            "bytes": [self._model.token_bytes(token) for token in ids],
            "text": [self._model.token_text(token) for token in ids],
            "logit": [logit for _, logit in self._chosen],
            "logprob": [logit - s.logsumexp for (_, logit), s in zip(self._chosen, statistics, strict=True)],
            "margin": margins,
            "margin_ulps": margins / units,
            "exact_tie": margins == 0,
            "entropy": [s.entropy for s in statistics],
            "top_ids": np.array([s.top_ids for s in statistics], dtype=np.int32).reshape(steps, k),
            "top_logits": top_logits,
            "row_hash": [s.hash for s in statistics],
            "seconds": self._seconds[:steps],
        }
        shown = sorted({int(token) for s in statistics for token in s.top_ids} | set(ids))
        texts = {str(token): self._model.token_text(token) for token in shown}
        return Trace(pl.DataFrame(columns, schema=trace_schema(k)), {**self._meta(), "texts": texts})

    @property
    def computing_dtype(self) -> str:
        """The dtype of the finest grid that any row needs."""
        return self._dtype or self._in_force["dtype"]

    def _tokens_of(self, row: int) -> list[int]:
        """What a row of the batch was fed; fewer than the steps where the model dropped rows."""
        return [step[row] for step in self._row_tokens if row < len(step)]

    def _meta(self) -> dict[str, Any]:
        model, batch = self._model, self._batch
        fingerprint = model.known_fingerprint
        pads = batch.pads
        return {
            "format": FORMAT,
            "model": {
                "name": model.name,
                "source": model.source,
                "architecture": model.architecture,
                "fingerprint": None if fingerprint is None else fingerprint.to_dict(),
                "vocab_size": model.vocab_size,
                "context_length": model.context_length,
                "eos_ids": sorted(model.eos_ids),
                "facts": model.facts,
                "generation_config": model.generation,
            },
            "prompt": {"text": self._prompt.text, "ids": list(self._prompt.ids), "chat": self._prompt.chat},
            "requested": self._config.to_dict(),
            "effective": {
                **self._in_force,
                "computing_dtype": self.computing_dtype,
                "batch_size": self._rows,
                "row": batch.row,
                "left_pad": batch.left_pad,
                "pads": pads,
                "mask": any(pads),
                "prefill_chunk": self._config.prefill_chunk,
                "seed": self._config.seed,
                "decode": decode_path(self._config),
            },
            "rows": [
                {"prompt_ids": list(prompt), "pads": pad, "token_ids": self._tokens_of(index)}
                for index, (prompt, pad) in enumerate(zip(batch.prompts, pads, strict=True))
            ],
            "inputs": self.witness.facts(),
            "tensors": self.tensors,
            "forced": self.forced,
            "max_new_tokens": self.asked,
            "finish_reason": self.finish_reason,
            "partial": self.finish_reason in ("stopped", "error"),
            "error": self._error,
            "invalid": self._invalid,
            "warnings": list(dict.fromkeys(self.warnings)),
            "snapshot": snapshot(),
        }


class _Collector(logging.Handler):
    def __init__(self, into: list[str]) -> None:
        super().__init__(logging.WARNING)
        self._into = into

    def emit(self, record: logging.LogRecord) -> None:
        self._into.append(record.getMessage())


def _explain(error: Exception) -> str:
    text = (str(error).strip().splitlines() or [type(error).__name__])[0]
    if isinstance(error, MemoryError | torch.OutOfMemoryError) or "can't allocate memory" in text:
        return f"out of memory ({text}); use a smaller batch, fewer steps, or a narrower dtype"
    return f"{type(error).__name__}: {text}"
