"""Can this processor honour a setting that is read at start, and what did the libraries make of it?"""

from __future__ import annotations

import ctypes
import functools
from pathlib import Path
from typing import Any

import torch

from divexplore.config import START_VARIABLES, RunConfig
from divexplore.errors import Refusal

__all__ = ["refuse_unless_honoured", "start_in_force"]

_ONEDNN_NEEDS = {
    "SSE41": {"sse4_1"},
    "AVX": {"avx"},
    "AVX2": {"avx2"},
    "AVX2_VNNI": {"avx_vnni"},
    "AVX2_VNNI_2": {"avx_vnni_int8", "avx_ne_convert"},
    "AVX512_CORE": {"avx512f", "avx512bw", "avx512vl", "avx512dq"},
    "AVX512_CORE_VNNI": {"avx512_vnni"},
    "AVX512_CORE_BF16": {"avx512_bf16"},
    "AVX512_CORE_FP16": {"avx512_fp16"},
    "AVX512_CORE_AMX": {"amx_tile", "amx_bf16"},
    "AVX512_CORE_AMX_FP16": {"amx_tile", "amx_fp16"},
    "DEFAULT": set(),
}
"""Processor flags without which oneDNN would quietly stay below the ISA that was asked for."""

_ATEN_ORDER = ("default", "avx2", "avx512")

_MKL_BRANCHES = {
    1: "off",
    2: "AUTO",
    3: "COMPATIBLE",
    8: "SSE4_2",
    9: "AVX",
    10: "AVX2",
    12: "AVX512",
    14: "AVX512_E1",
}
"""MKL's numbers for its branches of conditional numerical reproducibility."""


def refuse_unless_honoured(config: RunConfig) -> None:
    """Refuse a start setting that the libraries would quietly ignore on this machine.

    Raises
    ------
    Refusal
        With what the processor lacks and what it can do.
    """
    if config.aten_cpu_capability is not None:
        _refuse(
            "aten_cpu_capability", config.aten_cpu_capability, _aten_choices(), "torch was not built or made for it"
        )
    if config.onednn_max_cpu_isa is not None:
        missing = _ONEDNN_NEEDS[config.onednn_max_cpu_isa] - _flags()
        reason = f"this processor lacks {', '.join(sorted(missing))}" if _x86() else "it is for x86 processors"
        able = [name for name, needs in _ONEDNN_NEEDS.items() if needs <= _flags()] if _x86() else []
        _refuse("onednn_max_cpu_isa", config.onednn_max_cpu_isa, able, reason)
    if config.mkl_cbwr is not None:
        _refuse("mkl_cbwr", config.mkl_cbwr, *_mkl_choices())
    if config.mkl_enable_instructions is not None:
        able = [] if not (_mkl() and _intel()) else ["SSE4_2", *(n for n in ("AVX", "AVX2") if n.lower() in _flags())]
        able += ["AVX512", "AVX512_E1"] if able and "avx512f" in _flags() else []
        reason = "MKL reads it on Intel processors only" if _mkl() else "this torch is built without MKL"
        _refuse("mkl_enable_instructions", config.mkl_enable_instructions, able, reason)
    if config.cublas_workspace_config is not None and not torch.cuda.is_available():
        _refuse("cublas_workspace_config", config.cublas_workspace_config, [], "there is no CUDA device here")


def start_in_force() -> dict[str, Any]:
    """What the libraries of this process run with, by `RunConfig` field; ``None`` where a library does not tell."""
    import os

    told: dict[str, Any] = {name: os.environ.get(variable) for name, variable in START_VARIABLES.items()}
    told["aten_cpu_capability"] = torch.backends.cpu.get_cpu_capability().lower()
    if (branch := _mkl_branch()) is not None:
        told["mkl_cbwr"] = _MKL_BRANCHES.get(branch, str(branch))
    return told


def _refuse(name: str, asked: str, able: list[str], reason: str) -> None:
    if asked not in able:
        raise Refusal(
            f"{name}={asked!r} ({reason})",
            ", ".join(able) or "nothing here",
            f"Choose one of these, or leave {name} out." if able else f"Leave {name} out.",
        )


def _aten_choices() -> list[str]:
    best = torch.backends.cpu.get_cpu_capability().lower()  # of this process, which may have been lowered itself
    if best not in _ATEN_ORDER:
        return ["default", best]
    return list(_ATEN_ORDER[: max(_ATEN_ORDER.index(best), _by_flags()) + 1])


def _by_flags() -> int:
    if {"avx512f", "avx512bw", "avx512vl", "avx512dq", "fma"} <= _flags():
        return 2
    return 1 if {"avx2", "fma"} <= _flags() else 0


def _mkl_choices() -> tuple[list[str], str]:
    if not _mkl():
        return [], "this torch is built without MKL"
    if not _intel():
        return ["AUTO", "COMPATIBLE"], "MKL takes AUTO instead on processors that are not Intel's"
    able = ["AUTO", "COMPATIBLE", "SSE4_2"]
    able += [name for name in ("AVX", "AVX2") if name.lower() in _flags()]
    return able + (["AVX512", "AVX512_E1"] if "avx512f" in _flags() else []), "this processor cannot"


def _mkl() -> bool:
    return bool(torch.backends.mkl.is_available())


def _mkl_branch() -> int | None:
    library = Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"
    if not _mkl() or not library.is_file():
        return None
    try:
        return int(ctypes.CDLL(str(library)).mkl_serv_cbwr_get(1))  # torch carries MKL inside
    except (AttributeError, OSError):
        return None


def _intel() -> bool:
    return _cpuinfo().get("vendor_id") == "GenuineIntel"


def _x86() -> bool:
    return "flags" in _cpuinfo()


def _flags() -> set[str]:
    return set(_cpuinfo().get("flags", "").split())


@functools.cache
def _cpuinfo() -> dict[str, str]:
    """The first processor's entry of /proc/cpuinfo; empty where there is none."""
    try:
        first = Path("/proc/cpuinfo").read_text(encoding="utf-8").partition("\n\n")[0]
    except OSError:
        return {}
    pairs = (line.partition(":") for line in first.splitlines())
    return {name.strip(): value.strip() for name, _, value in pairs}
