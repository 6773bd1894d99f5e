"""What a comparison carries beyond its two traces, as plain values; ``None`` where nobody measured it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from divexplore.comparison.comparison import Comparison

__all__ = ["cascade", "ladder", "per_step", "referee"]


def ladder(comparison: Comparison) -> list[Any] | None:
    """Rungs of the precision ladder, lowest first: ``dtype``, ``epsilon_at_split``, ``epsilon_max``, ``vacuous``."""
    return _plain(_part(comparison, "ladder"))


def referee(comparison: Comparison) -> dict[str, Any] | None:
    """The top rung's opinion of the split: ``token_id``, ``text``, ``gap`` (logits), ``undecided``."""
    return _plain(_part(comparison, "referee"))


def cascade(comparison: Comparison) -> dict[str, Any] | None:
    """After a flip: ``differing_tokens``, ``independent_flips`` (``step``, ``gap``, ``epsilon``), ``rejoins``."""
    return _plain(_part(comparison, "cascade"))


def per_step(comparison: Comparison, name: str, length: int) -> NDArray[np.float32] | None:
    """A quantity by step, shape ``(length,)``, NaN where it was not measured; ``None`` where it was nowhere."""
    value = _part(comparison, name)
    if value is None:
        return None
    out = np.full(length, np.nan, dtype="<f4")
    if hasattr(value, "columns"):  # a table: `step` and the quantity
        pairs = zip(
            value["step"].to_list(), value[next(c for c in value.columns if c != "step")].to_list(), strict=True
        )
    elif isinstance(value, Mapping):
        pairs = ((int(step), one) for step, one in value.items())
    elif np.ndim(value):
        pairs = enumerate(value)
    else:
        return None
    for step, one in pairs:
        if one is not None and step < length:
            out[step] = one
    return out


def _part(comparison: Comparison, name: str) -> Any:
    evidence = getattr(comparison, "evidence", None)
    return evidence.get(name) if isinstance(evidence, Mapping) else getattr(evidence, name, None)


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _plain(dataclasses.asdict(value))
    if hasattr(value, "to_dicts"):
        return _plain(value.to_dicts())
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value.item() if isinstance(value, np.generic) else value
