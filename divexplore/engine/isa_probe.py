"""What does the instruction set that a library picks change? One bare ``linear`` in a fresh process for each choice."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from divexplore.config import RunConfig
from divexplore.engine.fresh_process import PACKAGE_ROOT
from divexplore.engine.processor import refuse_unless_honoured
from divexplore.errors import Refusal

if TYPE_CHECKING:
    import polars as pl

__all__ = ["CHOICES", "main", "probe_isa"]

CHOICES = (
    RunConfig(aten_cpu_capability="default"),
    RunConfig(aten_cpu_capability="avx2"),
    RunConfig(onednn_max_cpu_isa="AVX2"),
    RunConfig(onednn_max_cpu_isa="AVX512_CORE"),
    RunConfig(mkl_cbwr="COMPATIBLE"),
    RunConfig(mkl_cbwr="AVX2"),
    RunConfig(mkl_enable_instructions="AVX2"),
)
"""Start settings that are tried, each against a process without any."""

_DTYPES = ("float32", "bfloat16", "float16")
_LENGTH, _OUTPUTS, _ROWS = 1536, 2048, (1, 8)


def probe_isa() -> pl.DataFrame:
    """Which start setting moves a product in which dtype: ``setting``, ``dtype``, ``rows``, ``max_abs``, ``refused``.

    About 3 seconds a setting. `refused` says why a setting cannot be tried here.
    """
    import polars as pl

    found: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="divexplore-isa-") as name:
        folder = Path(name)
        made = torch.Generator().manual_seed(0)
        # drawn once and read by every process: drawing depends on ATen's capability as well
        torch.save(
            {
                "x": torch.randn(max(_ROWS), 1, _LENGTH, generator=made),
                "weight": torch.randn(_OUTPUTS, _LENGTH, generator=made) / _LENGTH**0.5,
            },
            folder / "numbers.pt",
        )
        plain = _outputs(folder, RunConfig())
        for choice in CHOICES:
            try:
                refuse_unless_honoured(choice)
                outputs = _outputs(folder, choice)
            except Refusal as refusal:
                found.append({"setting": str(choice), "refused": refusal.asked})
                continue
            for (dtype, rows), output in outputs.items():
                apart = float((output.double() - plain[dtype, rows].double()).abs().max())
                found.append({"setting": str(choice), "dtype": dtype, "rows": rows, "max_abs": apart})
    schema: dict[str, Any] = {"setting": pl.String, "dtype": pl.String, "rows": pl.Int32, "max_abs": pl.Float64}
    return pl.DataFrame(found, schema={**schema, "refused": pl.String})


def main(folder: Path) -> None:
    """In the fresh process: multiply, and leave the outputs in `folder`."""
    numbers = torch.load(folder / "numbers.pt", weights_only=True)
    outputs = {}
    with torch.inference_mode():
        for dtype in _DTYPES:
            x, weight = (numbers[name].to(getattr(torch, dtype)) for name in ("x", "weight"))
            for rows in _ROWS:
                try:
                    outputs[dtype, rows] = torch.nn.functional.linear(x[:rows].contiguous(), weight)
                except RuntimeError:  # a dtype that this instruction set cannot multiply
                    continue
    torch.save(outputs, folder / "outputs.pt")


def _outputs(folder: Path, choice: RunConfig) -> dict[tuple[str, int], torch.Tensor]:
    environment = {**os.environ, **choice.start_variables}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, (str(PACKAGE_ROOT), environment.get("PYTHONPATH"))))
    done = subprocess.run(
        [sys.executable, "-m", "divexplore.engine.isa_probe", str(folder)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"the process for {choice} ended with code {done.returncode}: {done.stderr[-500:]}")
    return torch.load(folder / "outputs.pt", weights_only=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
