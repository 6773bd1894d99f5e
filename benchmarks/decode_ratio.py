"""What recording costs: the median ratio of a recorded run to plain `generate`, in one dtype and batch, in turns.

``python benchmarks/decode_ratio.py --model fairy-tales --rounds 9``. The ratio of processor seconds stands beside that of
wall-clock seconds: on a machine that others use too it is the steadier of the two.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import torch

import divexplore as dx
from divexplore.engine.batch import Batch, fill_batch
from divexplore.models import Model

PROMPTS = {
    "fairy-tales": "The giant",
    "smollm2-135m-instruct": "Tell me a short story about a robot who learns to paint.",
}


def main() -> None:
    """Print a line for each model and batch."""
    arguments = argparse.ArgumentParser(description="Recorded runs against plain generate.")
    arguments.add_argument("--rounds", type=int, default=9)
    arguments.add_argument("--steps", type=int, default=128)
    arguments.add_argument("--dtype", default="bfloat16")
    arguments.add_argument("--batch-sizes", type=int, nargs="+", default=[1, 8])
    arguments.add_argument("--model", choices=PROMPTS, action="append", help="default: all")
    given = arguments.parse_args()
    print(f"recorded run ÷ generate, {given.steps} steps in {given.dtype}, {torch.get_num_threads()} threads")
    print(f"{'model':22}{'batch':>6}{'ms/step':>9}{'median ratio':>14}{'range':>14}{'of CPU time':>13}")
    for name in given.model or PROMPTS:
        model = dx.load_model(name)
        for batch_size in given.batch_sizes:
            config = dx.RunConfig(dtype=given.dtype, batch_size=batch_size)
            rounds = [measure(model, PROMPTS[name], config, given.steps, turn % 2) for turn in range(given.rounds + 1)]
            pairs = rounds[1:]  # the first warms up
            wall = sorted(mine[0] / theirs[0] for mine, theirs in pairs)
            cpu = median(mine[1] / theirs[1] for mine, theirs in pairs)
            step = 1000 * median(mine[0] for mine, _ in pairs) / given.steps
            print(f"{name:22}{batch_size:6}{step:9.2f}{median(wall):14.3f}{wall[0]:8.2f}–{wall[-1]:.2f}{cpu:12.3f}")


def measure(model: Model, prompt: str, config: dx.RunConfig, steps: int, turn: int) -> list[tuple[float, float]]:
    """Wall-clock and processor seconds of a recorded run, then those of `generate`; which runs first alternates."""
    ids = model.encode(prompt)
    net, batch = model.instance(config.dtype), fill_batch(model, ids.ids, config, chat=ids.chat)
    tasks = [lambda: dx.run(model, prompt, config, steps).token_ids, lambda: generated(net, batch, steps)]
    (mine, tokens), (theirs, expected) = map(timed, tasks) if turn == 0 else reversed([*map(timed, reversed(tasks))])
    if tokens != expected:
        raise RuntimeError("the two decoded other tokens: there is nothing to compare")
    return [mine, theirs]


def timed(task: Callable[[], list[int]]) -> tuple[tuple[float, float], list[int]]:
    """Wall-clock and processor seconds of a task, and what it gave."""
    wall, cpu = time.perf_counter(), time.process_time()
    result = task()
    return (time.perf_counter() - wall, time.process_time() - cpu), result


def generated(net: Any, batch: Batch, steps: int) -> list[int]:
    """The observed row's tokens by plain greedy `generate`."""
    ids, mask, _ = batch.inputs(net.device)
    mask = torch.ones_like(ids) if mask is None else mask
    result = net.generate(ids, attention_mask=mask, do_sample=False, max_new_tokens=steps, pad_token_id=batch.pad_id)
    return result[batch.row, ids.shape[1] :].tolist()


if __name__ == "__main__":
    main()
