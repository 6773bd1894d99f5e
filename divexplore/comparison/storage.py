"""A comparison on disk: a folder of two traces, tables, and the judgement, readable without the model."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from divexplore.comparison.cause import TABLES, Cause
from divexplore.comparison.comparison import Comparison, Side, Split
from divexplore.comparison.evidence import Evidence
from divexplore.comparison.guards import Guard
from divexplore.comparison.report import FORMAT, to_dict
from divexplore.comparison.verdict import Judgement, Verdict
from divexplore.errors import FormatError, Refusal, path_of
from divexplore.trace import Trace, check_format, strict_json

if TYPE_CHECKING:
    import polars as pl

__all__ = ["load", "save"]

_FACTS, _TABLES, _MEASURED = "comparison.json", ("steps", "columns"), ("forced", "floor")
_CAUSE = [f"cause_{name}" for names in TABLES.values() for name in names]


def save(comparison: Comparison, folder: str | Path) -> Path:
    """Write a comparison into a folder, which is made where it is absent; returns the folder.

    Raises
    ------
    Refusal
        Without a name, or where there is a file of that name.
    """
    folder = path_of(folder, "a folder, which is made where it is absent")
    if folder.exists() and not folder.is_dir():
        raise Refusal(
            f"folder={str(folder)!r}", "the name of a folder", "Name a folder; it is made where it is absent."
        )
    folder.mkdir(parents=True, exist_ok=True)
    comparison.a.save(folder / "a.parquet")
    comparison.b.save(folder / "b.parquet")
    for name in _TABLES:
        getattr(comparison, name).write_parquet(folder / f"{name}.parquet")
    evidence = comparison.evidence
    optional = {name: None if evidence is None else getattr(evidence, name) for name in _MEASURED}
    found = {} if comparison.cause is None else comparison.cause.tables()
    optional |= {name: found.get(name.removeprefix("cause_")) for name in _CAUSE}
    for name, table in optional.items():
        (folder / f"{name}.parquet").unlink(missing_ok=True)  # of an earlier comparison in the same folder
        if table is not None:
            table.write_parquet(folder / f"{name}.parquet")
    written = ["a", "b", *_TABLES, *(name for name, table in optional.items() if table is not None)]
    facts = {**to_dict(comparison), "files": {name: _digest(folder, name) for name in written}}
    (folder / _FACTS).write_text(strict_json(facts, indent=1), encoding="utf-8")
    return folder


def _digest(folder: Path, name: str) -> str:
    return hashlib.blake2b((folder / f"{name}.parquet").read_bytes(), digest_size=16).hexdigest()


def load(folder: str | Path) -> Comparison:
    """Read what `save` wrote.

    Raises
    ------
    Refusal
        On what is no path, or the path of a file.
    FileNotFoundError
        Where the folder holds no comparison.
    FormatError
        On files that are damaged, foreign or of a newer major version.
    """
    import polars as pl

    folder = path_of(folder, "a folder that Comparison.save wrote")
    if folder.is_file():
        raise Refusal(
            f"the file {folder.name!r}",
            "a folder that Comparison.save wrote",
            "Pass its folder; dx.Trace.load reads a trace.",
        )
    if not (folder / _FACTS).is_file():
        raise FileNotFoundError(f"no comparison at {folder}")
    try:
        facts = json.loads((folder / _FACTS).read_text(encoding="utf-8"))
    except ValueError as error:
        raise FormatError(
            f"{_FACTS} is damaged ({error})", "a folder that Comparison.save wrote", "Record it again."
        ) from error
    check_format(facts, FORMAT, str(folder))
    try:
        for name, digest in facts["files"].items():
            if _digest(folder, name) != digest:
                raise ValueError(f"{name}.parquet is not the file that was saved")
        tables: dict[str, pl.DataFrame] = {name: pl.read_parquet(folder / f"{name}.parquet") for name in _TABLES}
        judgement = Judgement(
            verdict=Verdict(facts["verdict"]),
            why=facts["why"],
            next=facts["next"],
            inconclusive=facts["inconclusive"],
            also=tuple(map(Verdict, facts["also"])),
            evidence=tuple(facts["evidence"]["sentences"]),
        )
        split = None if facts["split"] is None else _split(facts["split"])
        evidence = _evidence(facts, folder)
        guards = tuple(Guard(**guard) for guard in facts["guards"])
        cause = _cause(facts, folder)
    except Exception as error:
        raise FormatError(
            f"the comparison in {folder.name} is damaged ({error})",
            "a folder that Comparison.save wrote",
            "Record it again.",
        ) from error
    return Comparison(
        a=Trace.load(folder / "a.parquet"),
        b=Trace.load(folder / "b.parquet"),
        steps=tables["steps"],
        columns=tables["columns"],
        judgement=judgement,
        split=split,
        evidence=evidence,
        guards=guards,
        cause=cause,
        evidence_asked=facts["evidence"].get("asked"),
    )


def _evidence(facts: dict[str, Any], folder: Path) -> Evidence | None:
    import polars as pl

    if facts["evidence"]["measured"] is None:
        return None
    read = {name: folder / f"{name}.parquet" for name in _MEASURED}
    tables = {name: pl.read_parquet(path) if path.is_file() else None for name, path in read.items()}
    measured = {**facts["evidence"]["measured"], **{name: facts[name] for name in ("ladder", "referee", "cascade")}}
    if tables["forced"] is None:
        raise ValueError("forced.parquet is missing")
    return Evidence.from_dict(measured, tables["forced"], tables["floor"])


def _cause(facts: dict[str, Any], folder: Path) -> Cause | None:
    import polars as pl

    found = facts.get("cause")  # folders of the first days have none
    if found is None:
        return None
    asked = [name for part, names in TABLES.items() if found[part] is not None for name in names]
    return Cause.from_dict(found, {name: pl.read_parquet(folder / f"cause_{name}.parquet") for name in asked})


def _split(facts: dict[str, Any]) -> Split:
    sides = {name: Side(**{key: facts[name][key] for key in Side.__dataclass_fields__}) for name in ("a", "b")}
    return Split(step=facts["step"], epsilon=facts["epsilon"], pair_swing=facts["pair_swing"], **sides)
