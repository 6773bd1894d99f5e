"""Causes made by hand, with the shape of real ones, so that the Cause tab can be tested without a model."""

from __future__ import annotations

import dataclasses

import polars as pl

from divexplore.comparison.attribution import Attribution
from divexplore.comparison.cause import Cause
from divexplore.comparison.comparison import Comparison
from divexplore.comparison.guards import GUARDS, Guard
from divexplore.comparison.layers import LayerDrift
from divexplore.comparison.operations import OperationTrace
from divexplore.config import RunConfig

__all__ = ["attribution", "cause", "guards", "layers", "operations", "with_guards"]

A, B = RunConfig(dtype="bfloat16", batch_size=1), RunConfig(dtype="bfloat16", batch_size=8)
_EFFECT = {"first_drift": pl.Int32, "drift": pl.Float64, "split": pl.Int32, "verdict": pl.String}
_EFFECT |= {"inconclusive": pl.Boolean, "why": pl.String}


def guards(failed: str | None = None) -> tuple[Guard, ...]:
    """The twelve checks: one not known, one failed where it is named, the others held."""
    return tuple(
        Guard(
            name,
            None if name == "observer" else name != failed,
            "Not asked: it costs one more plain run of each side." if name == "observer" else f"About {name}.",
            does,
        )
        for name, does in GUARDS.items()
    )


def with_guards(comparison: Comparison, failed: str | None = None) -> Comparison:
    """A comparison as `dx.compare` gives it: with its guards."""
    return dataclasses.replace(comparison, guards=guards(failed))


def cause(texts: tuple[str, str] = (" where", " to"), *, differing: int = 30) -> Cause:
    """All three parts.

    Parameters
    ----------
    texts
        The two candidates.
    differing
        Operations that differ.
    """
    return Cause(attribution=attribution(), operations=operations(differing), layers=layers(texts))


def attribution() -> Attribution:
    """Batch size, with four answers about the batch, one of which could not be had."""
    rows = [
        {"knob": "batch_size", "a": "1", "b": "8", **_effect(2, 0.156, 40, "near_tie")},
        {"knob": "seed", "a": "as it is", "b": "1", **_effect(None, 0.0, None, "identical")},
    ]
    asked = [
        {"question": "solo", "means": "the prompt alone", **_effect(None, 0.0, None, "identical")},
        {
            "question": "copies",
            "means": "only the size: the other rows are copies",
            **_effect(2, 0.156, 40, "near_tie"),
        },
        {"question": "row", "means": "only the place: the last row", **_effect(2, 0.141, None, "drift_only")},
        {"question": "longer fillers", "means": "longer rows beside it", **_effect(None, None, None, None, "no room")},
    ]
    return Attribution(
        fields=("batch_size",),
        table=pl.DataFrame(rows, schema={"knob": pl.String, "a": pl.String, "b": pl.String, **_EFFECT}),
        neighbours=pl.DataFrame(asked, schema={"question": pl.String, "means": pl.String, **_EFFECT}),
        minimal_flip=("batch_size",),
        minimal_drift=("batch_size",),
        steps=41,
        runs=11,
        repeatable=True,
        stopped=False,
        notes=(
            "batch_size is enough to flip the token within 41 steps.",
            "batch_size is enough for the logits to drift.",
        ),
    )


def operations(differing: int = 30) -> OperationTrace:
    """Equal outputs, then `differing` that grow, every fifth after them absorbing."""
    rows = [_output(order, "equal", 0.0) for order in range(10)]
    for count in range(differing):
        absorbed = count % 5 == 4
        rows.append(_output(10 + count, "equal" if absorbed else "differs", 0.0 if absorbed else 1e-3 * 1.2**count))
        rows[-1]["absorbs"] = absorbed
    rows.append({**_output(len(rows), "unmatched", None), "why": "only A has it"})
    figures = dict.fromkeys(("max_abs", "ulps", "relative", "share"), pl.Float64)
    names = {"order": pl.Int32, "module": pl.String, "operation": pl.String, "occurrence": pl.Int32}
    schema = {
        **names,
        "shape": pl.List(pl.Int64),
        "state": pl.String,
        **figures,
        "absorbs": pl.Boolean,
        "why": pl.String,
    }
    return OperationTrace(
        a=A,
        b=B,
        step=2,
        kind="operations",
        table=pl.DataFrame(rows, schema=schema),
        epsilon=0.0312,
        forwards=6,
        seconds=1.0,
    )


def layers(
    texts: tuple[str, str] = (" where", " to"), *, count: int = 9, prompt: int = 3, steps: int = 41
) -> LayerDrift:
    """Drift that begins at layer 3 of step 2 and grows, and a lens that changes its mind in the last layer."""
    drift = [
        {
            "layer": layer,
            "position": position,
            "step": position - prompt + 1 if position >= prompt - 1 else None,
            "text": texts[0],
            "max_abs": 1e-3 * layer * position if layer > 2 and position > prompt else 0.0,
            "relative": 1e-4 * 2.0**layer if layer > 2 and position > prompt else 0.0,
        }
        for layer in range(count)
        for position in range(prompt - 1 + steps)
    ]
    lens = [
        {
            "layer": layer,
            "side": side,
            "first": 9.25,
            "second": 9.25 - gap,
            "gap": gap,
            "top": texts[0] if gap > 0 else texts[1],
        }
        for layer in range(count)
        for side, gap in (("A", 0.9 - 0.1 * layer), ("B", 0.9 - 0.1 * layer - 0.02 * layer))
    ]
    whole = dict.fromkeys(("layer", "position", "step"), pl.Int32)
    return LayerDrift(
        a=A,
        b=B,
        step=steps - 1,
        flip=True,
        drift=pl.DataFrame(drift, schema={**whole, "text": pl.String, "max_abs": pl.Float64, "relative": pl.Float64}),
        logits=pl.DataFrame(
            {
                "step": range(steps),
                "epsilon": [0.01 * (step % 7) for step in range(steps)],
                "flip": [False] * (steps - 1) + [True],
            },
            schema={"step": pl.Int32, "epsilon": pl.Float64, "flip": pl.Boolean},
        ),
        lens=pl.DataFrame(lens, schema_overrides={"layer": pl.Int32}),
        candidates=texts,
        lens_exact=True,
    )


def _effect(
    first: int | None, drift: float | None, split: int | None, verdict: str | None, why: str | None = None
) -> dict:
    row = {"first_drift": first, "drift": drift, "split": split, "verdict": verdict}
    return {**row, "inconclusive": split is not None, "why": why}


def _output(order: int, state: str, size: float | None) -> dict:
    module = f"layers.{order // 8}.{('self_attn.q_proj', 'self_attn', 'mlp.down_proj', 'mlp')[order % 4]}"
    names = {"order": order, "module": module, "operation": "aten.linear", "occurrence": order % 2, "shape": [1, 288]}
    figures = {"max_abs": size, "ulps": None if size is None else size / 1e-3, "relative": size, "share": size}
    return {**names, "state": state, **figures, "absorbs": None if size is None else False, "why": None}
