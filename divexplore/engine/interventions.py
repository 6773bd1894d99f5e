"""A place to stand between the engine and a model: what is registered here surrounds every run, the ladder's included."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

from divexplore.config import RunConfig
from divexplore.errors import Refusal

__all__ = ["Intervention", "intervene", "refuse_elsewhere", "surround"]

Intervention = Callable[[Any, RunConfig], AbstractContextManager[None]]
"""Given the transformers model and the configuration of a run, the context in which that run is decoded."""

_ACTIVE: list[Intervention] = []


@contextlib.contextmanager
def intervene(intervention: Intervention) -> Iterator[None]:
    """Surround every run for the length of a ``with``."""
    _ACTIVE.append(intervention)
    try:
        yield
    finally:
        _ACTIVE.remove(intervention)


@contextlib.contextmanager
def surround(net: Any, config: RunConfig) -> Iterator[None]:
    """The contexts of all registered interventions, for one run."""
    with contextlib.ExitStack() as stack:
        for intervention in list(_ACTIVE):
            stack.enter_context(intervention(net, config))
        yield


def refuse_elsewhere(place: str) -> None:
    """Refuse to run where what is registered here cannot reach, rather than to run without it in silence."""
    if _ACTIVE:
        raise Refusal(
            f"a run in {place} while something is registered around runs, such as a fault",
            "runs in this process",
            "Leave out settings that are read at start, or run outside that with block.",
        )
