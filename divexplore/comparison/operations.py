"""Where in the network do the bits first differ? Both configurations at one step, operation by operation."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import torch

from divexplore.comparison.drift import epsilon
from divexplore.comparison.op_figures import Figures, digest, figures
from divexplore.comparison.op_keys import Key, ModuleOutputs, Modules, OperationOutputs, See
from divexplore.comparison.op_rows import Cut, Frame, cuts
from divexplore.config import PRESETS, RunConfig
from divexplore.engine.moment import Moment, reach
from divexplore.engine.rowfile import RowFile
from divexplore.engine.run import decode
from divexplore.engine.spill import Spill
from divexplore.errors import Refusal
from divexplore.models.request import opened

if TYPE_CHECKING:
    import polars as pl
    from transformers import PreTrainedModel

    from divexplore.models.model import Model, Prompt

__all__ = ["FirstDifference", "OperationTrace", "moments", "trace_moments", "trace_ops"]

Progress = Callable[[int, int, str], None]
"""Called with the parts done, the parts in all, and what runs now."""

_PARTS = 5  # reach, shapes, hashes, values, table
_WINDOWS = (8, 32)  # first drift is early as a rule: look there before the whole length


@dataclass(frozen=True, kw_only=True)
class FirstDifference:
    """The first operation, in A's order, whose output differs in bits for the observed row.

    `ulps` counts `max_abs` in the spacing of the coarser dtype; `share` is the part of the elements that differ.
    """

    order: int
    module: str
    operation: str
    occurrence: int
    shape: tuple[int, ...]
    max_abs: float
    ulps: float
    share: float


@dataclass(frozen=True, eq=False)
class OperationTrace:
    """One forward of two configurations, output by output.

    Parameters
    ----------
    step
        The step whose forward was looked into.
    kind
        ``operations``, or ``modules`` where the two attention kernels have no operations in common.
    table
        A row an output in A's order, then those that only B has: ``order``, ``module``, ``operation``, ``occurrence``,
        ``shape`` (of the observed row, pads dropped), ``state`` (``equal``, ``differs``, ``unmatched``), ``max_abs``,
        ``ulps``, ``relative`` (to the largest magnitude in A), ``share`` of differing elements, ``absorbs`` (fed with
        something that differs, and equal again; null between modules), ``why`` an output was not compared.
    epsilon
        max |Δlogit| of the observed row at this step.
    forwards
        Forwards beyond those that reached the step.
    seconds
        What it took in all.
    """

    a: RunConfig
    b: RunConfig
    step: int
    kind: str
    table: pl.DataFrame
    epsilon: float
    forwards: int
    seconds: float

    @property
    def first_difference(self) -> FirstDifference | None:
        """The first output that differs, or ``None`` where all that was compared is bit-equal."""
        found = self.differing
        if not found.height:
            return None
        row = found.row(0, named=True)
        names = ("order", "module", "operation", "occurrence", "max_abs", "ulps", "share")
        return FirstDifference(**{name: row[name] for name in names}, shape=tuple(row["shape"]))

    @property
    def compared(self) -> int:
        """Outputs that both sides have and that were compared."""
        return int((self.table["state"] != "unmatched").sum())

    @property
    def differing(self) -> pl.DataFrame:
        """The outputs that differ, in order: the growth of the difference."""
        return self.table.filter(self.table["state"] == "differs")

    @property
    def absorbing(self) -> pl.DataFrame:
        """The operations that were fed with a difference and put out equal bits."""
        return self.table.filter(self.table["absorbs"].fill_null(False))

    @property
    def unmatched(self) -> pl.DataFrame:
        """The outputs that were not compared, each with the reason."""
        return self.table.filter(self.table["state"] == "unmatched")

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values; of the table, what differs or absorbs, and how many others there are."""
        first = self.first_difference
        return {
            "step": self.step,
            "kind": self.kind,
            "epsilon": self.epsilon,
            "compared": self.compared,
            "differing": self.differing.height,
            "unmatched": self.unmatched.height,
            "first_difference": None if first is None else asdict(first),
            "rows": self.table.filter(
                (self.table["state"] == "differs") | self.table["absorbs"].fill_null(False)
            ).to_dicts(),
        }

    def __repr__(self) -> str:
        return f"<{self}>"

    def __str__(self) -> str:
        first = self.first_difference
        counted = f"{self.differing.height} of {self.compared} {self.kind} differ at step {self.step}"
        if first is None:
            return f"no output of {self.compared} {self.kind} differs at step {self.step}"
        return (
            f"{counted}; the first is {first.operation} in {first.module or 'the model itself'}: {first.share:.3g} of its "
            f"elements, at most {first.max_abs:.3g} ({first.ulps:.3g} ULP); the logits differ by {self.epsilon:.3g}"
        )


def trace_ops(
    model: Model | PreTrainedModel | str = "fairy-tales",
    prompt: str | Sequence[int] = "",
    a: RunConfig | Mapping[str, Any] | None = None,
    b: RunConfig | Mapping[str, Any] | None = None,
    step: int | None = None,
    *,
    max_new_tokens: int = 128,
    chat: bool | None = None,
    progress: Progress | None = None,
    stop: Callable[[], bool] | None = None,
) -> OperationTrace:
    """Record every operation's output at one step under two configurations, and find the first that differs in bits.

    Both sides come to the step on A's tokens, in their own shapes. It costs six forwards beyond those.

    Parameters
    ----------
    model, prompt, a, b, chat
        As `compare` takes them.
    step
        The step to look into; ``None`` is the first that drifts, or the last one where none does.
    max_new_tokens
        How far to look for drift where `step` is ``None``.
    progress
        Called between the parts.
    stop
        Asked between the parts; when it answers true, `Refusal` is raised, for half a trace says nothing.

    Raises
    ------
    Refusal
        On a request that cannot be served.
    RuntimeError
        Where recording changed the logits.
    """
    started = time.perf_counter()
    if a is None and b is None:
        a, b = PRESETS["batch"].a, PRESETS["batch"].b
    config_a, config_b = RunConfig.of(a), RunConfig.of(b)
    model, encoded = opened(model, prompt, chat=chat, max_new_tokens=max_new_tokens)
    watch = _Watch(progress, stop)
    watch("reaching the step")
    pair = moments(model, encoded, config_a, config_b, step, max_new_tokens)
    return trace_moments(*pair, watch=watch, started=started)


def moments(
    model: Model,
    prompt: Prompt,
    a: RunConfig,
    b: RunConfig,
    step: int | None,
    max_new_tokens: int,
    nets: tuple[Any, Any] = (None, None),
) -> tuple[Moment, Moment]:
    """Both sides at one step, forced on A's tokens; without a `step` the first that drifts.

    Parameters
    ----------
    nets
        Prepared transformers models of A and B in place of the canonical ones.
    """
    if step is not None and (isinstance(step, bool) or not isinstance(step, int) or step < 0):
        raise Refusal(f"step={step!r}", "a step, 0 or later, or None", "Leave step out for the first drift.")
    room = None if model.context_length is None else model.context_length - len(prompt.ids)
    if step is not None and room is not None and step > room:
        raise Refusal(f"step={step}", f"steps up to {room}, where the context ends", "Choose an earlier step.")
    if step is None:
        step, tokens, fillers = _first_drift(model, prompt, a, b, max_new_tokens, nets)
    else:
        free = decode(model, prompt, a, step, net=nets[0]) if step else None
        tokens, fillers = ([], None) if free is None else (free.token_ids, free)
        if free is not None and free.meta["error"]:
            raise RuntimeError(f"A ended before step {step}: {free.meta['error']}")
        if len(tokens) < step:
            raise Refusal(f"step {step}", f"steps up to {len(tokens)}, where A ends", "Choose an earlier step.")
    return (
        reach(model, prompt, a, tokens, step, fillers=fillers, net=nets[0]),
        reach(model, prompt, b, tokens, step, net=nets[1]),
    )


def trace_moments(
    a: Moment, b: Moment, *, watch: Callable[[str], None] | None = None, started: float | None = None
) -> OperationTrace:
    """Compare two moments output by output: shapes first, then hashes, then values of what differs only."""
    started = time.perf_counter() if started is None else started
    watch = watch or (lambda label: None)
    kind = "operations" if a.kernel == b.kernel else "modules"
    watch("shapes")
    shapes_a, fed_a = _shapes(a, kind)
    shapes_b, _ = _shapes(b, kind)
    plan: dict[Key, tuple[Cut, Cut]] = {}
    unmatched: dict[Key, str] = {}
    for key, (shape, _) in shapes_a.items():
        if key not in shapes_b:
            unmatched[key] = "only A has it"
            continue
        found = cuts(shape, shapes_b[key][0], _frame(a), _frame(b))
        if isinstance(found, str):
            unmatched[key] = found
        else:
            plan[key] = found
    unmatched |= {key: "only B has it" for key in shapes_b if key not in shapes_a}
    watch("hashes")
    common = {key: None if shapes_a[key][1] == shapes_b[key][1] else torch.float64 for key in plan}

    def hashed(side: int) -> Callable[[Key, torch.Tensor], bytes]:
        return lambda key, output: digest(plan[key][side](output), common[key])

    hashes_a = _collect(a, kind, hashed(0), set(plan))
    hashes_b = _collect(b, kind, hashed(1), set(plan))
    watch("values")
    differ = {key for key in plan if hashes_a[key] != hashes_b[key]}
    measured: dict[Key, Figures] = {}
    if differ:
        with Spill() as values:
            _collect(a, kind, lambda key, x: values.put(key, plan[key][0](x)), differ)
            measured = _collect(b, kind, lambda key, x: figures(values.get(key), plan[key][1](x)), differ)
    watch("table")
    shapes = {key: tuple(shape) for key, (shape, _) in (shapes_b | shapes_a).items()}
    shapes = {key: shapes[key] for key in (*shapes_a, *shapes_b)}  # A's order, then what only B has
    shapes |= {key: _cut_shape(shapes_a[key][0], cut) for key, (cut, _) in plan.items()}
    return OperationTrace(
        a=a.config,
        b=b.config,
        step=a.step,
        kind=kind,
        table=_table(shapes, unmatched, measured, fed_a if kind == "operations" else None),
        epsilon=epsilon(a.row.cpu(), b.row.cpu()),
        forwards=6 if differ else 4,
        seconds=time.perf_counter() - started,
    )


def _first_drift(
    model: Model, prompt: Prompt, a: RunConfig, b: RunConfig, max_new_tokens: int, nets: tuple[Any, Any]
) -> tuple[int, list[int], Any]:
    """The first step whose rows differ in value with B on A's tokens, A's tokens, and A's run."""
    for steps in sorted({min(window, max_new_tokens) for window in (*_WINDOWS, max_new_tokens)}):
        found: list[int] = []
        with RowFile() as rows:
            free = decode(model, prompt, a, steps, net=nets[0], on_row=lambda step, row, token: rows.append(row))

            def compare(step: int, row: torch.Tensor, token: int) -> None:
                if not found and epsilon(rows.read(step), row.cpu()) != 0:  # noqa: B023 - used within this turn
                    found.append(step)  # noqa: B023

            if len(free):
                decode(
                    model,
                    prompt,
                    b,
                    len(free),
                    forced=free.token_ids,
                    net=nets[1],
                    on_row=compare,
                    stop=lambda: bool(found),  # noqa: B023
                )
        if found or len(free) < steps or steps == max_new_tokens:
            if not len(free):
                raise Refusal(
                    f"the first drift of a run that ended at step 0 ({free.meta['error'] or free.finish_reason})",
                    "a run with at least one whole step",
                    "Choose another configuration for A.",
                )
            return (found[0] if found else len(free) - 1), free.token_ids, free
    raise AssertionError("the last window is the whole length")


def _observer(moment: Moment, kind: str, see: See, *, follow: bool = False) -> list[AbstractContextManager[Any]]:
    modules = Modules(moment.net)
    if kind == "operations":
        return [modules, OperationOutputs(modules, see, follow=follow)]
    return [modules, ModuleOutputs(modules, see)]


def _shapes(moment: Moment, kind: str) -> tuple[dict[Key, tuple[torch.Size, torch.dtype]], dict[Key, frozenset[Key]]]:
    shapes: dict[Key, tuple[torch.Size, torch.dtype]] = {}
    fed: dict[Key, frozenset[Key]] = {}

    def see(key: Key, output: torch.Tensor, sources: frozenset[Key]) -> None:
        shapes[key] = output.shape, output.dtype
        fed[key] = sources

    moment.replay(*_observer(moment, kind, see, follow=True))
    return shapes, fed


def _collect(moment: Moment, kind: str, take: Callable[[Key, torch.Tensor], Any], keys: set[Key]) -> dict[Key, Any]:
    taken: dict[Key, Any] = {}

    def see(key: Key, output: torch.Tensor, sources: frozenset[Key]) -> None:
        if key in keys:
            taken[key] = take(key, output)

    moment.replay(*_observer(moment, kind, see))
    return taken


def _frame(moment: Moment) -> Frame:
    batch = moment.batch
    return Frame(len(batch.prompts), batch.row, batch.pads[batch.row], moment.queries, moment.columns)


def _cut_shape(shape: torch.Size, cut: Cut) -> tuple[int, ...]:
    return tuple(cut(torch.empty(shape, device="meta")).shape)


def _table(
    shapes: dict[Key, tuple[int, ...]],
    unmatched: dict[Key, str],
    measured: dict[Key, Figures],
    fed: dict[Key, frozenset[Key]] | None,
) -> pl.DataFrame:
    import polars as pl

    differs = {
        key for key, figure in measured.items() if figure.share > 0
    }  # -0 beside 0 has other bits, no other value
    rows = []
    for order, (key, shape) in enumerate(shapes.items()):
        figure = measured.get(key, Figures(0.0, 0.0, 0.0, 0.0)) if key not in unmatched else None
        absorbs = None
        if fed is not None and figure is not None:
            absorbs = key not in differs and bool(fed.get(key, frozenset()) & differs)
        rows.append(
            {
                "order": order,
                **key._asdict(),
                "shape": list(shape),
                "state": "unmatched" if figure is None else "differs" if key in differs else "equal",
                **(asdict(figure) if figure is not None else {}),
                "absorbs": absorbs,
                "why": unmatched.get(key),
            }
        )
    schema: dict[str, Any] = {
        "order": pl.Int32,
        "module": pl.String,
        "operation": pl.String,
        "occurrence": pl.Int32,
        "shape": pl.List(pl.Int64),
        "state": pl.String,
        **dict.fromkeys(("max_abs", "ulps", "relative", "share"), pl.Float64),
        "absorbs": pl.Boolean,
        "why": pl.String,
    }
    return pl.DataFrame(rows, schema=schema)


class _Watch:
    """Tells the parts to `progress` and asks `stop` between them."""

    def __init__(self, progress: Progress | None, stop: Callable[[], bool] | None) -> None:
        self._progress, self._stop, self._done = progress, stop, 0

    def __call__(self, label: str) -> None:
        if self._stop is not None and self._stop():
            raise Refusal("a trace that was stopped", "a trace that runs to its end", "Run it again.")
        if self._progress is not None:
            self._progress(self._done, _PARTS, label)
        self._done += 1
