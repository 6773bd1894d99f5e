"""What can be chosen in the Explorer: the models, the presets and the knobs, as plain values for its panel."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Callable
from typing import Any

from divexplore.comparison.prices import price
from divexplore.config import DTYPES, PRESETS, Preset, RunConfig
from divexplore.models.catalog import CATALOG

__all__ = ["catalogue", "choices", "cores", "knobs", "memory_note", "presets", "why_not"]

FRONT = {
    "dtype": "dtype",
    "batch_size": "batch size",
    "attn_implementation": "attention",
    "use_cache": "cache",
    "num_threads": "threads",
    "left_pad": "left padding",
}
"""The six knobs that are always there, and how they are called; the others hide behind "more"."""

_LABELS = {
    "fill": "other rows",
    "row": "observed row",
    "prefill_chunk": "prefill chunk",
    "float32_matmul_precision": "fp32 matmul",
    "mkldnn": "oneDNN",
    "do_sample": "sampling",
    "suppress_tokens": "suppressed ids",
    "aten_cpu_capability": "ATen ISA",
    "onednn_max_cpu_isa": "oneDNN ISA",
    "mkl_cbwr": "MKL CBWR",
    "mkl_enable_instructions": "MKL ISA",
    "omp_dynamic": "OMP dynamic",
    "cublas_workspace_config": "cuBLAS workspace",
}
_WORDS = {
    "dtype": DTYPES,
    "attn_implementation": ("sdpa", "eager"),
    "fill": ("copies", "prompts"),
    "float32_matmul_precision": ("highest", "high", "medium"),
}
_LOWEST = {"row": 0, "left_pad": 0, "seed": 0}
_PARAMETERS = re.compile(r"([\d.]+) M parameters")

_BYTES_CHECKPOINT = 2  # a parameter as it is stored, in 16 bits
_BYTES_CASTS = 2 + 8  # beside it: a 16-bit cast, and clean fp64 for the evidence


Judge = Callable[[Preset], str | None]
"""Says why a preset cannot differ on this machine, or ``None``."""


def choices(models: list[dict[str, str]]) -> dict[str, Any]:
    """Everything that the panel offers: ``models``, ``presets``, ``knobs``, ``evidence``."""
    return {"models": models, "presets": presets(), "knobs": knobs(), "evidence": evidence()}


def catalogue() -> list[dict[str, str]]:
    """The models that have a name: ``name``, and a ``note`` on size and memory."""
    return [{"name": entry.name, "note": _catalogue_note(entry.summary)} for entry in CATALOG.values()]


def memory_note(parameters: int) -> str:
    """Size of a model, and the memory that a comparison of it needs with default evidence."""
    needed = parameters * (_BYTES_CHECKPOINT + _BYTES_CASTS) / 1e9
    return f"{parameters / 1e6:.3g} M parameters · {max(needed, 0.1):.1f} GB"


def _catalogue_note(summary: str) -> str:
    found = _PARAMETERS.search(summary)
    return memory_note(round(float(found[1]) * 1e6)) if found else summary


def evidence() -> list[dict[str, str]]:
    """How much is measured, with its price."""
    return [
        {"value": "fast", "label": "fast: the two runs only, a flip stays inconclusive"},
        {"value": "default", "label": f"default: also forced and in clean fp64; {price('default')}"},
        {"value": "full", "label": f"full: also fp32, repeats and probes; {price('full')}"},
    ]


def presets(judge: Judge | None = None) -> list[dict[str, Any]]:
    """The pairs that people ask for: ``name``, ``label``, both sides, and the ``reason`` of one that cannot differ."""
    judge = judge or why_not
    return [
        {
            "name": preset.name,
            "label": preset.label,
            "a": preset.a.to_dict(),
            "b": preset.b.to_dict(),
            "reason": judge(preset),
        }
        for preset in PRESETS.values()
    ]


def why_not(preset: Preset) -> str | None:
    """Why the two sides of a preset cannot differ, as far as can be told without torch: for the first look of the panel.

    `divexplore.engine.probe.can_differ` multiplies, and knows more; it is asked once the panel is on the screen.
    """
    wanted = max(side.num_threads or 1 for side in (preset.a, preset.b))
    if preset.a.difference(preset.b) == ("num_threads",) and wanted > cores():
        return f"{cores()} core here, and {wanted} threads on it share the work as one would"
    return None


def cores() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def knobs() -> list[dict[str, Any]]:
    """Every field of `RunConfig`, the front ones first: ``name``, ``label``, ``front``, ``kind``, ``words``, ``low``.

    ``kind`` is ``words`` (one of ``words``), ``flag``, ``number`` (whole, at least ``low``) or ``text``.
    """
    fields = {field.name: str(field.type) for field in dataclasses.fields(RunConfig)}
    names = [*FRONT, *(name for name in fields if name not in FRONT)]
    return [_knob(name, fields[name]) for name in names]


def _knob(name: str, annotation: str) -> dict[str, Any]:
    label = FRONT.get(name) or _LABELS.get(name) or name.replace("_", " ")
    knob: dict[str, Any] = {"name": name, "label": label, "front": name in FRONT}
    if name in _WORDS:
        return {**knob, "kind": "words", "words": list(_WORDS[name])}
    if annotation.startswith("bool"):
        return {**knob, "kind": "flag"}
    if annotation.startswith("int"):
        return {**knob, "kind": "number", "low": _LOWEST.get(name, 1)}
    return {**knob, "kind": "text"}
