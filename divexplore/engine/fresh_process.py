"""The fresh processes of isolated runs: started with their variables, asked for one run after another, ended."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from divexplore.engine.run import Progress

__all__ = ["PACKAGE_ROOT", "Process", "kept_processes", "process_for"]

PACKAGE_ROOT = Path(__file__).resolve().parents[2]

_POLL = 0.05  # seconds
_LAST_WORDS = 1200  # characters
_MOST = 2
"""Processes kept at a time: the two sides of a pair. Each holds a model."""

_KEPT: ContextVar[dict[tuple[tuple[str, str], ...], Process] | None] = ContextVar("kept processes", default=None)


class Process:
    """A process that serves isolated runs, one at a time; see `divexplore.engine.worker` for its other end.

    Parameters
    ----------
    variables
        Environment variables that it starts with, beside those of this process.
    """

    def __init__(self, variables: Mapping[str, str]) -> None:
        self._home = tempfile.TemporaryDirectory(prefix="divexplore-process-")
        self._words = Path(self._home.name) / "words.txt"
        environment = {**os.environ, **variables}
        search = os.pathsep.join(filter(None, (str(PACKAGE_ROOT), environment.get("PYTHONPATH"))))
        environment["PYTHONPATH"] = search  # a checkout that is not installed is found as well
        with self._words.open("wb") as words:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "divexplore.engine.worker"],
                env=environment,
                stdin=subprocess.PIPE,  # its end tells the process that nobody will ask any more
                stdout=words,
                stderr=subprocess.STDOUT,
            )
        self._idle = True

    @property
    def ready(self) -> bool:
        """Whether it lives and no run is under way in it."""
        return self._idle and self._process.poll() is None

    def serve(
        self,
        folder: Path,
        progress: Progress | None = None,
        stop: Callable[[], bool] | None = None,
        *,
        patience: float,
    ) -> None:
        """Have the request in `folder` served, and wait until ``done.json`` is there.

        Raises
        ------
        RuntimeError
            Where the process dies, or says nothing for `patience` seconds; with its last words.
        """
        self._idle = False
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it has died: how is told below
            self._process.stdin.write(f"{folder}\n".encode())
            self._process.stdin.flush()
        heard, last = time.monotonic(), None
        while not (folder / "done.json").is_file():
            try:
                code = self._process.wait(_POLL)
            except subprocess.TimeoutExpired:
                pass
            else:
                if (folder / "done.json").is_file():
                    break
                raise RuntimeError(f"the isolated process {_how(code)}; its last words: {self._last_words()}")
            said = _said(folder)
            if said != last:
                heard, last = time.monotonic(), said
                if progress is not None and said is not None and said[0] > 0:
                    progress(*said)
            if stop is not None and stop():
                (folder / "stop").touch()
            if time.monotonic() - heard > patience:
                words = self._last_words()
                self.close()
                raise RuntimeError(
                    f"the isolated process was silent for {patience:g} s and was ended; its last words: {words}"
                )
        self._idle = True

    def close(self) -> None:
        """End it, whatever it does; it has nothing to tidy up, but its folder goes."""
        self._process.kill()
        self._process.wait()
        if self._process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()
        self._home.cleanup()

    def _last_words(self) -> str:
        words = self._words.read_text(encoding="utf-8", errors="replace").strip()
        return words[-_LAST_WORDS:] or "none"


@contextlib.contextmanager
def kept_processes() -> Iterator[None]:
    """Keep processes between the isolated runs within, one for each set of variables; all are ended when it is left.

    To start one and load the model there takes longer than most runs. They belong to this thread's context: what runs in
    another thread keeps its own. Within another such context it does nothing.
    """
    if _KEPT.get() is not None:
        yield
        return
    kept: dict[tuple[tuple[str, str], ...], Process] = {}
    token = _KEPT.set(kept)
    try:
        yield
    finally:
        _KEPT.reset(token)
        for process in kept.values():
            process.close()


@contextlib.contextmanager
def process_for(variables: Mapping[str, str], needed: int) -> Iterator[Process]:
    """A process that started with `variables`: a kept one where there is one, else a fresh one.

    It is ended afterwards, except where it is kept and has served its run.

    Parameters
    ----------
    needed
        Bytes that its model takes; kept ones that leave no room for them are ended first.
    """
    kept, key = _KEPT.get(), tuple(sorted(variables.items()))
    process = None if kept is None else kept.pop(key, None)
    if process is not None and not process.ready:
        process.close()
        process = None
    if process is None:
        while kept and (len(kept) >= _MOST or needed > psutil.virtual_memory().available):
            kept.pop(next(iter(kept))).close()
        process = Process(variables)
    try:
        yield process
    finally:
        if kept is not None and process.ready:
            kept[key] = process
        else:
            process.close()


def _said(folder: Path) -> tuple[int, int, str] | None:
    try:
        done, total, tail = json.loads((folder / "progress.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    return done, total, tail


def _how(code: int) -> str:
    if code >= 0:
        return f"ended with code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = str(-code)
    return f"was ended by {name}" + (", perhaps for want of memory" if name == "SIGKILL" else "")
