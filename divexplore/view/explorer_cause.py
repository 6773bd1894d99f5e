"""Below the view: which knob, which operation, which layer? Each question has its button, its price and its answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import traitlets

from divexplore.view.explorer_panel import Strip, esm

if TYPE_CHECKING:
    import polars as pl

    from divexplore.comparison.comparison import Comparison

__all__ = ["QUESTIONS", "CausePanel", "answer", "ask", "prices"]

QUESTIONS = {"knob": "Which knob?", "operation": "Which operation?", "layer": "Which layer?"}

_ROWS = 12
_COLUMNS = {
    "knob": ("knob", "a", "b", "first_drift", "drift", "split", "verdict"),
    "neighbours": ("question", "means", "drift", "split", "verdict"),
    "operation": ("order", "module", "operation", "shape", "max_abs", "ulps", "share"),
    "layer": ("layer", "max_abs", "relative"),
}


class CausePanel(Strip):
    """Asks for the cause of a difference; the answers stand below the buttons."""

    _esm = esm("cause.js")

    prices = traitlets.Dict().tag(sync=True)
    """What each question costs, by its name, in words."""

    answers = traitlets.List().tag(sync=True)
    """What was found: ``name``, ``title``, ``lines`` and ``tables`` (``columns``, ``rows``, ``left``) each."""


def prices(comparison: Comparison) -> dict[str, str]:
    """What each question costs for this pair: runs and forwards, counted before anything runs."""
    from divexplore.comparison.attribution import expected_runs

    pair = comparison.pair
    if pair is None:
        return {}
    step = comparison.first_drift
    reach = f"both runs to step {step}" if step is not None else "both runs"
    return {
        "knob": f"about {expected_runs(pair.config_a, pair.config_b)} runs to the split",
        "operation": f"{reach}, and 6 forwards",
        "layer": "both runs to the first flip",
    }


def ask(
    name: str, comparison: Comparison, progress: Callable[[int, int, str], None], stop: Callable[[], bool]
) -> dict[str, Any]:
    """Put one of `QUESTIONS` to the pair of a live comparison; the answer is as `answer` gives it.

    Raises
    ------
    Refusal
        On a request that cannot be served, or where it was stopped too early to say anything.
    """
    from divexplore.comparison.attribution import attribute
    from divexplore.comparison.layers import layer_drift
    from divexplore.comparison.operations import trace_ops

    pair = comparison.pair
    assert pair is not None
    prompt = pair.prompt
    what = prompt.ids if prompt.text is None else prompt.text
    given: dict[str, Any] = {"chat": None if prompt.text is None else prompt.chat, "progress": progress, "stop": stop}
    steps = max(len(comparison.a), 1)
    request = (pair.model, what, pair.config_a, pair.config_b)
    if name == "operation":
        return answer(name, trace_ops(*request, comparison.first_drift, max_new_tokens=steps, **given))
    if name == "layer":
        return answer(name, layer_drift(*request, steps, **given))
    return answer(name, attribute(*request, steps, **given))


def answer(name: str, found: Any) -> dict[str, Any]:
    """A result as plain values: a title, sentences, and tables of at most 12 rows."""
    if name == "operation":
        lines, tables = [str(found)], [_table(found.differing, "operation", "differing outputs in order")]
    elif name == "layer":
        here = found.drift.filter(found.drift["step"] == found.step)
        lines, tables = (
            [_layer_line(found)],
            [_table(here, "layer", f"residual stream at step {found.step}", limit=200)],
        )
    else:
        lines = list(found.notes)
        tables = [_table(found.table, "knob", "each differing field alone")]
        if found.neighbours.height:
            tables.append(_table(found.neighbours, "neighbours", "what about the batch it is"))
    return {"name": name, "title": QUESTIONS[name], "lines": lines, "tables": tables}


def _layer_line(found: Any) -> str:
    first = (
        "no layer differs there" if found.first_layer is None else f"layer {found.first_layer} is the first to differ"
    )
    what = "the flip" if found.flip else "the largest drift, for nothing flips"
    words = " and ".join(repr(text) for text in found.candidates)
    epsilon = found.logits.row(found.step, named=True)["epsilon"]
    return f"At step {found.step}, {what} between {words}: {first}, and the logits differ by {epsilon:.3g}."


def _table(frame: pl.DataFrame, kind: str, caption: str, limit: int = _ROWS) -> dict[str, Any]:
    names = [name for name in _COLUMNS[kind] if name in frame.columns]
    rows = [[_word(row, name) for name in names] for row in frame.head(limit).iter_rows(named=True)]
    return {"caption": caption, "columns": names, "rows": rows, "left": max(frame.height - limit, 0)}


def _word(row: Mapping[str, Any], name: str) -> str:
    value = row[name]
    if value is None:
        return "—"
    if isinstance(value, float):
        return f"{value:.3g}"
    return " × ".join(map(str, value)) if isinstance(value, list) else str(value)
