"""Which model does the Explorer run, and which does it own? One that it loaded itself is freed, one passed in is not."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from divexplore.errors import Refusal
from divexplore.models.catalog import CATALOG, NAMES, check_name
from divexplore.view.explorer_form import catalogue, memory_note

if TYPE_CHECKING:
    from divexplore.models.model import Model

__all__ = ["Shelf"]


class Shelf:
    """The models of an Explorer by name: the catalogue, and the one that was passed in. At most one is loaded at a time.

    Parameters
    ----------
    passed
        As `divexplore.load_model` takes it, or ``None``. A loaded `Model` is used and never closed; a name, a path or a
        transformers model is loaded at the first run, and that copy is owned.
    """

    def __init__(self, passed: Any = None) -> None:
        _refuse_what_is_no_model(passed)
        self._passed = passed
        self.first = catalogue()[0]["name"] if passed is None else _name(passed)
        self._lock = threading.Lock()
        self._owned: tuple[str, Model] | None = None

    @property
    def listed(self) -> list[dict[str, str]]:
        """What the picker shows: ``name`` and ``note``."""
        known = [entry for entry in catalogue() if entry["name"] != self.first or self._passed is None]
        return known if self._passed is None else [{"name": self.first, "note": _note(self._passed)}, *known]

    @property
    def takes_ids(self) -> bool:
        """Whether the model passed in has no tokenizer, so that prompts are ids."""
        if hasattr(self._passed, "num_parameters"):  # a transformers model, which comes alone
            return True
        return hasattr(self._passed, "tokenizer") and self._passed.tokenizer is None

    def get(self, name: str) -> Model:
        """The model called `name`, loaded where it is not there yet; another owned one is freed first.

        Raises
        ------
        Refusal
            As `divexplore.load_model` raises it.
        """
        from divexplore.models.load import load_model

        source: Any = self._passed if name == self.first and self._passed is not None else name
        with self._lock:
            if _loaded(source):
                return source
            if self._owned is not None and self._owned[0] == name:
                return self._owned[1]
            self._free()
            model = load_model(source)
            self._owned = name, model
            return model

    def release(self) -> None:
        """Free the model that was loaded here; the next run loads it again."""
        with self._lock:
            self._free()

    def _free(self) -> None:
        if self._owned is not None:
            self._owned[1].close()
            self._owned = None


def _refuse_what_is_no_model(passed: Any) -> None:
    """At once, before anybody presses Run, and without torch: the rest is for `load_model` to say."""
    if passed is None or _loaded(passed) or hasattr(passed, "num_parameters"):
        return
    if not isinstance(passed, str | Path) or not str(passed).strip():
        raise Refusal(f"model={passed!r}", f"{NAMES}, or a model", f"Try {next(iter(CATALOG))!r}, or leave it out.")
    check_name(str(passed))


def _loaded(source: Any) -> bool:
    return hasattr(source, "parameter_count")  # a Model of ours, told without importing torch for it


def _name(source: Any) -> str:
    if isinstance(source, str | Path):
        return str(source)
    return source.name if _loaded(source) else type(source).__name__


def _note(source: Any) -> str:
    if _loaded(source):
        return memory_note(source.parameter_count)
    if hasattr(source, "num_parameters"):
        return memory_note(source.num_parameters())
    return next((entry["note"] for entry in catalogue() if entry["name"] == str(source)), "loaded when it runs")
