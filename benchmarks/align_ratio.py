"""How much faster than difflib two long streams are aligned, and that no alignment of difflib's is cheaper.

``python benchmarks/align_ratio.py --tokens 4000``
"""

from __future__ import annotations

import argparse
import difflib
import random
import time
from collections.abc import Callable
from statistics import median
from typing import Any

from divexplore.comparison.align import align, first_divergence


def main() -> None:
    """Print a line for each kind of pair."""
    arguments = argparse.ArgumentParser(description="Alignment against difflib.")
    arguments.add_argument("--tokens", type=int, default=4000)
    arguments.add_argument("--vocabulary", type=int, default=49152)
    arguments.add_argument("--rounds", type=int, default=5)
    given = arguments.parse_args()
    draw = random.Random(0)
    # tokens of a text repeat by Zipf's law, which is what makes difflib slow
    weights = [1 / (1 + rank) for rank in range(given.vocabulary)]
    words, others = (draw.choices(range(given.vocabulary), weights, k=given.tokens) for _ in range(2))
    pairs = {
        "other words from step 13 on": (words, [*words[:13], *others[13:]]),
        "one word more at step 13": (words, [*words[:13], -1, *words[13:-1]]),
        "a tenth of the words replaced": (words, [-1 if draw.random() < 0.1 else word for word in words]),
        "half of the words replaced": (words, [draw.choice(pair) for pair in zip(words, others, strict=True)]),
    }
    print(f"two streams of {given.tokens} tokens, median of {given.rounds}")
    print(f"{'pair':36}{'align ms':>10}{'difflib ms':>12}{'ratio':>8}{'columns':>9}{'of difflib':>12}")
    for name, (a, b) in pairs.items():
        mine, columns = timed(lambda a=a, b=b: align(a, b), given.rounds)
        theirs, other = timed(lambda a=a, b=b: by_difflib(a, b), given.rounds)
        print(f"{name:36}{1000 * mine:10.2f}{1000 * theirs:12.1f}{theirs / mine:8.0f}{columns.height:9}{other:12}")


def timed(task: Callable[[], Any], rounds: int) -> tuple[float, Any]:
    """Median seconds of a task, and what it gave."""
    seconds = []
    for _ in range(rounds):
        started = time.perf_counter()
        result = task()
        seconds.append(time.perf_counter() - started)
    return median(seconds), result


def by_difflib(a: list[int], b: list[int]) -> int:
    """Columns that difflib needs for the same pair, its split kept as one column."""
    split = first_divergence(a, b)
    head = min(len(a), len(b)) if split is None else split + 1
    matcher = difflib.SequenceMatcher(None, a[head:], b[head:], autojunk=False)
    return head + sum(max(i2 - i1, j2 - j1) for _, i1, i2, j1, j2 in matcher.get_opcodes())


if __name__ == "__main__":
    main()
