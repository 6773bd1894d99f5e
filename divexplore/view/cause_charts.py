"""One chart of a cause: drift from layer to layer, the logits that come of it, and the flip."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import altair as alt

from divexplore.view.charts import COLOURS, dressed

if TYPE_CHECKING:
    import polars as pl

    from divexplore.comparison.layers import LayerDrift

__all__ = ["layer_chart", "layer_frames", "layer_spec"]

_CELLS = 4000  # Altair refuses more than 5,000 rows, and a page of SVG has no use for them
_HEAT = ["#56B4E9", "#CC79A7", "#D55E00"]  # of Okabe and Ito's palette; none vanishes on white or on black
_WIDTH, _LENS = 480, 180
_EXTENT = 40  # of the vertical axes, equal so that the panels stand under each other


def layer_chart(found: LayerDrift) -> alt.VConcatChart:
    """Three panels that share their axes: the residual stream by layer and step, the lens beside it, epsilon below.

    Of a long run the last positions are drawn, as many as a page takes.
    """
    frames = layer_frames(found)
    first, second = found.candidates
    what = f"{'the flip' if found.flip else 'the largest drift'} at step {found.step}"
    title = f"From layer to token: {what}; right of 0 the lens prefers {first!r}, left of it {second!r}"
    return dressed(_panels(frames, *_bounds(frames)).properties(title=alt.Title(title, fontSize=12, anchor="start")))


def layer_spec(found: LayerDrift) -> dict[str, Any]:
    """The same as a Vega-Lite specification with named, empty data: ``drift``, ``logits``, ``lens`` and ``marks``."""
    frames = layer_frames(found)
    sources = {name: alt.NamedData(name) for name in frames}
    return dressed(_panels(sources, *_bounds(frames))).to_dict()


def layer_frames(found: LayerDrift) -> dict[str, pl.DataFrame]:
    """What the panels show, by the name of the data source.

    Returns
    -------
    ``drift``: ``layer``, ``step`` (below 0 inside the prompt), ``relative``, ``max_abs``, ``text``, where bits differ;
    ``logits``: ``step``, ``epsilon``; ``lens``: ``layer``, ``side``, ``gap`` (logits), ``top``; ``marks``: ``step``,
    ``label``.
    """
    import polars as pl

    drift = found.drift
    given = drift.filter(drift["step"].is_not_null())["position"].min() or 0  # logits of step 0 come of it
    shown = max(_CELLS // max(drift["layer"].n_unique(), 1), 1)
    drift = drift.filter((drift["max_abs"] > 0) & (drift["position"] > drift["position"].max() - shown))  # type: ignore[operator]
    label = "flip" if found.flip else "largest drift"
    return {
        "drift": drift.select("layer", pl.col("position").sub(given).alias("step"), "relative", "max_abs", "text"),
        "logits": found.logits.select("step", "epsilon"),
        "lens": found.lens.select("layer", "side", "gap", "top"),
        "marks": pl.DataFrame({"step": [found.step], "label": [label]}),
    }


def _bounds(frames: dict[str, pl.DataFrame]) -> tuple[list[float], list[float]]:
    """The steps and the layers that the shared axes hold, half a cell beyond the first and the last."""
    steps = [*frames["drift"]["step"].to_list(), *frames["logits"]["step"].to_list()]
    return [min(steps) - 0.5, max(steps) + 0.5], [-0.5, float(frames["lens"]["layer"].max()) + 0.5]  # type: ignore[arg-type]


def _panels(sources: dict[str, Any], steps: list[float], layers: list[float]) -> alt.VConcatChart:
    height = min(max(14 * (layers[1] - layers[0]), 110), 250)
    x = alt.Scale(domain=steps, nice=False, zero=False)
    y = alt.Scale(domain=layers, nice=False, zero=False)
    top = alt.hconcat(_stream(sources, x, y, height), _lens(sources["lens"], y, height), spacing=16)
    top = top.resolve_scale(color="independent", strokeDash="independent")
    chart = alt.vconcat(top, _logits(sources, x), spacing=8)
    return chart.resolve_scale(color="independent", strokeDash="independent")


def _stream(sources: dict[str, Any], x: alt.Scale, y: alt.Scale, height: float) -> Any:
    legend = alt.Legend(
        title="‖Δ‖ / ‖A‖, residual stream",
        orient="top",
        direction="horizontal",
        gradientLength=130,
        gradientThickness=8,
        tickCount=2,
        format=".0e",
        titleOrient="left",
        titleLimit=220,
        titleFontWeight="normal",
    )
    colour = alt.Color("relative:Q", scale=alt.Scale(type="log", range=_HEAT), legend=legend)
    cells = (
        alt.Chart(sources["drift"])
        .transform_calculate(left="datum.step - 0.5", right="datum.step + 0.5")
        .transform_calculate(low="datum.layer - 0.5", high="datum.layer + 0.5")
        .mark_rect()
        .encode(
            # equal bits have no place on a logarithmic scale: they stay the colour of the page
            x=alt.X("left:Q", scale=x, axis=alt.Axis(labels=False, title=None, grid=False, tickMinStep=1)),
            x2="right:Q",
            y=alt.Y("low:Q", scale=y, title="layer (0: embedding)", axis=_upright(tickMinStep=1, grid=False)),
            y2="high:Q",
            color=colour,
            tooltip=[
                "layer:Q",
                "step:Q",
                "text:N",
                alt.Tooltip("relative:Q", format=".3g"),
                alt.Tooltip("max_abs:Q", format=".3g"),
            ],
        )
    )
    return (cells + _rule(sources["marks"], x)).properties(width=_WIDTH, height=height)


def _logits(sources: dict[str, Any], x: alt.Scale) -> Any:
    line = (
        alt.Chart(sources["logits"])
        .mark_line(
            color=COLOURS["epsilon"], strokeWidth=1.4, point=alt.OverlayMarkDef(size=14, color=COLOURS["epsilon"])
        )
        .encode(
            x=alt.X(
                "step:Q",
                scale=x,
                title="step (below 0: the prompt)",
                axis=alt.Axis(tickMinStep=1, format="d", grid=False),
            ),
            y=alt.Y("epsilon:Q", title="epsilon", axis=_upright(tickCount=3, format="~g")),
            tooltip=["step:Q", alt.Tooltip("epsilon:Q", format=".3g")],
        )
    )
    word = (
        alt.Chart(sources["marks"])
        .mark_text(align="right", dx=-4, baseline="top", fontSize=10, color="currentColor")
        .encode(x=alt.X("step:Q", scale=x), y=alt.value(0), text="label:N")
    )
    return (line + _rule(sources["marks"], x) + word).properties(width=_WIDTH, height=64)


def _rule(marks: Any, x: alt.Scale) -> alt.Chart:
    chart = alt.Chart(marks).mark_rule(color="currentColor", strokeDash=[3, 2], opacity=0.75)
    return chart.encode(x=alt.X("step:Q", scale=x))


def _lens(source: Any, y: alt.Scale, height: float) -> Any:
    colours = alt.Scale(domain=["A", "B"], range=[COLOURS["a"], COLOURS["b"]])
    legend = alt.Legend(title=None, orient="top", symbolType="stroke", symbolStrokeWidth=2, symbolSize=240)
    lines = (
        alt.Chart(source)
        .mark_line(strokeWidth=1.6)
        .encode(
            x=alt.X("gap:Q", title="lens: first − second (logits)", axis=alt.Axis(tickCount=5, format="~g")),
            y=alt.Y("layer:Q", scale=y, axis=alt.Axis(labels=False, title=None, tickMinStep=1)),
            order="layer:Q",
            color=alt.Color("side:N", scale=colours, legend=legend),
            strokeDash=alt.StrokeDash(
                "side:N", scale=alt.Scale(domain=["A", "B"], range=[[1, 0], [5, 3]]), legend=legend
            ),
            tooltip=["layer:Q", "side:N", alt.Tooltip("gap:Q", format=".4g"), "top:N"],
        )
    )
    zero = alt.Chart(alt.Data(values=[{"zero": 0}])).mark_rule(color="currentColor", opacity=0.5).encode(x="zero:Q")
    return (zero + lines).properties(width=_LENS, height=height)


def _upright(**options: Any) -> alt.Axis:
    return alt.Axis(minExtent=_EXTENT, maxExtent=_EXTENT, titleAnchor="middle", **options)
