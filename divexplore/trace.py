"""One decoding of one prompt under one configuration: a row a step, and what is known of the run; Parquet on disk."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from divexplore.errors import FormatError, Refusal, path_of

if TYPE_CHECKING:
    import numpy as np
    import polars as pl
    from numpy.typing import NDArray

__all__ = ["FORMAT", "Trace", "check_format", "strict_json", "synthetic_id", "trace_schema"]

FORMAT = "divexplore.trace/1"

_NO_ID = -1

_FACTS = (
    "model",
    "prompt",
    "requested",
    "effective",
    "rows",
    "forced",
    "finish_reason",
    "partial",
    "error",
    "invalid",
    "warnings",
    "snapshot",
    "texts",
)


def trace_schema(k: int) -> dict[str, Any]:
    """Columns of `Trace.table` and their polars types, for lists of `k` alternatives."""
    import polars as pl

    return {
        "step": pl.Int32,
        "phase": pl.String,  # "prefill" or "decode"
        "token_id": pl.Int32,
        "bytes": pl.Binary,  # null where the tokenizer cannot tell
        "text": pl.String,  # for display: undecodable bytes visible
        "logit": pl.Float64,  # of the chosen token
        "logprob": pl.Float64,  # nats
        "margin": pl.Float64,  # top-1 minus top-2, logits
        "margin_ulps": pl.Float64,
        "exact_tie": pl.Boolean,  # margin 0
        "entropy": pl.Float64,  # nats
        "top_ids": pl.Array(pl.Int32, k),  # logit descending, id ascending
        "top_logits": pl.Array(pl.Float64, k),
        "row_hash": pl.Binary,  # 16 bytes of the raw row
        "seconds": pl.Float64,
    }


@dataclass(frozen=True, eq=False)
class Trace:
    """One decoding of one prompt under one configuration.

    Parameters
    ----------
    table
        A polars frame, one row a generated token; columns as in `trace_schema`.
    meta
        Plain JSON values: ``format``, ``model``, ``prompt`` (``text``, ``ids``, ``chat``), ``requested``,
        ``effective``, ``rows`` (of the whole batch: ``prompt_ids``, ``pads``, ``token_ids``), ``forced`` (how many of the
        first tokens were given, not chosen), ``max_new_tokens`` (how many were asked for), ``finish_reason``
        (``length``, ``eos``, ``stopped``, ``invalid``, ``error``), ``partial``, ``error``, ``invalid``, ``warnings``,
        ``snapshot``, ``texts`` (display text of every id in the table, by id as a string), and for a trace from
        elsewhere ``record``.
    """

    table: pl.DataFrame
    meta: dict[str, Any]

    def __len__(self) -> int:
        return self.table.height

    def __eq__(self, other: object) -> bool:
        """Equal tables and equal facts."""
        if not isinstance(other, Trace):
            return NotImplemented
        return self.meta == other.meta and self.table.equals(other.table)

    def __repr__(self) -> str:
        state = "partial, " if self.partial else ""
        return f"<Trace of {len(self)} steps, {state}{self.meta['model']['name']}, {describe(self.effective)}>"

    @property
    def token_ids(self) -> list[int]:
        """The generated ids, without prompt, pads and other rows."""
        return self.table["token_id"].to_list()

    @property
    def texts(self) -> list[str]:
        """Each generated token's text for display."""
        return self.table["text"].to_list()

    @property
    def text(self) -> str:
        """The generated text; bytes that are no UTF-8 as U+FFFD. Of a record without tokens the text that it reports."""
        if not len(self) and self.record is not None:
            return self.record["text"] or ""
        pieces = self.table["bytes"].to_list()
        if any(piece is None for piece in pieces):
            return "".join(self.texts)
        return b"".join(pieces).decode("utf-8", errors="replace")

    @property
    def prompt_ids(self) -> list[int]:
        """Ids of the observed prompt, pads excluded."""
        return self.meta["prompt"]["ids"]

    @property
    def requested(self) -> dict[str, Any]:
        """The configuration as asked for: only the fields that were set."""
        return self.meta["requested"]

    @property
    def effective(self) -> dict[str, Any]:
        """The configuration that ran."""
        return self.meta["effective"]

    @property
    def record(self) -> dict[str, Any] | None:
        """What `divexplore.read_records` knows of a trace from elsewhere; ``None`` for a run of our own."""
        return self.meta.get("record")

    @property
    def dtype(self) -> str:
        """Computing dtype of the logits."""
        return self.effective["computing_dtype"]

    @property
    def finish_reason(self) -> str:
        """Why the run ended: ``length``, ``eos``, ``stopped``, ``invalid`` or ``error``."""
        return self.meta["finish_reason"]

    @property
    def partial(self) -> bool:
        """Whether the run was cut short by Stop or by an error."""
        return self.meta["partial"]

    @property
    def top_ids(self) -> NDArray[np.int32]:
        """Ids of the top list, shape ``(n_steps, k)``, logit descending, id ascending; -1 behind the end of a shorter one."""
        ids = self._matrix("top_ids")
        if ids.dtype.kind == "f":  # nulls of a recorded list: int32 is exact in float64
            ids[ids != ids] = _NO_ID
        return ids.astype("int32", copy=False)

    @property
    def top_logits(self) -> NDArray[np.float64]:
        """Raw logits of the top list, shape ``(n_steps, k)``; NaN behind the end of a shorter one."""
        return self._matrix("top_logits")

    def _matrix(self, name: str) -> Any:
        column = self.table[name]
        return column.to_numpy().reshape(len(column), _width(column))  # not -1: a run may have no step

    def save(self, path: str | Path) -> Path:
        """Write one Parquet file with the facts inside; returns its path."""
        path = path_of(path, "a file to write")
        path.parent.mkdir(parents=True, exist_ok=True)
        self.table.write_parquet(path, metadata={"divexplore": strict_json(self.meta)})
        return path

    @classmethod
    def load(cls, path: str | Path) -> Trace:
        """Read what `save` wrote.

        Raises
        ------
        Refusal
            On what is no path, or the path of a folder.
        FileNotFoundError
            Where there is no file.
        FormatError
            On a file that is truncated, corrupted, foreign or of a newer major version.
        """
        import polars as pl

        path = path_of(path, "a file that Trace.save wrote")
        if path.is_dir():
            raise Refusal(
                f"the folder {path.name!r}",
                "a file that Trace.save wrote",
                "Pass a file in it; dx.Comparison.load reads the folder of a comparison.",
            )
        if not path.is_file():
            raise FileNotFoundError(f"no trace at {path}")
        try:
            facts = pl.read_parquet_metadata(path).get("divexplore")
            table = pl.read_parquet(path)
        except Exception as error:
            raise FormatError(
                f"{path.name} cannot be read as Parquet ({error})", "a file that Trace.save wrote", "Record it again."
            ) from error
        if facts is None:
            raise FormatError(
                f"{path.name} is a Parquet file of something else", "a file that Trace.save wrote", "Pass another file."
            )
        try:
            meta = json.loads(facts)
        except ValueError as error:
            raise FormatError(
                f"the facts in {path.name} are corrupted ({error})", "strict JSON", "Record it again."
            ) from error
        check_format(meta, FORMAT, path.name)
        missing = [name for name in _FACTS if name not in meta]
        if missing:
            raise FormatError(f"{path.name} lacks {', '.join(missing)}", ", ".join(_FACTS), "Record it again.")
        expected = trace_schema(_width(table["top_ids"]) if "top_ids" in table.columns else 1)
        if dict(table.schema) != expected:
            raise FormatError(f"{path.name} has other columns than a trace", ", ".join(expected), "Record it again.")
        return cls(table, meta)


def _width(column: pl.Series) -> int:
    """Entries of each list in a column of lists of one length; 1 for any other column."""
    return int(getattr(column.dtype, "size", 1))


_DESCRIBED = {"dtype", "batch_size", "attn_implementation", "use_cache", "left_pad", "decode", "seed"}


def describe(effective: Mapping[str, Any], apart: Collection[str] = ()) -> str:
    """The effective configuration in a few words: dtype, batch, and what is unusual; of a record what it is one of.

    Parameters
    ----------
    effective
        As a trace's metadata hold it.
    apart
        Names of settings to be told in any case, for they differ from those of another run.
    """
    if "recorded" in effective:
        return " · ".join(str(effective[name]) for name in ("recorded", "arm") if name in effective)
    words = [effective["dtype"], f"batch {effective['batch_size']}", effective["attn_implementation"]]
    if not effective["use_cache"]:
        words.append("no cache")
    if any(effective["pads"]):
        words.append(f"{effective['pads'][effective['row']]} pads")
    path = effective.get("decode", "greedy")
    if path != "greedy":
        words.append(path)
        words += (
            [f"seed {effective['seed']}"] if path.startswith("sample") and effective.get("seed") is not None else []
        )
    told = {name: value for name, value in effective.items() if name in apart and name not in _DESCRIBED}
    words += [f"{name.replace('_', ' ')} {_said(value)}" for name, value in told.items() if value is not None]
    return " · ".join(words)


def _said(value: Any) -> str:
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else str(value)


def synthetic_id(key: bytes) -> int:
    """An id for a token of which only the bytes are known: negative, at most -2, and the same in every record.

    Two of n different tokens meet in one id with a chance of about n² / 2³².
    """
    return -2 - int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), "big") % (2**31 - 2)


def check_format(meta: Any, supported: str, source: str) -> None:
    """Refuse facts that are not `supported`, a name and a major version such as ``divexplore.trace/1``."""
    found = meta.get("format") if isinstance(meta, dict) else None
    name, _, version = supported.partition("/")
    if not isinstance(found, str) or not found.startswith(name + "/"):
        raise FormatError(f"{source} says format {found!r}", supported, "Pass a file of that kind.")
    major = found.rpartition("/")[2].partition(".")[0]
    if not major.isdigit():
        raise FormatError(f"{source} says format {found!r}", supported, "Record it again.")
    if int(major) > int(version):
        raise FormatError(
            f"{source} has format {found}, newer than this divexplore", f"up to {supported}", "Upgrade divexplore."
        )


def strict_json(value: Any, **options: Any) -> str:
    """Strict JSON: non-finite numbers become null, their paths are listed under ``non_finite`` at the top."""
    lost: list[str] = []
    clean = _finite(value, "", lost)
    if lost and isinstance(clean, dict):
        clean["non_finite"] = lost
    return json.dumps(clean, allow_nan=False, ensure_ascii=False, **options)


def _finite(value: Any, path: str, lost: list[str]) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        lost.append(f"{path}={value}")
        return None
    if isinstance(value, Mapping):
        return {str(key): _finite(item, f"{path}.{key}".lstrip("."), lost) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item, f"{path}[{index}]", lost) for index, item in enumerate(value)]
    return value
