"""What evidence costs, told before it is measured, in units of the two free runs together."""

from __future__ import annotations

from divexplore.config import RunConfig

__all__ = ["PRICES", "pieces", "price", "price_of_processes"]

PRICES: dict[str, dict[str, float]] = {
    "fast": {},
    "default": {"B on A's tokens": 0.7, "clean fp64": 1.8},
    "full": {
        "B on A's tokens": 0.6,
        "clean fp64": 1.9,
        "fp32": 1.3,
        "A on B's tokens": 0.4,
        "A before and after B": 0.8,
        "probes, and both sides without recording": 1.0,
    },
}
"""SmolLM2-135M, bf16, batch 1 against 8, 32 steps, of which the default covered 22: ``benchmarks/evidence_cost.py`` prints them.

The runs on a rung grow with the share of steps that they cover, which is all for ``full``; a model of another size pays
other prices.
"""


def price(evidence: str) -> str:
    """The price of a level of evidence in words, the two free runs included."""
    return f"about {1 + sum(PRICES[evidence].values()):.1f} times the two runs"


def pieces(evidence: str) -> str:
    """What a level of evidence consists of beyond the two free runs, each piece with its price."""
    return ", ".join(f"{name} {cost:g}" for name, cost in PRICES[evidence].items())


def price_of_processes(a: RunConfig, b: RunConfig) -> str | None:
    """What a pair with a setting that is read at start costs beside its runs; ``None`` for other pairs."""
    if not (a.start_variables or b.start_variables):
        return None
    fresh = "one fresh process" if a.start_variables == b.start_variables else "two fresh processes"
    return f"a setting is read at start: all runs take place in {fresh}, to start and to load the model once each"
