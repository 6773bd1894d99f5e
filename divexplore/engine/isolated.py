"""Run a configuration in a fresh process: settings that libraries read only when a process starts take effect there."""

from __future__ import annotations

import json
import shutil
import tempfile
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from divexplore.config import RunConfig
from divexplore.engine.fresh_process import process_for
from divexplore.engine.interventions import refuse_elsewhere
from divexplore.engine.processor import refuse_unless_honoured
from divexplore.errors import Refusal
from divexplore.models.canonical import bytes_needed
from divexplore.models.catalog import find_entry
from divexplore.models.checkpoint import quiet
from divexplore.trace import Trace

if TYPE_CHECKING:
    from divexplore.engine.run import OnRow, Progress
    from divexplore.models.model import Model, Prompt

__all__ = ["needs_isolation", "run_isolated"]

PATIENCE = 900.0
"""Seconds without a sign of life after which a worker is given up: loading a large model is silent."""

_SHIPPED: weakref.WeakKeyDictionary[Model, str] = weakref.WeakKeyDictionary()


def needs_isolation(*configs: RunConfig) -> bool:
    """Whether any of these configurations has a setting that is read at start: then all of them run in workers."""
    return any(config.start_variables for config in configs)


def run_isolated(
    model: Model,
    prompt: Prompt,
    config: RunConfig,
    max_new_tokens: int,
    *,
    forced: Sequence[int] = (),
    fillers: Trace | None = None,
    on_row: OnRow | None = None,
    progress: Progress | None = None,
    stop: Callable[[], bool] | None = None,
    rung: str | None = None,
    weights: str | None = None,
    patience: float = PATIENCE,
) -> Trace:
    """`divexplore.engine.run.decode` in a process of its own, with the canonical load of the same weights.

    The process is fresh, except within `divexplore.engine.fresh_process.kept_processes`.

    Parameters
    ----------
    on_row
        Sees every raw row as `decode` shows it, but after the run has ended: rows come through a file.
    rung, weights
        A dtype of the precision ladder in which to compute, with the weights as rounded to the dtype `weights`.
    patience
        Seconds without a sign of life after which the worker is ended.

    Raises
    ------
    Refusal
        On a setting that this machine cannot honour, or what the worker refuses.
    RuntimeError
        Where the worker dies; with its last words.
    """
    refuse_elsewhere("a fresh process")
    refuse_unless_honoured(config)
    with tempfile.TemporaryDirectory(prefix="divexplore-run-") as name:
        folder = Path(name)
        request = {
            **_source(model),
            "attention": model.master.config._attn_implementation,
            "prompt": {"text": prompt.text, "ids": list(prompt.ids), "chat": prompt.chat},
            "config": config.to_dict(),
            "max_new_tokens": max_new_tokens,
            "forced": list(forced),
            "fillers": fillers is not None,
            "rows": on_row is not None,
            "rung": rung,
            "rung_weights": weights,
            "threads": torch.get_num_threads(),
        }
        (folder / "request.json").write_text(json.dumps(request), encoding="utf-8")
        if fillers is not None:
            fillers.save(folder / "fillers.parquet")
        # the checkpoint, a cast of it, and the copy in fp64 of the precision ladder
        needed = 2 * bytes_needed(model.master, torch.float64)
        with process_for(config.start_variables, needed) as process:
            process.serve(folder, progress, stop, patience=patience)
        done = json.loads((folder / "done.json").read_text(encoding="utf-8"))
        if "refusal" in done:
            raise Refusal(**done["refusal"])
        trace = Trace.load(folder / "trace.parquet")
        _check_weights(model, trace)
        if on_row is not None and len(trace):
            _show_rows(folder / "rows.bin", getattr(torch, done["dtype"]), trace, on_row)
    return trace


def _source(model: Model) -> dict[str, Any]:
    """Where the worker finds the weights: a name that we ship or cache, else a temporary copy, made once a model."""
    entry = find_entry(model.name)
    named = model.own_tokenizer and model.source not in ("memory", "a folder", "a GGUF file")
    if entry is not None and named:
        return {"name": entry.name, "source": model.source, "weights": None}
    if model not in _SHIPPED:
        from safetensors.torch import save_file

        held = tempfile.mkdtemp(prefix="divexplore-weights-")
        weakref.finalize(model, shutil.rmtree, held, ignore_errors=True)
        with quiet():
            model.master.save_pretrained(held)
        if model.tokenizer is not None:
            model.tokenizer.save_pretrained(held)
        buffers = {name: b.contiguous().clone() for name, b in model.master.named_buffers() if b.is_floating_point()}
        (Path(held) / "buffers").mkdir()
        save_file(buffers, Path(held) / "buffers" / "buffers.safetensors")
        _SHIPPED[model] = held
    return {"name": model.name, "source": model.source, "weights": _SHIPPED[model]}


def _check_weights(model: Model, trace: Trace) -> None:
    """The worker must have run the same weights and buffers."""
    own, found = model.known_fingerprint, trace.meta["model"]["fingerprint"]
    if own is not None and found is not None and own.to_dict() != found:
        wrong = [name for name, value in own.to_dict().items() if found.get(name) != value]
        raise RuntimeError(f"the isolated process loaded another model: its hashes of {', '.join(wrong)} differ")


def _show_rows(path: Path, dtype: torch.dtype, trace: Trace, on_row: OnRow) -> None:
    size = trace.meta["model"]["vocab_size"] * dtype.itemsize
    with path.open("rb") as rows:
        for step, token in enumerate(trace.token_ids):
            on_row(step, torch.frombuffer(bytearray(rows.read(size)), dtype=dtype), token)
