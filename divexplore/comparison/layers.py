"""How does a difference grow through the layers, and at which one do the two candidate tokens change places?"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from divexplore.comparison.drift import epsilon
from divexplore.comparison.residuals import Keep, lens, streaming
from divexplore.config import PRESETS, RunConfig
from divexplore.engine.batch import fill_batch
from divexplore.engine.interrupt import interruptible
from divexplore.engine.interventions import intervene
from divexplore.engine.moment import reach
from divexplore.engine.rowfile import RowFile
from divexplore.engine.run import decode
from divexplore.engine.spill import Spill
from divexplore.engine.statistics import best_id
from divexplore.errors import Refusal
from divexplore.models.request import opened

if TYPE_CHECKING:
    import polars as pl
    from transformers import PreTrainedModel

    from divexplore.models.model import Model, Prompt
    from divexplore.trace import Trace

__all__ = ["LayerDrift", "layer_drift"]

Progress = Callable[[int, int, str], None]
"""Called with the steps done, the steps asked for, and what runs now."""


@dataclass(frozen=True, eq=False)
class LayerDrift:
    """The drift of the residual stream, the logits that come of it, and the flip, of B forced on A's tokens.

    Parameters
    ----------
    step
        The step that the lens looks at: the first flip, or the step of the largest epsilon where nothing flips.
    flip
        Whether the two sides prefer different tokens there.
    drift
        ``layer`` (0 is the embedding, k the output of layer k), ``position`` (of the token, pads excluded), ``step`` (that
        the position's logits belong to; null inside the prompt), ``text``, ``max_abs``, and ``relative`` (L2 norm of the
        difference by that of A's vector).
    logits
        ``step``, ``epsilon`` (max |Δlogit|), ``flip``, as far as B was run.
    lens
        Final norm and head put on each layer's output at `step`: ``layer``, ``side``, ``first`` and ``second`` (logits of the
        two candidates), ``gap`` (first minus second), ``top`` (the token it would choose).
    candidates
        Texts of the two tokens: A's choice, and B's, or A's runner-up where both choose the same.
    lens_exact
        Whether the lens on the last layer gives the model's own logits, bit for bit. Where a model scales or caps its
        logits afterwards it does not.
    """

    a: RunConfig
    b: RunConfig
    step: int
    flip: bool
    drift: pl.DataFrame
    logits: pl.DataFrame
    lens: pl.DataFrame
    candidates: tuple[str, str]
    lens_exact: bool

    @property
    def first_layer(self) -> int | None:
        """The first layer whose output differs at the step's own position; ``None`` where none does."""
        here = self.drift.filter((self.drift["step"] == self.step) & (self.drift["max_abs"] > 0))["layer"]
        return None if not len(here) else int(here.min())  # type: ignore[arg-type]

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "step": self.step,
            "flip": self.flip,
            "first_layer": self.first_layer,
            "candidates": list(self.candidates),
            "lens_exact": self.lens_exact,
            "drift": self.drift.to_dicts(),
            "logits": self.logits.to_dicts(),
            "lens": self.lens.to_dicts(),
        }

    def __repr__(self) -> str:
        here = self.logits.row(self.step, named=True)
        first = "no layer differs" if self.first_layer is None else f"first at layer {self.first_layer}"
        return f"<LayerDrift at step {self.step}: {first}, logits by {here['epsilon']:.3g}, {'a' if self.flip else 'no'} flip>"


def layer_drift(
    model: Model | PreTrainedModel | str = "fairy-tales",
    prompt: str | Sequence[int] = "",
    a: RunConfig | Mapping[str, Any] | None = None,
    b: RunConfig | Mapping[str, Any] | None = None,
    max_new_tokens: int = 128,
    *,
    chat: bool | None = None,
    progress: Progress | None = None,
    stop: Callable[[], bool] | None = None,
) -> LayerDrift:
    """Follow a difference from layer to layer and position to position, up to the logits and the flip.

    B is forced on A's tokens, and both runs end at the first flip. Memory holds one vector at a time; A's go to a temporary
    file of layers × positions × width values.

    Parameters
    ----------
    model, prompt, a, b, max_new_tokens, chat
        As `compare` takes them.
    progress, stop
        Called and asked after each step of both runs; a stopped run is looked at as far as it went, and so is one that is
        interrupted once.

    Raises
    ------
    Refusal
        On a request that cannot be served, or a model whose layers cannot be told.
    """
    if a is None and b is None:
        a, b = PRESETS["batch"].a, PRESETS["batch"].b
    config_a, config_b = RunConfig.of(a), RunConfig.of(b)
    model, encoded = opened(model, prompt, chat=chat, max_new_tokens=max_new_tokens)
    with RowFile() as rows, Spill() as vectors, interruptible(stop) as stopping:
        free = _run(
            model,
            encoded,
            config_a,
            lambda layer, first, values: _put(vectors, layer, first, values),
            max_new_tokens,
            on_row=lambda step, row, token: rows.append(row),
            progress=_labelled(progress, "A"),
            stop=stopping,
        )
        if stopping.interrupted:  # there is nothing to keep before B has run
            raise KeyboardInterrupt
        if not len(free):
            raise Refusal(
                "layers of a run without a whole step", "a run with one", "Choose another configuration for A."
            )
        measured: dict[tuple[int, int], tuple[float, float]] = {}
        epsilons: list[float] = []
        choices: list[tuple[int, int]] = []

        def see(step: int, row: torch.Tensor, token: int) -> None:
            epsilons.append(epsilon(rows.read(step), row.cpu()))
            choices.append((best_id(rows.read(step)), best_id(row.cpu())))

        _run(
            model,
            encoded,
            config_b,
            lambda layer, first, values: _compare(vectors, measured, layer, first, values),
            len(free),
            forced=free.token_ids,
            on_row=see,
            progress=_labelled(progress, "B on A's tokens"),
            stop=lambda: (bool(choices) and choices[-1][0] != choices[-1][1]) or stopping(),
        )
    if not epsilons:
        raise Refusal("layers of a run without a whole step", "a run with one", "Choose another configuration for B.")
    flips = [mine != other for mine, other in choices]
    step = flips.index(True) if any(flips) else epsilons.index(max(epsilons))
    first, second = choices[step] if flips[step] else (choices[step][0], int(free.top_ids[step, 1]))
    table, exact = _through_the_lens(model, encoded, config_a, config_b, free, step, first, second)
    stopping.tell()
    return LayerDrift(
        a=config_a,
        b=config_b,
        step=step,
        flip=flips[step],
        drift=_drift_table(measured, model, encoded, free),
        logits=_logits_table(epsilons, flips),
        lens=table,
        candidates=(model.token_text(first), model.token_text(second)),
        lens_exact=exact,
    )


def _run(model: Model, prompt: Prompt, config: RunConfig, keep: Keep, steps: int, **options: Any) -> Trace:
    """`decode`, with the residual stream shown to `keep`."""
    batch = fill_batch(model, prompt.ids, config, chat=prompt.chat)
    with intervene(lambda net, _: streaming(net, batch, keep)):
        trace = decode(model, prompt, config, steps, **options)
    if trace.meta["error"]:
        raise RuntimeError(f"the run ended early: {trace.meta['error']}")
    return trace


def _put(vectors: Spill, layer: int, first: int, values: torch.Tensor) -> None:
    for offset, vector in enumerate(values):
        vectors.put((layer, first + offset), vector)


def _compare(
    vectors: Spill, measured: dict[tuple[int, int], tuple[float, float]], layer: int, first: int, values: torch.Tensor
) -> None:
    """Largest absolute difference and relative L2 norm of each position; a later forward of it replaces an earlier one."""
    for offset, vector in enumerate(values):
        key = layer, first + offset
        if key in vectors:
            mine, other = vectors.get(key).double(), vector.cpu().double()
            apart = mine - other
            norm = float(mine.norm())
            measured[key] = float(apart.abs().max()), float(apart.norm()) / norm if norm else float(apart.norm() > 0)


def _labelled(progress: Progress | None, label: str) -> Progress | None:
    return None if progress is None else lambda done, total, _: progress(done, total, label)


def _through_the_lens(
    model: Model, prompt: Prompt, a: RunConfig, b: RunConfig, free: Trace, step: int, first: int, second: int
) -> tuple[pl.DataFrame, bool]:
    import polars as pl

    rows: list[dict[str, Any]] = []
    exact = True
    for side, config, fillers in (("A", a, free), ("B", b, None)):
        moment = reach(model, prompt, config, free.token_ids, step, fillers=fillers)
        seen = lens(moment)
        exact = exact and torch.equal(seen[-1], moment.row)
        for layer, logits in enumerate(seen):
            pair = float(logits[first]), float(logits[second])
            top = model.token_text(best_id(logits))
            rows.append(
                {
                    "layer": layer,
                    "side": side,
                    "first": pair[0],
                    "second": pair[1],
                    "gap": pair[0] - pair[1],
                    "top": top,
                }
            )
    return pl.DataFrame(rows, schema_overrides={"layer": pl.Int32}), exact


def _drift_table(
    measured: Mapping[tuple[int, int], tuple[float, float]], model: Model, prompt: Prompt, free: Trace
) -> pl.DataFrame:
    import polars as pl

    ids = [*prompt.ids, *free.token_ids]
    given = len(prompt.ids) - 1  # logits of step 0 come of the prompt's last token
    rows = [
        {
            "layer": layer,
            "position": position,
            "step": position - given if position >= given else None,
            "text": model.token_text(ids[position]),
            "max_abs": figures[0],
            "relative": figures[1],
        }
        for (layer, position), figures in sorted(measured.items())
    ]
    whole = dict.fromkeys(("layer", "position", "step"), pl.Int32)
    return pl.DataFrame(rows, schema={**whole, "text": pl.String, "max_abs": pl.Float64, "relative": pl.Float64})


def _logits_table(epsilons: Sequence[float], flips: Sequence[bool]) -> pl.DataFrame:
    import polars as pl

    columns = {"step": range(len(epsilons)), "epsilon": epsilons, "flip": flips}
    return pl.DataFrame(columns, schema={"step": pl.Int32, "epsilon": pl.Float64, "flip": pl.Boolean})
