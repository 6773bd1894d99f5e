"""One chart of a cause: drift from layer to layer, the logits that come of it, and the flip."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import altair as alt
    import polars as pl

    from divexplore.comparison.layers import LayerDrift

__all__ = ["layer_chart"]

_ROWS = 4500  # Altair refuses more than 5,000
_A, _B = "#0072B2", "#E69F00"  # Okabe and Ito's blue and orange, as in the view
_WIDTH = 560


def layer_chart(found: LayerDrift) -> alt.VConcatChart:
    """Three panels over each other: residual stream by layer and position, epsilon by step, the candidates by layer.

    Of a long run the last positions are drawn, as many as Altair takes.
    """
    import altair as alt

    return (
        alt.vconcat(_stream(found), _logits(found), _lens(found))
        .resolve_scale(color="independent", x="independent")
        .properties(
            title=f"From layer to token: {'the flip' if found.flip else 'the largest drift'} at step {found.step}"
        )
    )


def _stream(found: LayerDrift) -> Any:
    import altair as alt

    shown = _last_positions(found.drift)
    # equal bits have no place on a logarithmic scale: they stay the colour of the page
    tooltip = [
        "layer",
        "position",
        "step",
        "text",
        alt.Tooltip("relative", format=".3g"),
        alt.Tooltip("max_abs", format=".3g"),
    ]
    return (
        alt.Chart(shown.filter(shown["max_abs"] > 0), title="residual stream, relative difference")
        .mark_rect()
        .encode(
            x=alt.X("position:O", title="position of the token", axis=alt.Axis(labelOverlap=True)),
            y=alt.Y("layer:O", title="layer (0: embedding)", sort="descending", axis=alt.Axis(labelOverlap=True)),
            color=alt.Color("relative:Q", title="‖Δ‖ / ‖A‖", scale=alt.Scale(type="log", scheme="viridis")),
            tooltip=tooltip,
        )
        .properties(width=_WIDTH, height=200)
    )


def _logits(found: LayerDrift) -> Any:
    import altair as alt

    base = alt.Chart(found.logits, title="logits, max |Δ| over the vocabulary")
    line = base.mark_line(point=True, color="#56B4E9").encode(
        x=alt.X("step:Q", title="step", axis=alt.Axis(tickMinStep=1)),
        y=alt.Y("epsilon:Q", title="epsilon (logits)"),
        tooltip=["step", alt.Tooltip("epsilon", format=".3g"), "flip"],
    )
    flips = base.transform_filter("datum.flip").mark_rule(color="#D55E00", strokeDash=[4, 2]).encode(x="step:Q")
    return (line + flips).properties(width=_WIDTH, height=110)


def _lens(found: LayerDrift) -> Any:
    import altair as alt

    first, second = found.candidates
    base = alt.Chart(found.lens, title=f"logit lens: {first!r} minus {second!r}, through the final norm and head")
    lines = base.mark_line(point=True).encode(
        x=alt.X("layer:Q", title="layer", axis=alt.Axis(tickMinStep=1)),
        y=alt.Y("gap:Q", title="gap (logits)"),
        color=alt.Color("side:N", title="side", scale=alt.Scale(domain=["A", "B"], range=[_A, _B])),
        strokeDash=alt.StrokeDash("side:N", legend=None),
        tooltip=["layer", "side", alt.Tooltip("gap", format=".4g"), "top"],
    )
    zero = alt.Chart(alt.Data(values=[{"gap": 0}])).mark_rule(color="gray").encode(y="gap:Q")
    return (zero + lines).properties(width=_WIDTH, height=140)


def _last_positions(drift: pl.DataFrame) -> pl.DataFrame:
    layers = max(drift["layer"].n_unique(), 1)
    if drift.height <= _ROWS:
        return drift
    return drift.filter(drift["position"] > drift["position"].max() - _ROWS // layers)  # type: ignore[operator]
