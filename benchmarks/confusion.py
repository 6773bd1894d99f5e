"""Is rounding ever called a bug, or a bug rounding? A confusion table over random tiny models.

``python benchmarks/confusion.py --models 200 --minutes 8``
"""

from __future__ import annotations

import argparse
import collections
import sys
import time
from pathlib import Path

import transformers

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))  # the random models are those of the tests

from tiny_pairs import DTYPES, examples, judged, random_model

from divexplore.comparison.verdict import Verdict

ORDER = [str(verdict) for verdict in Verdict]


def main() -> None:
    """Print the table, then each wrong cell."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", type=int, default=200)
    parser.add_argument("--minutes", type=float, default=60.0, help="start no further model after this time")
    parser.add_argument("--first", type=int, default=0, help="seed of the first model")
    asked = parser.parse_args()
    transformers.logging.set_verbosity_error()  # tied weights, generation flags: not what is asked here
    counts: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    wrong: list[str] = []
    started, done = time.monotonic(), 0
    for seed in range(asked.first, asked.first + asked.models):
        if time.monotonic() - started > 60 * asked.minutes:
            break
        name, model = random_model(seed)
        for dtype in DTYPES:
            for example in examples(model, seed, dtype):
                outcome = judged(model, example)
                row = example.name if outcome.reachable else f"{example.name}, not reachable"
                counts[row][outcome.verdict] += 1
                counts[row]["inconclusive"] += outcome.inconclusive
                if not outcome.right:
                    wrong.append(f"{name}, {dtype}, {example.name}: {outcome.verdict}: {outcome.why}")
                    print(wrong[-1], file=sys.stderr, flush=True)
        done += 1
    columns = [*(verdict for verdict in ORDER if any(row[verdict] for row in counts.values())), "inconclusive"]
    print(f"{done} models, {sum(sum(row.values()) - row['inconclusive'] for row in counts.values())} pairs, ", end="")
    print(f"{time.monotonic() - started:.0f} s")
    print(f"{'':34}" + "".join(f"{column:>14}" for column in columns))
    for row, found in counts.items():
        print(f"{row:34}" + "".join(f"{found[column] or '·':>14}" for column in columns))
    print(f"wrong: {len(wrong)}")
    print("\n".join(wrong))


if __name__ == "__main__":
    main()
