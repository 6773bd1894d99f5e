"""Memory that a recorded run holds at its end, beside what ``generate(output_logits=True)`` keeps of the same steps.

``python benchmarks/recording_memory.py --model smollm2-135m-instruct --steps 512``. Both are counted from what they hold:
the trace's table and facts on one side, the tensors of logits on the other. Beside them stands by how much the resident
memory of a fresh process grew from before the run to after it, with the result still alive; high-water marks would only
show the load.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
from typing import Any

import psutil

PROMPTS = {
    "fairy-tales": "The giant",
    "smollm2-135m-instruct": "Tell me a short story about a robot who learns to paint.",
}


def main() -> None:
    """Print what each side holds and the ratio of the two."""
    arguments = argparse.ArgumentParser(description="Memory of a recorded run against generate(output_logits=True).")
    arguments.add_argument("--model", choices=PROMPTS, default="smollm2-135m-instruct")
    arguments.add_argument("--steps", type=int, default=512)
    arguments.add_argument("--dtype", default="bfloat16")
    given = arguments.parse_args()
    fresh = multiprocessing.get_context("spawn")
    print(f"{given.model}, {given.steps} steps in {given.dtype}")
    print(f"{'':26}{'steps':>7}{'held MB':>10}{'resident MB':>13}")
    held = []
    for name, task in (("recorded run", recorded), ("generate, output_logits", generated)):
        with fresh.Pool(1) as pool:  # a process each: freed memory is not always given back
            steps, size, grown = pool.apply(task, (given.model, given.dtype, given.steps))
        held.append(size)
        print(f"{name:26}{steps:7}{size / 1e6:10.2f}{grown / 1e6:13.1f}")
    print(f"held by the trace ÷ held by generate: 1/{held[1] / held[0]:.0f}")


def recorded(name: str, dtype: str, steps: int) -> tuple[int, int, int]:
    """Steps, bytes of the trace, and growth of resident memory during the run."""
    import divexplore as dx

    model, before = prepared(name, dtype)
    trace = dx.run(model, PROMPTS[name], {"dtype": dtype}, steps)
    return len(trace), trace.table.estimated_size() + size_of(trace.meta), resident() - before


def generated(name: str, dtype: str, steps: int) -> tuple[int, int, int]:
    """Steps, bytes of the logits, and growth of resident memory during the run."""
    import torch

    model, before = prepared(name, dtype)
    ids = torch.tensor([model.encode(PROMPTS[name]).ids])
    result = model.instance(dtype).generate(
        ids,
        attention_mask=torch.ones_like(ids),
        do_sample=False,
        max_new_tokens=steps,
        pad_token_id=0,
        output_logits=True,
        return_dict_in_generate=True,
    )
    size = sum(logits.numel() * logits.element_size() for logits in result.logits)
    return len(result.logits), size, resident() - before


def prepared(name: str, dtype: str) -> tuple[Any, int]:
    """A loaded model that has run once, and the resident memory after that."""
    import divexplore as dx

    model = dx.load_model(name)
    dx.run(model, PROMPTS[name], {"dtype": dtype}, 2)
    return model, resident()


def resident() -> int:
    """Resident memory of this process, bytes."""
    return int(psutil.Process().memory_info().rss)


def size_of(value: Any) -> int:
    """Bytes of a plain JSON value with all that is in it."""
    size = sys.getsizeof(value)
    if isinstance(value, dict):
        return size + sum(size_of(key) + size_of(item) for key, item in value.items())
    return size + sum(map(size_of, value)) if isinstance(value, list) else size


if __name__ == "__main__":
    main()
