"""What does an interrupt do while something runs? The first one stops it as Stop does, the next one is Python's own."""

from __future__ import annotations

import signal
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from divexplore.errors import Interrupted

__all__ = ["Stopping", "interruptible"]


class Stopping:
    """Asked before each step, as `stop` is: true once someone interrupted, or where the caller's own `stop` says so."""

    def __init__(self, stop: Callable[[], bool] | None) -> None:
        self._stop, self.interrupted = stop, False

    def __call__(self) -> bool:
        """Whether to stop."""
        return self.interrupted or (self._stop is not None and self._stop())

    def tell(self, between: int = 1) -> None:
        """Warn of an interrupt; called by a function that a person calls through as many others as `between`."""
        if self.interrupted:
            warnings.warn("interrupted: what was recorded until then is kept", Interrupted, stacklevel=3 + between)


@contextmanager
def interruptible(stop: Callable[[], bool] | None = None) -> Iterator[Stopping]:
    """Take the first interrupt (Ctrl-C, the notebook's stop button) as Stop: the step under way ends, and is recorded.

    An exception in mid-step would leave half a step behind. The second interrupt raises `KeyboardInterrupt` at once, and
    so does the first where another handler than Python's own is in force. In another thread than the main one, which no
    interrupt reaches, nothing changes.
    """
    stopping = Stopping(stop)
    ours = threading.current_thread() is threading.main_thread()
    if not ours or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield stopping
        return

    def first(number: int, frame: Any) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        stopping.interrupted = True

    signal.signal(signal.SIGINT, first)
    try:
        yield stopping
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
