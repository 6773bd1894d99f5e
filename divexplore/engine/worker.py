"""The other end of isolated runs: a process of its own, started by `divexplore.engine.fresh_process`, for one run or several."""

from __future__ import annotations

import functools
import gc
import json
import signal
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from divexplore.errors import Refusal

__all__ = ["main"]

_EVERY = 0.1  # seconds between two lines of progress


def main(requests: Iterable[str]) -> int:
    """Serve the requests that come, a folder a line, until there are no more.

    In each folder: ``request.json`` in, ``trace.parquet`` and ``rows.bin`` out, then ``done.json``.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's Ctrl-C comes here too; the other end says when to stop
    for line in requests:
        folder = Path(line.rstrip("\n"))
        request = json.loads((folder / "request.json").read_text(encoding="utf-8"))
        try:
            done = _serve(folder, request)
        except Refusal as refusal:
            done = {"refusal": refusal.to_dict()}
        gc.collect()  # copies in a higher precision: modules hold each other in cycles
        _replace(folder / "done.json", json.dumps(done))
    return 0


def _serve(folder: Path, request: dict[str, Any]) -> dict[str, Any]:
    import torch

    from divexplore.config import RunConfig
    from divexplore.engine.processor import start_in_force
    from divexplore.engine.run import decode
    from divexplore.engine.statistics import row_bytes
    from divexplore.models.model import Prompt
    from divexplore.trace import Trace

    torch.set_num_threads(request["threads"])
    say = _Progress(folder / "progress.json")
    say(0, request["max_new_tokens"], "loading")
    model = _model(request["name"], request["source"], request["weights"])
    if model.master.config._attn_implementation != request["attention"]:
        model.master.set_attn_implementation(request["attention"])
    prompt = request["prompt"]
    kept: dict[str, str] = {}
    stopped = folder / "stop"
    with (folder / "rows.bin").open("wb") as rows:

        def keep(step: int, row: torch.Tensor, token: int) -> None:
            kept["dtype"] = str(row.dtype).removeprefix("torch.")
            rows.write(row_bytes(row.detach().cpu().contiguous()))

        trace = decode(
            model,
            Prompt(prompt["text"], tuple(prompt["ids"]), prompt["chat"]),
            RunConfig.of(request["config"]),
            request["max_new_tokens"],
            forced=request["forced"],
            fillers=Trace.load(folder / "fillers.parquet") if request["fillers"] else None,
            on_row=keep if request["rows"] else None,
            progress=say,
            stop=stopped.exists,
            **_on_rung(model, request),
        )
    trace.meta["effective"] |= {**start_in_force(), "process": "isolated"}
    trace.save(folder / "trace.parquet")
    return kept


@functools.lru_cache(maxsize=1)
def _model(name: str, source: str, shipped: str | None) -> Any:
    """The model, which stays for the next run."""
    from divexplore.models.load import load_model

    model = load_model(shipped or name)
    if shipped is not None:
        model.name, model.source = name, source
        _put_back(model.master, Path(shipped))
    return model


def _on_rung(model: Any, request: dict[str, Any]) -> dict[str, Any]:
    """What `decode` needs to compute on a rung of the precision ladder; nothing for a run of its own."""
    if request["rung"] is None:
        return {}
    import torch

    from divexplore.engine.clean64 import raised, rung_mode

    net = model.instance(request["rung_weights"], request["config"].get("device"))
    return {"net": raised(net, getattr(torch, request["rung"])), "within": rung_mode(request["rung"])}


def _put_back(net: Any, folder: Path) -> None:
    """Give the model the buffers that were shipped: a checkpoint holds none of those that a model computes at load."""
    from safetensors.torch import load_file

    for name, buffer in load_file(folder / "buffers" / "buffers.safetensors").items():
        owner, _, leaf = name.rpartition(".")
        net.get_submodule(owner)._buffers[leaf] = buffer


class _Progress:
    """Steps done, in a file that is replaced whole, at most ten times a second."""

    def __init__(self, path: Path) -> None:
        self._path, self._last = path, 0.0

    def __call__(self, done: int, total: int, tail: str) -> None:
        now = time.monotonic()
        if now - self._last >= _EVERY or done == total:
            self._last = now
            _replace(self._path, json.dumps([done, total, tail]))


def _replace(path: Path, text: str) -> None:
    """Write a file that its reader finds whole or not at all."""
    part = path.with_suffix(".part")
    part.write_text(text, encoding="utf-8")
    part.replace(path)


if __name__ == "__main__":
    sys.exit(main(sys.stdin))
