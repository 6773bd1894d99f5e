"""The environment of a run: versions, processor, switches read at start; what a reader needs to repeat it."""

from __future__ import annotations

import functools
import os
import platform
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

__all__ = ["START_VARIABLES", "snapshot", "summary"]

START_VARIABLES = (
    "ATEN_CPU_CAPABILITY",
    "ONEDNN_MAX_CPU_ISA",
    "MKL_CBWR",
    "MKL_ENABLE_INSTRUCTIONS",
    "OMP_NUM_THREADS",
    "OMP_DYNAMIC",
    "KMP_DETERMINISTIC_REDUCTION",
    "CUBLAS_WORKSPACE_CONFIG",
)
"""Settings that the numeric libraries read once, when the process starts."""

_PACKAGES = ("divexplore", "torch", "transformers", "tokenizers", "safetensors", "numpy")


def snapshot() -> dict[str, Any]:
    """The environment as plain JSON values: versions, platform, processor, devices, and start variables that are set."""
    return {**_fixed(), "variables": {name: os.environ[name] for name in START_VARIABLES if name in os.environ}}


def summary(facts: dict[str, Any]) -> tuple[str, str]:
    """A snapshot in two lines: software, then hardware. A record from elsewhere has none."""
    if not facts:
        return "software unknown", "hardware unknown"
    packages = " · ".join(f"{name} {version}" for name, version in facts["packages"].items() if name != "safetensors")
    variables = "".join(f" · {name}={value}" for name, value in facts["variables"].items())
    devices = "".join(f" · {device}" for device in facts["devices"])
    return (
        f"{packages} · Python {facts['python']}",
        f"{facts['processor']} · {facts['cpu_capability']} · {facts['cores']} cores{devices}{variables} · {facts['platform']}",
    )


@functools.lru_cache(maxsize=1)
def _fixed() -> dict[str, Any]:
    import torch

    devices = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    return {
        "packages": {name: _version(name) for name in _PACKAGES},
        "python": platform.python_version(),
        "platform": platform.platform(terse=True),
        "processor": _processor(),
        "cores": os.cpu_count() or 1,
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "devices": devices,
        "cuda": torch.version.cuda,
    }


def _version(package: str) -> str | None:
    module = sys.modules.get(package)
    version = getattr(module, "__version__", None)  # what is loaded, which may be another than what is installed
    try:
        return str(version) if version else metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
