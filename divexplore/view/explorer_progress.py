"""What a run that is under way shows: steps, speed, time left, and the last words of each side."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

__all__ = ["Progress", "idle_state"]

MIN_SECONDS = 0.1
"""Between two messages to the browser: at most ten a second."""

TAIL_CHARACTERS = 40


def idle_state() -> dict[str, Any]:
    """The state of a panel on which nothing runs.

    ``phase`` is ``idle``, ``running``, ``stopping`` or ``done``; ``run`` names the decoding under way, ``step`` of
    ``steps``, counted in ``unit``; ``rate`` is in steps/s and ``left`` in seconds, or ``None`` while unknown; ``tails`` has the last
    characters of A and B; ``note`` is a line beside the bar; ``error`` is a refusal's ``asked``, ``allowed``, ``do``;
    ``spoken`` is for screen readers.
    """
    return {
        "phase": "idle",
        "run": "",
        "step": 0,
        "steps": 0,
        "unit": "steps",
        "rate": None,
        "left": None,
        "tails": {"a": "", "b": ""},
        "note": "",
        "error": None,
        "spoken": "",
    }


class Progress:
    """Called as `divexplore.compare` calls its `progress`; tells the panel, but not too often.

    Parameters
    ----------
    tell
        Takes the changed entries of the state.
    clock
        Seconds, monotonic.
    """

    def __init__(self, tell: Callable[[dict[str, Any]], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._tell, self._clock = tell, clock
        self._run = ""
        self._first = (0.0, 0)
        self._told = float("-inf")
        self._tails = {"a": "", "b": ""}

    def __call__(self, run: str, done: int, total: int, text: str) -> None:
        """One more step of `run` is recorded: `done` of `total`, `text` ends the stream so far."""
        now = self._clock()
        if fresh := run != self._run:
            self._run, self._first = run, (now, done)
        if run in ("A", "B"):
            self._tails = {**self._tails, run.lower(): text[-TAIL_CHARACTERS:]}
        if not fresh and done < total and now - self._told < MIN_SECONDS:
            return
        self._told = now
        rate = self._rate(now, done)
        self._tell(
            {
                "run": run,
                "step": done,
                "steps": total,
                "rate": rate,
                "left": None if not rate else (total - done) / rate,
                "tails": self._tails,
                "spoken": f"{run}, {_tenth(done, total)} %",
            }
        )

    def _rate(self, now: float, done: int) -> float | None:
        """Steps/s since the first step, which is left out: it holds the prefill and the cast of the weights."""
        started, first = self._first
        return None if done <= first or now <= started else (done - first) / (now - started)


def _tenth(done: int, total: int) -> int:
    """Percent in steps of ten, so that a screen reader is not flooded: an equal text is not spoken again."""
    return 10 * (10 * done // max(total, 1))
