"""Pairs of runs of random tiny models whose right verdict is known: benign ones, and ones with an injected fault."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from tiny_models import tiny

import divexplore as dx
from divexplore.testing import faults

__all__ = ["ARCHITECTURES", "DTYPES", "Example", "Outcome", "examples", "judged", "random_model"]

ARCHITECTURES = ("llama", "gpt2", "mistral", "bloom")
DTYPES = ("float32", "bfloat16", "float16")
REACHABLE = 1e-9
"""Logits in clean fp64 that an injected fault must move; below it nothing reads what it changed."""

_STRUCTURAL = {"structural", "invalid"}
_BENIGN = {"exact_tie", "near_tie", "drift_only", "identical"}


@dataclass(frozen=True)
class Example:
    """A pair of configurations, the fault around it, and the verdicts that would be right."""

    name: str
    a: dict[str, Any]
    b: dict[str, Any]
    prompt: tuple[int, ...]
    fault: Callable[[], AbstractContextManager[None]] = nullcontext
    right: frozenset[str] = frozenset(_BENIGN)
    evidence: str = "default"


@dataclass(frozen=True)
class Outcome:
    """What a comparison said; `reachable` is always true of a benign pair."""

    verdict: str
    inconclusive: bool
    reachable: bool
    right: bool
    why: str


def random_model(seed: int) -> tuple[str, Any]:
    """A description and a loaded model: the architectures in turn, hidden 64 or 128."""
    kind, hidden = ARCHITECTURES[seed % 4], (64, 128)[seed // 4 % 2]
    return f"{kind}, hidden {hidden}, seed {seed}", dx.load_model(tiny(kind, hidden, seed))


def examples(model: Any, seed: int, dtype: str) -> Iterator[Example]:
    """All pairs of one model in one dtype; `seed` draws prompt, fillers and the weight that a fault changes."""
    draw = random.Random(f"{seed} {dtype}")

    def ids(low: int, high: int) -> tuple[int, ...]:
        return tuple(draw.randrange(257) for _ in range(draw.randint(low, high)))

    prompt = ids(6, 20)
    pads = draw.randint(1, 6)
    benign = {
        "batch": ({"batch_size": 1}, {"batch_size": 8}),
        "pads": ({"left_pad": 0}, {"left_pad": pads}),
        "cache": ({"use_cache": True}, {"use_cache": False}),
        "chunks": ({}, {"prefill_chunk": draw.randint(1, 5)}),
        "attention": ({"attn_implementation": "sdpa"}, {"attn_implementation": "eager"}),
        "threads": ({"num_threads": 1}, {"num_threads": 2}),
        "fillers": ({"fill": (ids(3, 9), ids(3, 24))}, {"fill": (ids(3, 24), ids(3, 9)), "row": 1}),
    }
    if model.architecture == "BloomForCausalLM":
        del benign["attention"]  # it has one implementation only
    for name, (a, b) in benign.items():
        yield Example(name, a | {"dtype": dtype}, b | {"dtype": dtype}, prompt)
    name, parameter = draw.choice([(n, p) for n, p in model.master.named_parameters() if p.ndim == 2])
    index = tuple(draw.randrange(size) for size in parameter.shape)
    step, factor = draw.randint(1, 5), draw.choice((2.0, -1.0))
    # alone, or beside a difference that is benign
    padded, seeded = {"left_pad": pads}, draw.choice(({"seed": 1}, {"batch_size": 8}))
    injected: dict[str, tuple[dict[str, Any], Callable[[], AbstractContextManager[None]]]] = {
        "mask dropped": (padded, lambda: faults.mask_dropped(only=padded)),
        "positions missing": (padded, lambda: faults.positions_missing(only=padded)),
        "positions shifted": (seeded, lambda: faults.positions_shifted(only=seeded, from_step=step)),
        "cache one short": (seeded, lambda: faults.cache_one_short(only=seeded, at_step=step)),
        "weight changed": (seeded, lambda: faults.weight_changed(name, index, factor, only=seeded)),
        "non-causal": (seeded, lambda: faults.non_causal(only=seeded)),
    }
    for fault, (side, make) in injected.items():
        yield Example(fault, {"dtype": dtype}, side | {"dtype": dtype}, prompt, make, frozenset(_STRUCTURAL))
    yield Example(
        "state carried over",
        {"dtype": dtype},
        seeded | {"dtype": dtype},
        prompt,
        lambda: faults.state_carried_over(only=seeded),
        frozenset({"state_leak", "invalid"}),
        "full",
    )


def judged(model: Any, example: Example, steps: int = 8) -> Outcome:
    """Compare one pair and see whether the verdict is right."""
    with example.fault():
        found = dx.compare(
            model, example.prompt, a=example.a, b=example.b, max_new_tokens=steps, evidence=example.evidence
        )
    ladder = () if found.evidence is None else found.evidence.ladder
    moved = max((rung.epsilon_max for rung in ladder if rung.dtype == "float64"), default=float("inf"))
    benign = example.right == _BENIGN
    reachable = benign or moved > REACHABLE
    right = found.verdict in (example.right if reachable else _BENIGN) and not (benign and found.inconclusive)
    return Outcome(str(found.verdict), found.inconclusive, reachable, right, found.why)
