"""Another processor on this machine: which start setting moves the logits of which dtype, and by how much.

Each run is a fresh process, forced on the tokens of a process without any setting, batch 1. ``python
benchmarks/isa_table.py [MODEL] [STEPS]``.
"""

from __future__ import annotations

import sys

import torch

import divexplore as dx
from divexplore.comparison.drift import epsilon
from divexplore.config import RunConfig
from divexplore.engine.isa_probe import CHOICES
from divexplore.engine.isolated import run_isolated
from divexplore.errors import Refusal

PROMPT = "Tell me a short story about a robot who learns to paint."
DTYPES = ("float32", "bfloat16", "float16")


def main(name: str, steps: int) -> None:
    """Print a line a setting, a column a dtype."""
    model = dx.load_model(name)
    prompt = model.encode(PROMPT)
    plain: dict[str, tuple[list[int], list[torch.Tensor]]] = {}
    for dtype in DTYPES:
        rows: list[torch.Tensor] = []
        trace = run_isolated(
            model, prompt, RunConfig(dtype=dtype), steps, on_row=lambda step, row, token: rows.append(row)  # noqa: B023
        )  # fmt: skip
        plain[dtype] = trace.token_ids, rows
    print(f"{name}, {steps} steps: largest |difference of a logit| against a process without the setting")
    print(f"{'setting':<36}" + "".join(f"{dtype:>12}" for dtype in DTYPES))
    for choice in CHOICES:
        cells = []
        for dtype in DTYPES:
            tokens, before = plain[dtype]
            moved: list[float] = []
            try:
                run_isolated(
                    model,
                    prompt,
                    choice.replace(dtype=dtype),
                    len(tokens),
                    forced=tokens,
                    on_row=lambda step, row, token: moved.append(epsilon(before[step], row)),  # noqa: B023
                )
            except Refusal as refusal:
                cells = [f"  refused: {refusal.asked}"]
                break
            cells.append(f"{max(moved):>12.2g}")
        print(f"{choice!s:<36}{''.join(cells)}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "fairy-tales", int(sys.argv[2]) if len(sys.argv) > 2 else 16)
