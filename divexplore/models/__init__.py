"""Load a model the one canonical way, and tell whether two are the same."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from divexplore.models.fingerprint import Fingerprint
    from divexplore.models.load import load_model
    from divexplore.models.model import Model, Prompt

__all__ = ["Fingerprint", "Model", "Prompt", "load_model"]

_HOMES = {"Fingerprint": "fingerprint", "Model": "model", "Prompt": "model", "load_model": "load"}


def __getattr__(name: str) -> Any:
    """Names that need torch, loaded when first asked for: `divexplore.models.catalog` is to be had without it."""
    if name in _HOMES:
        from importlib import import_module

        return getattr(import_module(f"divexplore.models.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
