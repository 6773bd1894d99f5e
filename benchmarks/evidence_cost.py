"""What does the default evidence cost? Its time against that of the two plain runs, and the bound on it.

``python benchmarks/evidence_cost.py --model fairy-tales --steps 64 --rounds 3``
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import transformers

import divexplore as dx
from divexplore.config import PRESETS


def main() -> None:
    """Print the medians of interleaved rounds and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="fairy-tales")
    parser.add_argument("--prompt", default="The giant")
    parser.add_argument("--steps", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    transformers.logging.set_verbosity_error()
    model, pair = dx.load_model(asked.model), PRESETS["batch"]

    def plain() -> list[dx.Trace]:
        return [dx.run(model, asked.prompt, side, asked.steps) for side in (pair.a, pair.b)]

    def default() -> dx.Comparison:
        return dx.compare(model, asked.prompt, pair.a, pair.b, asked.steps)

    plain(), default()  # caches of kernels and casts
    rounds = [(seconds(plain)[0], *seconds(default)) for _ in range(asked.rounds)]
    found = rounds[-1][2]
    covered, total = found.evidence.floor.height, max(len(found.a), len(found.b))
    bound = 2 + 3.5 * covered / total
    ratios = [whole / runs for runs, whole, _ in rounds]
    print(f"{asked.model}, {total} steps, split at {found.first_divergence}, {covered} covered by clean fp64")
    print(
        f"two plain runs {statistics.median(r[0] for r in rounds):.2f} s, with evidence {statistics.median(r[1] for r in rounds):.2f} s"
    )
    print(f"ratio {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f}), bound {bound:.2f}")
    print_pieces(model, asked.prompt, asked.steps)


def print_pieces(model: Any, prompt: str, steps: int) -> None:
    """Print what each run of the full evidence takes, in units of the two free runs, and what is left for the probes."""
    pair, taken, last = PRESETS["batch"], dict[str, float](), time.perf_counter()

    def progress(name: str, done: int, total: int, text: str) -> None:
        nonlocal last
        now = time.perf_counter()
        taken[name] = taken.get(name, 0.0) + now - last
        last = now

    whole = seconds(lambda: dx.compare(model, prompt, pair.a, pair.b, steps, evidence="full", progress=progress))[0]
    free = taken["A"] + taken["B"]
    print("full evidence, in units of the two free runs:")
    for name, spent in taken.items():
        print(f"  {name:<20} {spent / free:.2f}")
    print(f"  {'the rest':<20} {(whole - sum(taken.values())) / free:.2f}")
    print(f"  {'in all':<20} {whole / free:.2f}")


def seconds(work: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds that `work` takes, and what it gives."""
    started = time.perf_counter()
    result = work()
    return time.perf_counter() - started, result


if __name__ == "__main__":
    main()
