"""Below the view: which knob, which operation, which layer? Each question has its button and its price."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import traitlets

from divexplore.view.explorer_panel import Strip, esm
from divexplore.view.explorer_progress import idle_state

if TYPE_CHECKING:
    from divexplore.comparison.comparison import Comparison
    from divexplore.trace import Trace

__all__ = ["QUESTIONS", "UNITS", "CausePanel", "ask", "prices"]

QUESTIONS = {"knob": "Which knob?", "operation": "Which operation?", "layer": "Which layer?"}

UNITS = {"knob": "runs", "operation": "parts", "layer": "forwards"}
"""What the progress of each question counts."""

_FORWARDS = 6  # of `trace_ops`, beyond those that reach the step
_WATCHED = 4  # a watched forward costs about as much as so many plain ones


class CausePanel(Strip):
    """Asks for the cause of a difference; the view shows the answer in its tab Cause."""

    _esm = esm("progress.js", "reveal.js", "cause.js")

    state = traitlets.Dict(idle_state()).tag(sync=True)
    """What runs, as in the panel, which may be off the screen."""

    prices = traitlets.Dict().tag(sync=True)
    """What each question costs, by its name, in words; a question without a price cannot be asked."""


def prices(comparison: Comparison) -> dict[str, str]:
    """What each question costs for this pair: runs and forwards, and seconds from the speed of the last run."""
    from divexplore.comparison.attribution import expected_runs
    from divexplore.comparison.decode_paths import samples

    pair = comparison.pair
    if pair is None or not len(comparison.a) or not len(comparison.b):
        return {}
    a, b, steps = comparison.a, comparison.b, _steps(comparison)
    drift = len(a) - 1 if comparison.first_drift is None else comparison.first_drift
    both = _seconds(a, steps) + _seconds(b, steps)
    reached = _seconds(a, drift + 1) + _seconds(b, drift + 1)
    runs = expected_runs(pair.config_a, pair.config_b)
    forward = (_seconds(a, len(a)) / len(a) + _seconds(b, len(b)) / len(b)) / 2
    to = "to the split" if comparison.split is not None else f"of {steps} steps"
    found = {
        "knob": f"about {runs} runs {to}, {_about(runs * both / 2)}",
        "operation": f"both runs to step {drift} and {_FORWARDS} forwards, {_about(reached + _WATCHED * _FORWARDS * forward)}",
        "layer": f"two times both runs {to}, {_about(2 * both)}",
    }
    # a draw may have done what a knob would be blamed for; and nobody looks into a fresh process
    barred = {"knob"} if samples(a) or samples(b) else set()
    barred |= {"operation", "layer"} if pair.isolated else set()
    return {name: price for name, price in found.items() if name not in barred}


def ask(
    name: str, comparison: Comparison, progress: Callable[[int, int, str], None], stop: Callable[[], bool]
) -> Comparison:
    """Put one of `QUESTIONS` to the pair of a live comparison, and give the comparison with the answer.

    Raises
    ------
    Refusal
        On a request that cannot be served, or where it was stopped too early to say anything.
    """
    from divexplore.comparison.attribution import attribute
    from divexplore.comparison.layers import layer_drift
    from divexplore.comparison.operations import trace_ops

    pair = comparison.pair
    assert pair is not None  # the Explorer's own comparisons are live
    prompt = pair.prompt
    what = prompt.ids if prompt.text is None else prompt.text
    given: dict[str, Any] = {"chat": None if prompt.text is None else prompt.chat, "progress": progress, "stop": stop}
    request = (pair.model, what, pair.config_a, pair.config_b)
    steps = _steps(comparison)
    if name == "operation":
        found = trace_ops(*request, comparison.first_drift, max_new_tokens=steps, **given)
        return comparison.with_cause(operations=found)
    if name == "layer":
        return comparison.with_cause(layers=layer_drift(*request, steps, **given))
    return comparison.with_cause(attribution=attribute(*request, steps, **given))


def _steps(comparison: Comparison) -> int:
    """As far as a question must look: to the split, or as far as A ran."""
    return max(len(comparison.a), 1) if comparison.split is None else comparison.split.step + 1


def _seconds(trace: Trace, steps: int) -> float:
    """What the forwards of the first steps took."""
    return float(trace.table["seconds"][:steps].sum())


def _about(seconds: float) -> str:
    if seconds < 1:
        return "under 1 s"
    return f"about {seconds:.0f} s" if seconds < 90 else f"about {seconds / 60:.0f} min"
