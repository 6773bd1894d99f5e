"""Chart specifications with named, empty data sources, which the browser feeds."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

import altair as alt
import numpy as np
from numpy.typing import NDArray

__all__ = ["COLOURS", "SERIES", "dressed", "specs", "timeline", "top_bars"]

COLOURS = {"a": "#0072B2", "b": "#D55E00", "epsilon": "#CC79A7", "floor": "#808080"}
"""Okabe and Ito's palette, which stays apart for colour-blind readers; grey for the noise floor."""

SERIES = ("margin A", "margin B", "epsilon", "noise floor")
"""Series of the timeline, in the order of `COLOURS`; dash patterns tell them apart without colour."""

_COLUMNS = ("a_margin", "b_margin", "epsilon", "floor")
_DASHES = ([1, 0], [6, 2], [7, 2, 1, 2], [1, 3])


def specs(columns: Mapping[str, NDArray[Any]], unit: str) -> dict[str, Any]:
    """Vega-Lite specifications of the view's two charts, as plain dictionaries without data.

    Parameters
    ----------
    columns
        Columns of the payload: ``a_margin``, ``b_margin``, ``epsilon`` and, where measured, ``floor``.
    unit
        Of them: ``logits``, or ``nats`` where they are of recorded log-probabilities.
    """
    values = np.concatenate([columns[name].astype(float) for name in _COLUMNS if name in columns])
    shown = [
        series
        for series, name in zip(SERIES, _COLUMNS, strict=True)
        if name in columns and np.isfinite(columns[name].astype(float)).any()
    ]
    steps = max(len(columns[name]) for name in _COLUMNS if name in columns)
    return {"timeline": timeline(values, shown, steps, unit).to_dict(), "top": top_bars().to_dict()}


def timeline(values: NDArray[np.float64], shown: list[str], steps: int, unit: str) -> alt.LayerChart:
    """Margins, epsilon and noise floor by step, all in `unit` on one axis, with marks at drift and split.

    One axis for all, because the question is where the drift reaches up to the margin. It is symmetric-logarithmic:
    margins are in whole logits, drift in thousandths, and both can be 0.

    Data sources: ``series`` (``step``, ``value``, ``series``), ``marks`` (``step``, ``label``).
    """
    low, ticks = _axis(values)
    room = [{"expr": "height"}, 16]  # above the lines, for the words at the marks
    y = (
        alt.Y("value:Q")
        .scale(type="symlog", constant=low, range=room)
        .axis(values=ticks, labelExpr="format(datum.value, '~g')")
        .title(unit if shown else None)
    )
    domain = list(shown)
    colours = [colour for series, colour in zip(SERIES, COLOURS.values(), strict=True) if series in domain]
    dashes = [dash for series, dash in zip(SERIES, _DASHES, strict=True) if series in domain]
    legend = None  # an empty one would be infinitely tall
    if domain:
        legend = alt.Legend(
            orient="top", title=None, symbolType="stroke", symbolSize=240, symbolStrokeWidth=2, offset=2
        )
    colour = alt.Color("series:N").scale(domain=domain, range=colours).legend(legend)
    dash = alt.StrokeDash("series:N").scale(domain=domain, range=dashes).legend(legend)
    x = (
        alt.X("step:Q")
        .scale(nice=False, domain=[0, max(steps - 1, 1)])
        .axis(values=list(range(steps)) if steps < 16 else alt.Undefined, tickCount=16, format="d", grid=False)
        .title("step")
    )
    series = alt.Chart(alt.NamedData("series"))
    lines = series.mark_line(strokeWidth=1.4, clip=True).encode(x, y, colour, dash)
    ties = (
        series.mark_point(shape="cross", size=46, filled=True, opacity=1)
        .encode(x, y, color=alt.Color("series:N"))
        .transform_filter("datum.value === 0 && datum.series !== 'epsilon' && datum.series !== 'noise floor'")
    )
    # a line through one point is nothing; the others have their line
    lone = series.mark_point(shape="circle", size=14, filled=True, opacity=1).encode(x, y, color=alt.Color("series:N"))
    lone = lone.transform_joinaggregate(points="count()", groupby=["series"]).transform_filter("datum.points === 1")
    marks = alt.Chart(alt.NamedData("marks"))
    rules = marks.mark_rule(color="currentColor", strokeDash=[3, 2], opacity=0.75).encode(x="step:Q")
    labels = [_words(marks, "split", "left"), _words(marks, "first drift", "right")]  # drift is never the later one
    return dressed(alt.layer(lines, lone, ties, rules, *labels).properties(width=600, height=104))


def _words(marks: alt.Chart, label: str, align: Literal["left", "right"]) -> alt.Chart:
    """The word beside the rule of one mark, on the side where the other mark's word is not."""
    away = 4 if align == "left" else -4
    words = marks.mark_text(align=align, dx=away, dy=4, baseline="top", fontSize=10, color="currentColor")
    return words.encode(x="step:Q", y=alt.value(0), text="label:N").transform_filter(alt.datum.label == label)


def top_bars() -> alt.Chart:
    """Probabilities of the leading tokens on both sides.

    Data source: ``top`` (``label``, ``order``, ``side``, ``probability``); ``label`` is unique a token.
    """
    chart = alt.Chart(alt.NamedData("top"), width=280, height=alt.Step(8)).mark_bar(cornerRadiusEnd=2)
    colour = alt.Color("side:N").scale(domain=["A", "B"], range=[COLOURS["a"], COLOURS["b"]])
    return dressed(
        chart.encode(
            x=alt.X("probability:Q").axis(tickCount=4, format="~g").title("probability"),
            y=alt.Y("label:N")
            .sort(field="order", op="min")
            .title(None)
            .axis(labelLimit=120, labelFont="monospace", ticks=False),
            yOffset=alt.YOffset("side:N").scale(domain=["A", "B"], paddingInner=0.1),
            color=colour.legend(alt.Legend(orient="top", title=None, offset=2)),
        )
    )


def _axis(values: NDArray[np.float64]) -> tuple[float, list[float]]:
    """The value below which the axis is linear, and its ticks: 0 and at most five powers of ten."""
    positive = values[np.isfinite(values) & (values > 0)]
    if not len(positive):
        return 1.0, []
    low, high = math.floor(math.log10(np.percentile(positive, 1))), math.floor(math.log10(positive.max()))
    every = max(1, math.ceil((high - low + 1) / 5))
    return 10.0**low, [0.0, *(10.0**power for power in range(high, low - 1, -every))]


def dressed(chart: Any) -> Any:
    """Colours of the text around it, so that one specification serves light, dark and forced colours."""
    ink = {"labelColor": "currentColor", "titleColor": "currentColor", "labelFontSize": 10, "titleFontSize": 10}
    lines = {f"{part}Color": "currentColor" for part in ("grid", "domain", "tick")}
    faint = {"gridOpacity": 0.1, "domainOpacity": 0.3, "tickOpacity": 0.3, "titleFontWeight": "normal"}
    return (
        chart.configure(background="transparent", font="system-ui, sans-serif", padding=4)
        .configure_axis(**ink, **lines, **faint)
        .configure_legend(**ink)
        .configure_view(stroke=None)
    )
