"""Does this machine's matmul depend on who else is in the batch, on the length of the sum, or on threads?"""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from divexplore.config import PRESETS, Preset
from divexplore.engine.numerics import check_dtype
from divexplore.errors import Refusal
from divexplore.ulp import spacing

if TYPE_CHECKING:
    import polars as pl

__all__ = ["LENGTHS", "Probe", "can_differ", "probe", "report"]

LENGTHS = (64, 256, 1024, 1536, 4096)
"""Lengths of the sums that are tried: widths of small and middle-sized models."""

_OUTPUTS = 1024
_ROWS = 16
"""Rows drawn: with 16 times 1024 outputs a difference in one element of 5,000, as in bf16, is not missed."""

_PREFILL = 16  # tokens
_DTYPES = ("float32", "bfloat16", "float16")


@dataclass(frozen=True, eq=False)
class Probe:
    """What one bare ``linear`` does on this machine.

    Parameters
    ----------
    table
        A row a question: ``varies`` (``rows`` or ``threads``), ``dtype``, ``phase`` (``step``: one token a row, or
        ``prefill``: 16), ``length`` (of the sum), ``rows``, ``threads``, ``equal`` (bits of 16 rows against each
        of them alone, or against one thread), ``max_abs``, ``ulps`` (in the spacing at the larger value), ``share`` of elements
        that differ.
    skipped
        Dtypes that cannot be multiplied here, with the reason.
    """

    table: pl.DataFrame
    skipped: dict[str, str]

    def explain(self) -> list[str]:
        """What a person is about to see, a sentence a dtype."""
        found = []
        for dtype in self.table["dtype"].unique(maintain_order=True):
            mine = self.table.filter(self.table["dtype"] == dtype)
            words = [_rows_words(mine, phase) for phase in ("step", "prefill")]
            found.append(f"{dtype}: {'; '.join(words)}; {_thread_words(mine)}.")
        return [*found, *(f"{dtype}: not tried, {why}." for dtype, why in self.skipped.items())]

    def __str__(self) -> str:
        return "\n".join(self.explain())


def probe(
    dtypes: Sequence[str] = _DTYPES,
    rows: Sequence[int] = (2, 4, 8),
    lengths: Sequence[int] = LENGTHS,
    threads: Sequence[int] | None = None,
) -> Probe:
    """Multiply random numbers in the shapes of decoding, and compare bits.

    Parameters
    ----------
    rows
        Batch sizes, each compared with one row alone.
    threads
        Thread counts, each compared with one thread; ``None`` is all that torch uses now.
    """
    import polars as pl

    before = torch.get_num_threads()
    threads = (before,) if threads is None else threads
    found: list[dict[str, Any]] = []
    skipped: dict[str, str] = {}
    for dtype in dtypes:
        try:
            check_dtype(dtype, "cpu")
        except Refusal as refusal:
            skipped[dtype] = refusal.asked
            continue
        for length in lengths:
            x, weight = _numbers(max((*rows, _ROWS)), length, dtype)
            # a prefill has 16 times the elements, so half the rows show as much
            for phase, given in (("step", x[:, :1]), ("prefill", x[: max((*rows, _ROWS // 2))])):
                facts = {"dtype": dtype, "phase": phase, "length": length}
                alone = _in_groups(given, weight, 1)
                for count in rows:
                    apart = _apart(alone, _in_groups(given, weight, count))
                    found.append({"varies": "rows", **facts, "rows": count, "threads": before, **apart})
                for count in threads:
                    if count > 1:
                        single, several = (_with_threads(n, before, given, weight) for n in (1, count))
                        apart = _apart(single, several)
                        found.append({"varies": "threads", **facts, "rows": 1, "threads": count, **apart})
    schema: dict[str, Any] = {
        **dict.fromkeys(("varies", "dtype", "phase"), pl.String),
        **dict.fromkeys(("length", "rows", "threads"), pl.Int32),
        "equal": pl.Boolean,
        **dict.fromkeys(("max_abs", "ulps", "share"), pl.Float64),
    }
    return Probe(pl.DataFrame(found, schema=schema), skipped)


def report(*, isa: bool = False, as_json: bool = False) -> str:
    """What ``divexplore probe`` prints: the sentences, and the presets that cannot differ here; or all tables as JSON."""
    from divexplore.environment import snapshot, summary
    from divexplore.trace import strict_json

    found = probe()
    reasons = {name: why for name in PRESETS if (why := can_differ(name)) is not None}
    facts = snapshot()
    settings = None
    if isa:
        from divexplore.engine.isa_probe import probe_isa  # starts processes, and is asked for seldom

        settings = probe_isa()
    if as_json:
        tables = {"products": found.table.to_dicts(), "isa": None if settings is None else settings.to_dicts()}
        return strict_json(
            {"format": "divexplore.probe/1", "snapshot": facts, "says": found.explain(), "cannot": reasons, **tables},
            indent=2,
        )
    lines = [*summary(facts), "", *found.explain()]
    lines += [f"preset {name!r} cannot differ here: {why}" for name, why in reasons.items()]
    for row in () if settings is None else settings.iter_rows(named=True):
        if row["refused"] is not None:
            lines.append(f"not tried: {row['refused']}")
        elif row["max_abs"] > 0:
            lines.append(f"{row['setting']} moves {row['dtype']} beside {row['rows']} rows by {row['max_abs']:.2g}")
    return "\n".join(lines)


def can_differ(preset: Preset | str) -> str | None:
    """Why the two sides of a preset, or of that name, must be equal on this machine; ``None`` where they may differ."""
    preset = PRESETS[preset] if isinstance(preset, str) else preset
    a, b = preset.a, preset.b
    for config in (a, b):
        try:
            check_dtype(config.dtype or "float32", config.device or "cpu")
        except Refusal as refusal:
            return f"not possible here: {refusal.asked}"
    fields = set(a.difference(b))
    if fields <= {"seed"}:
        return "greedy decoding does not read what differs"
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if fields == {"num_threads"} and cores == 1:
        return "this machine gives one core, so a second thread changes nothing"
    if fields == {"batch_size"} and (a.device or "cpu") == "cpu":
        dtype, sizes = a.dtype or "float32", tuple(sorted({a.rows, b.rows} - {1})) or (1,)
        if _rows_never_matter(dtype, sizes):
            words = " or ".join(map(str, sizes))
            return f"this machine multiplies one row and {words} to equal bits in {dtype}, for sums up to {max(LENGTHS)} long"
    return None


@functools.lru_cache(maxsize=64)
def _rows_never_matter(dtype: str, rows: tuple[int, ...]) -> bool:
    return bool(probe((dtype,), rows, LENGTHS, threads=()).table["equal"].all())


def _numbers(rows: int, length: int, dtype: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs ``(rows, tokens, length)`` and a weight ``(outputs, length)``, in fresh aligned memory, seeded."""
    made = torch.Generator().manual_seed(length)
    x = torch.randn(rows, _PREFILL, length, generator=made)
    weight = torch.randn(_OUTPUTS, length, generator=made) / length**0.5
    return tuple(tensor.to(getattr(torch, dtype), copy=True) for tensor in (x, weight))


def _in_groups(x: torch.Tensor, weight: torch.Tensor, count: int) -> torch.Tensor:
    """The same products of all rows, `count` of them at a time."""
    with torch.inference_mode():
        return torch.cat([torch.nn.functional.linear(group.contiguous(), weight) for group in x.split(count)])


def _with_threads(count: int, before: int, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    try:
        torch.set_num_threads(count)
        return _in_groups(x, weight, 1)
    finally:
        torch.set_num_threads(before)


def _apart(one: torch.Tensor, other: torch.Tensor) -> dict[str, Any]:
    dtype = str(one.dtype).removeprefix("torch.")
    a, b = one.double().reshape(-1), other.double().reshape(-1)
    gap = (a - b).abs()
    at = int(gap.argmax())
    unit = float(spacing(max(abs(float(a[at])), abs(float(b[at]))), dtype))
    return {
        "equal": torch.equal(one, other),
        "max_abs": float(gap[at]),
        "ulps": float(gap[at]) / unit,
        "share": float((gap > 0).double().mean()),
    }


def _rows_words(mine: pl.DataFrame, phase: str) -> str:
    asked = mine.filter((mine["varies"] == "rows") & (mine["phase"] == phase))
    different = asked.filter(~asked["equal"])
    where = "at a single step" if phase == "step" else "in a prefill"
    if not different.height:
        return f"{where} a row does not depend on how many others there are"
    sums = sorted(different["length"].unique())
    rows = sorted(different["rows"].unique())
    return (
        f"{where} a row changes beside {_list(rows)} rows, for sums of {_list(sums)} "
        f"(at most {float(different['ulps'].to_numpy().max()):.3g} ULP, "
        f"{float(different['share'].to_numpy().max()):.2g} of the elements)"
    )


def _thread_words(mine: pl.DataFrame) -> str:
    asked = mine.filter(mine["varies"] == "threads")
    if not asked.height:
        return "threads were not tried"
    different = asked.filter(~asked["equal"])
    if not different.height:
        return "threads change nothing"
    return f"threads change sums of {_list(sorted(different['length'].unique()))}"


def _list(values: Sequence[int]) -> str:
    words = [str(value) for value in values]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
