"""What looking into one step costs: `trace_ops` in seconds and in plain forwards, on two models.

Aim: at most 30 plain forwards beyond those that reach the step, and under 2 seconds on fairy-tales. Run it with
``python benchmarks/operations.py [MODEL ...]``. Forwards are counted in processor seconds: on a machine that others use
too they are steadier than those of the clock.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable

import divexplore as dx
from divexplore.comparison.operations import moments, trace_moments, trace_ops
from divexplore.config import RunConfig
from divexplore.errors import Refusal

PROMPTS = {
    "fairy-tales": "The giant",
    "smollm2-135m-instruct": "Tell me a short story about a robot who learns to paint.",
}
PAIRS = (("bfloat16", 8), ("float32", 8))
ROUNDS = 5


def processor_seconds(what: Callable[[], object]) -> float:
    """Processor seconds of a call: a median."""
    times = []
    for _ in range(ROUNDS):
        started = time.process_time()
        what()
        times.append(time.process_time() - started)
    return statistics.median(times)


def main(names: list[str]) -> None:
    """Print one line a model and pair."""
    print(f"{'model':<22} {'pair':<18} {'step':>4} {'whole s':>8} {'trace cpu s':>11} {'plain forwards':>14}  found")
    for name in names:
        try:
            model = dx.load_model(name)
        except Refusal as refusal:
            print(f"{name:<22} not here: {refusal.asked}")
            continue
        prompt = model.encode(PROMPTS.get(name, "Once upon a time"))
        for dtype, rows in PAIRS:
            a, b = RunConfig(dtype=dtype), RunConfig(dtype=dtype, batch_size=rows)
            trace_ops(model, list(prompt.ids), a, b, 1)  # a first forward pays for what later ones find ready
            started = time.perf_counter()
            whole = trace_ops(model, list(prompt.ids), a, b)
            seconds = time.perf_counter() - started
            pair = moments(model, prompt, a, b, whole.step, whole.step + 1)
            trace = processor_seconds(lambda: trace_moments(*pair))  # noqa: B023 - called at once
            forward = sum(processor_seconds(moment.replay) for moment in pair) / 2
            print(
                f"{name:<22} {f'{dtype} 1/{rows}':<18} {whole.step:>4} {seconds:>8.2f} {trace:>11.3f} {trace / forward:>14.1f}  {whole}"
            )


if __name__ == "__main__":
    main(sys.argv[1:] or list(PROMPTS))
