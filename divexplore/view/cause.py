"""What was found out about a cause, as plain values and columns; absent where nobody asked."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from divexplore.view.cause_charts import layer_frames, layer_spec

if TYPE_CHECKING:
    import polars as pl

    from divexplore.comparison.attribution import Attribution
    from divexplore.comparison.comparison import Comparison
    from divexplore.comparison.layers import LayerDrift
    from divexplore.comparison.operations import OperationTrace

__all__ = ["cause_columns", "cause_part", "cause_specs", "short"]

_OPERATIONS = 120
"""Rows of the operation table that cross to the browser: thousands may differ, and the first ones tell the story."""


def cause_part(comparison: Comparison) -> dict[str, Any] | None:
    """Guards, knobs, operations and layers; ``None`` where there is none of it.

    ``guards`` has ``name``, ``ok``, ``why``, ``outcome`` each; ``knobs``, ``operations`` and ``layers`` are ``None`` where
    nobody asked.
    """
    cause = comparison.cause
    if cause is None and not comparison.guards:
        return None
    found: dict[str, Any] = {"knobs": None, "operations": None, "layers": None, "sentences": []}
    if cause is not None:
        found["sentences"] = list(cause.sentences)
        if cause.attribution is not None:
            found["knobs"] = _knobs(cause.attribution)
        if cause.operations is not None:
            found["operations"] = _operations(cause.operations)
        if cause.layers is not None:
            found["layers"] = _layers(cause.layers)
    return {"guards": [guard.to_dict() for guard in comparison.guards], **found}


def cause_columns(comparison: Comparison) -> dict[str, NDArray[Any]]:
    """Columns of the layer chart.

    ``layer_drift_layer``, ``layer_drift_step`` (below 0 inside the prompt) and ``layer_drift_relative``, an entry a cell
    that differs; ``layer_epsilon``, logits by step.
    """
    cause = comparison.cause
    if cause is None or cause.layers is None:
        return {}
    frames = layer_frames(cause.layers)
    return {
        "layer_drift_layer": frames["drift"]["layer"].to_numpy().astype("<i4"),
        "layer_drift_step": frames["drift"]["step"].to_numpy().astype("<i4"),
        "layer_drift_relative": frames["drift"]["relative"].to_numpy().astype("<f4"),
        "layer_epsilon": frames["logits"]["epsilon"].to_numpy().astype("<f4"),
    }


def cause_specs(comparison: Comparison) -> dict[str, Any]:
    """The specification of the layer chart, without data; nothing where nobody asked for layers."""
    cause = comparison.cause
    return {} if cause is None or cause.layers is None else {"layers": layer_spec(cause.layers)}


def _knobs(found: Attribution) -> dict[str, Any]:
    shared = ("first_drift", "drift", "split", "verdict", "inconclusive", "why")
    return {
        "notes": list(found.notes),
        "runs": found.runs,
        "stopped": found.stopped,
        "flip": list(found.minimal_flip or ()),
        "drift": list(found.minimal_drift or ()),
        "rows": [
            {"knob": row["knob"], "a": short(row["a"]), "b": short(row["b"]), **_of(row, shared)}
            for row in found.table.iter_rows(named=True)
        ],
        "neighbours": [_of(row, ("question", "means", *shared)) for row in found.neighbours.iter_rows(named=True)],
    }


def _operations(found: OperationTrace) -> dict[str, Any]:
    told = found.table.filter((found.table["state"] == "differs") | found.table["absorbs"].fill_null(False))
    names = ("order", "module", "operation", "occurrence", "state", "max_abs", "ulps", "relative", "share")
    first = found.first_difference
    return {
        "step": found.step,
        "kind": found.kind,
        "epsilon": found.epsilon,
        "sentence": str(found),
        "compared": found.compared,
        "differing": found.differing.height,
        "absorbing": found.absorbing.height,
        "unmatched": found.unmatched.height,
        "first": None if first is None else first.order,
        "rows": [{**_of(row, names), "shape": " × ".join(map(str, row["shape"]))} for row in _bounded(told)],
        "told": told.height,
    }


def _bounded(told: pl.DataFrame) -> list[dict[str, Any]]:
    """The first rows, and the last one: what comes of it in the logits."""
    rows = told.to_dicts()
    return rows if len(rows) <= _OPERATIONS else [*rows[: _OPERATIONS - 1], rows[-1]]


def _layers(found: LayerDrift) -> dict[str, Any]:
    here = {row["layer"]: row for row in found.drift.filter(found.drift["step"] == found.step).iter_rows(named=True)}
    lens = {(row["layer"], row["side"]): row for row in found.lens.iter_rows(named=True)}
    rows = []
    for layer in sorted({layer for layer, _ in lens}):
        drift = here.get(layer, {})
        sides = {side.lower(): _of(lens[layer, side], ("gap", "top")) for side in ("A", "B")}
        rows.append({"layer": layer, "max_abs": drift.get("max_abs"), "relative": drift.get("relative"), **sides})
    return {
        "step": found.step,
        "flip": found.flip,
        "first": found.first_layer,
        "candidates": list(found.candidates),
        "exact": found.lens_exact,
        "rows": rows,
    }


def _of(row: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: row[name] for name in names}


def short(value: Any, limit: int = 160) -> str:
    """A value in one line; the whole of it is in the trace."""
    text = (
        "not set"
        if value is None
        else value
        if isinstance(value, str)
        else json.dumps(value, ensure_ascii=False, default=str)
    )
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
