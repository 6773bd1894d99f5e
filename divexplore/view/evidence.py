"""What a comparison carries beyond its two traces, as plain values; absent where nobody measured it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import polars as pl

    from divexplore.comparison.comparison import Comparison

__all__ = ["measured_columns", "parts", "spread"]

_FORCED = ("epsilon", "kld", "top1_agree", "delta_p", "rank")


def parts(comparison: Comparison) -> dict[str, Any]:
    """Ladder, referee, cascade and the structural part; each ``None`` where it was not measured."""
    evidence = comparison.evidence
    if evidence is None:
        return dict.fromkeys(("ladder", "referee", "cascade", "structural"))
    cascade = evidence.cascade
    return {
        "ladder": [asdict(rung) for rung in evidence.ladder] or None,
        "referee": None if evidence.referee is None else asdict(evidence.referee),
        "cascade": None if cascade is None else {**asdict(cascade), "sentence": str(cascade)},
        "structural": evidence.structural,
    }


def measured_columns(comparison: Comparison) -> dict[str, NDArray[np.float32]]:
    """Columns by A's step: those of B forced on A's tokens (``forced_…``) and the noise floor (``floor``, logits)."""
    evidence, length = comparison.evidence, len(comparison.a)
    if evidence is None:
        return {}
    present = [name for name in _FORCED if name in evidence.forced.columns]
    out = {f"forced_{name}": spread(evidence.forced, name, length) for name in present}
    if evidence.floor is not None:
        out["floor"] = spread(evidence.floor, "floor", length)
    return out


def spread(table: pl.DataFrame, name: str, length: int) -> NDArray[np.float32]:
    """A measured column by step, shape ``(length,)``; NaN where nothing was measured."""
    out = np.full(length, np.nan, dtype="<f4")
    pairs: Iterable[tuple[int, Any]] = table.select("step", name).iter_rows()
    for step, value in pairs:
        if value is not None and step < length:
            out[step] = value
    return out
