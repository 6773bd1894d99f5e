"""What of a comparison the browser needs: a plain header, and one block of bytes with every column of numbers."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

import divexplore
from divexplore.comparison.records import is_record, prompts_differ
from divexplore.trace import describe, strict_json
from divexplore.view import charts
from divexplore.view.cause import cause_columns, cause_part, cause_specs, short
from divexplore.view.code import as_code
from divexplore.view.evidence import measured_columns, parts, spread

if TYPE_CHECKING:
    from divexplore.comparison.comparison import Comparison
    from divexplore.trace import Trace

__all__ = ["FORMAT", "Payload", "summarise"]

FORMAT = "divexplore.view/1"

_GAP = -1
_STAMP_BYTES = 8
_DTYPES: dict[str, np.dtype[Any]] = {
    "int32": np.dtype("<i4"),
    "float32": np.dtype("<f4"),
    "float64": np.dtype("<f8"),
    "uint8": np.dtype("u1"),
}
_PER_STEP = ("logit", "logprob", "margin", "margin_ulps", "entropy")


@dataclass(frozen=True)
class Payload:
    """A comparison as it crosses to the browser.

    Parameters
    ----------
    header
        Strict JSON values. ``header["blob"]`` lists the columns of `blob`: ``name``, ``dtype``, ``shape``, ``offset``
        (bytes, a multiple of 8 so that JavaScript can lay a typed array over it without a copy).
    blob
        Little-endian numbers, one column after the other. Unknown values are NaN, gaps of the alignment are -1.
    """

    header: dict[str, Any]
    blob: bytes

    def column(self, name: str) -> NDArray[Any]:
        """A column by its name, in its shape."""
        for entry in self.header["blob"]:
            if entry["name"] == name:
                count = int(np.prod(entry["shape"]))
                values = np.frombuffer(self.blob, _DTYPES[entry["dtype"]], count, entry["offset"])
                return values.reshape(entry["shape"])
        raise KeyError(name)

    def text(self, token_id: int) -> str:
        """What to show for a token id."""
        return self._texts.get(token_id, f"#{token_id}")

    @property
    def _texts(self) -> dict[int, str]:
        return dict(zip(self.column("vocabulary").tolist(), self.header["texts"], strict=True))


def summarise(comparison: Comparison) -> Payload:
    """Everything the view shows, as plain values.

    Parts that the comparison does not carry (forced steps, ladder, referee, cascade, cause) are ``None`` or absent columns:
    what the view cannot show it leaves out.
    """
    a, b = comparison.a, comparison.b
    columns: dict[str, NDArray[Any]] = {
        "column_a": _steps(comparison.columns["a"]),
        "column_b": _steps(comparison.columns["b"]),
        "epsilon": spread(comparison.steps, "epsilon", max(len(a), len(b))),
        **_side("a", a),
        **_side("b", b),
        **measured_columns(comparison),
        **cause_columns(comparison),
    }
    ids, texts, hexes = _vocabulary((a, b))
    columns["vocabulary"] = ids
    columns["stamp"] = np.zeros(_STAMP_BYTES, dtype="u1")
    blob, entries = _pack(columns)
    marks = {name: _column_of(columns, step) for name, step in _marks(comparison).items() if step is not None}
    header = {
        "format": FORMAT,
        "version": divexplore.__version__,
        "model": a.meta["model"],
        "prompt": a.meta["prompt"],
        "prompt_b": b.meta["prompt"] if prompts_differ(a, b) else None,
        "verdict": _judgement(comparison),
        "split": None if comparison.split is None else dataclasses.asdict(comparison.split),
        "first_drift": comparison.first_drift,
        "first_divergence": comparison.first_divergence,
        "columns": len(columns["column_a"]),
        "drift_column": marks.get("drift"),
        "split_column": marks.get("split"),
        "selected": marks.get("split", marks.get("drift", 0)),
        "a": _facts(a, b),
        "b": _facts(b, a),
        **parts(comparison),
        "cause": cause_part(comparison),
        "texts": texts,
        "bytes": hexes,
        "report": comparison.to_markdown(),
        "code": as_code(comparison),
        "charts": {**charts.specs(columns, _unit(a)), **cause_specs(comparison)},
        "blob": entries,
    }
    text = strict_json(header)
    # the browser builds the view anew when the block changes: so it changes with the header too
    stamp = hashlib.blake2b(text.encode(), digest_size=_STAMP_BYTES).digest()
    return Payload(json.loads(text), blob[:-_STAMP_BYTES] + stamp)


def _steps(column: Any) -> NDArray[np.int32]:
    return column.fill_null(_GAP).to_numpy().astype("<i4")


def _side(name: str, trace: Trace) -> dict[str, NDArray[Any]]:
    real = "<f8" if trace.dtype == "float64" else "<f4"  # raw logits of the narrower dtypes are exact in float32
    table = trace.table
    out: dict[str, NDArray[Any]] = {f"{name}_token": table["token_id"].to_numpy().astype("<i4")}
    for column in _PER_STEP:
        out[f"{name}_{column}"] = table[column].cast(float).fill_null(float("nan")).to_numpy().astype(real)
    out[f"{name}_tie"] = table["exact_tie"].fill_null(False).to_numpy().astype("u1")
    out[f"{name}_top_ids"] = trace.top_ids.astype("<i4")
    out[f"{name}_top_logits"] = trace.top_logits.astype(real)
    return out


def _vocabulary(traces: Iterable[Trace]) -> tuple[NDArray[np.int32], list[str], dict[str, str]]:
    """Ids that occur, their texts for display, and the bytes (hex) of those whose text is not simply their UTF-8."""
    known: dict[int, str] = {}
    hexes: dict[str, str] = {}
    found: list[NDArray[np.int32]] = []
    for trace in traces:
        known |= {int(key): text for key, text in (trace.meta.get("texts") or {}).items()}
        found += [trace.top_ids.ravel(), trace.table["token_id"].to_numpy()]
        for token_id, text, raw in trace.table.select("token_id", "text", "bytes").unique("token_id").iter_rows():
            known[token_id] = text
            if raw is not None and raw != text.encode():
                hexes[str(token_id)] = raw.hex(" ")
    ids = np.unique(np.concatenate(found)).astype("<i4")
    ids = ids[ids != _GAP]  # behind the end of a recorded list
    return ids, [known.get(i, f"#{i}") for i in ids.tolist()], hexes


def _pack(columns: Mapping[str, NDArray[Any]]) -> tuple[bytes, list[dict[str, Any]]]:
    blob, entries = bytearray(), []
    for name, values in columns.items():
        blob += bytes(-len(blob) % 8)
        entries.append({"name": name, "dtype": values.dtype.name, "shape": list(values.shape), "offset": len(blob)})
        blob += np.ascontiguousarray(values).astype(_DTYPES[values.dtype.name], copy=False).tobytes()
    return bytes(blob), entries


def _marks(comparison: Comparison) -> dict[str, int | None]:
    return {"drift": comparison.first_drift, "split": comparison.first_divergence}


def _column_of(columns: Mapping[str, NDArray[Any]], step: int) -> int:
    """The column that holds a step of the common prefix: there both sides are at the same step."""
    return int(np.flatnonzero((columns["column_a"] == step) | (columns["column_b"] == step))[0])


def _judgement(comparison: Comparison) -> dict[str, Any]:
    judgement = comparison.judgement
    return {
        "name": str(judgement.verdict),
        "inconclusive": judgement.inconclusive,
        "also": [str(verdict) for verdict in judgement.also],
        "why": judgement.why,
        "next": judgement.next,
        "evidence": list(judgement.evidence),
    }


def _facts(trace: Trace, other: Trace) -> dict[str, Any]:
    """What is known of one run, each fact with whether the other run's is another."""
    return {
        "steps": len(trace),
        "dtype": trace.dtype,
        "values": "logit" if trace.record is None else "logprob",
        "unit": _unit(trace),
        "label": _label(trace, other),
        "invalid": None if trace.meta["invalid"] is None else trace.meta["invalid"]["step"],
        "finish_reason": trace.finish_reason,
        "partial": trace.partial,
        "warnings": trace.meta.get("warnings") or [],
        "requested": {name: short(value) for name, value in trace.requested.items()},
        "effective": {name: short(value) for name, value in _flat(trace.effective)},
        "environment": {name: short(value) for name, value in _flat(trace.meta.get("snapshot") or {})},
        "bright": [name for name, value in trace.effective.items() if other.effective.get(name) != value],
    }


def _unit(trace: Trace) -> str:
    """Of margins and gaps: a record's log-probabilities are told apart from raw logits."""
    return "logits" if trace.record is None else "nats"


def _label(trace: Trace, other: Trace) -> str:
    """What ran, in a few words, and whatever else differs from the other side."""
    from divexplore.comparison.ladder import (
        differing_knobs,
    )  # torch, which an Explorer without a comparison does not need

    apart = set() if is_record(trace, other) else differing_knobs(trace, other)
    fork = trace.meta.get("fork")
    return describe(trace.effective, apart) + ("" if fork is None else f" · another token at step {fork['step']}")


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
