"""Which knob is it? Each differing field alone, then the smallest sets that flip the token or make any drift."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from divexplore.comparison.compare import compare_traces
from divexplore.comparison.drift import epsilon
from divexplore.comparison.neighbours import QUESTIONS, neighbour_configs
from divexplore.comparison.search import Effect, Search, Stopped, effect_of, mixed, search
from divexplore.comparison.verdict import Verdict
from divexplore.config import PRESETS, RunConfig
from divexplore.engine.choice import decode_path
from divexplore.engine.fresh_process import kept_processes
from divexplore.engine.interrupt import interruptible
from divexplore.engine.isolated import needs_isolation, run_isolated
from divexplore.engine.rowfile import RowFile
from divexplore.engine.run import decode
from divexplore.errors import Refusal
from divexplore.models.request import opened

if TYPE_CHECKING:
    import polars as pl
    from transformers import PreTrainedModel

    from divexplore.models.model import Model, Prompt
    from divexplore.trace import Trace

__all__ = ["Attribution", "attribute", "expected_runs"]

Progress = Callable[[int, int, str], None]
"""Called with the runs done, the runs expected, and what runs now."""


@dataclass(frozen=True, eq=False)
class Attribution:
    """Which fields of two configurations make the difference.

    Parameters
    ----------
    fields
        The fields in which they differ.
    table
        A row a field, alone in A: ``knob``, ``a``, ``b`` (its values), ``first_drift`` (step), ``drift`` (largest
        epsilon, logits), ``split`` (step), ``verdict``, ``inconclusive``, ``why``.
    neighbours
        The same for the questions about a batch (`QUESTIONS`): ``question``, ``means``, then as in `table`. Empty where
        both sides have one batch size.
    minimal_flip
        Fields that, put into A together, make the tokens part no later than B does; without any one of them they do
        not. ``None`` where B flips nothing.
    minimal_drift
        The same for any difference in the logits.
    steps
        Steps that each configuration was run for: to the split, or all where nothing splits.
    runs
        Runs that were made.
    repeatable
        Whether each side gave equal bits twice.
    stopped
        Whether it was stopped before the end.
    notes
        Sentences that belong to the result.
    """

    fields: tuple[str, ...]
    table: pl.DataFrame
    neighbours: pl.DataFrame
    minimal_flip: tuple[str, ...] | None
    minimal_drift: tuple[str, ...] | None
    steps: int
    runs: int
    repeatable: bool
    stopped: bool
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """The attribution as plain JSON values."""
        return {
            "fields": list(self.fields),
            "minimal_flip": None if self.minimal_flip is None else list(self.minimal_flip),
            "minimal_drift": None if self.minimal_drift is None else list(self.minimal_drift),
            "steps": self.steps,
            "runs": self.runs,
            "repeatable": self.repeatable,
            "stopped": self.stopped,
            "notes": list(self.notes),
            "table": self.table.to_dicts(),
            "neighbours": self.neighbours.to_dicts(),
        }

    def __repr__(self) -> str:
        return f"<Attribution over {', '.join(self.fields) or 'no field'}: {self.notes[0]}>"

    def __str__(self) -> str:
        lines = [*self.notes, ""]
        lines += [_line(row["knob"], row) for row in self.table.iter_rows(named=True)]
        lines += [_line(f"batch, {row['question']}", row) for row in self.neighbours.iter_rows(named=True)]
        return "\n".join(lines)


def attribute(
    model: Model | PreTrainedModel | str = "fairy-tales",
    prompt: str | Sequence[int] = "",
    a: RunConfig | Mapping[str, Any] | None = None,
    b: RunConfig | Mapping[str, Any] | None = None,
    max_new_tokens: int = 128,
    *,
    chat: bool | None = None,
    neighbours: bool = True,
    progress: Progress | None = None,
    stop: Callable[[], bool] | None = None,
) -> Attribution:
    """Find the knobs that make B another run than A.

    Each side runs twice first, for a field can be blamed only where each side repeats itself. Then every differing field is
    put into A alone, then sets are reduced until no member can be spared. Runs after the first go only as far as the split.

    Parameters
    ----------
    model, prompt, a, b, max_new_tokens, chat
        As `compare` takes them.
    neighbours
        Whether to ask what about the batch it is, where the two batch sizes differ.
    progress, stop
        `progress` is called before each run. A stopped search keeps what it found, and so does one that is interrupted
        once.

    Raises
    ------
    Refusal
        On a request that cannot be served, a side that samples among them.
    RuntimeError
        Where A or B itself cannot be run to an end.
    """
    if a is None and b is None:
        a, b = PRESETS["batch"].a, PRESETS["batch"].b
    config_a, config_b = RunConfig.of(a), RunConfig.of(b)
    _refuse_sampling(config_a, config_b)
    model, encoded = opened(model, prompt, chat=chat, max_new_tokens=max_new_tokens)
    with RowFile() as rows, kept_processes(), interruptible(stop) as stopping:
        bench = _Bench(model, encoded, needs_isolation(config_a, config_b), max_new_tokens, progress, stopping)
        bench.expected = expected_runs(config_a, config_b) - (0 if neighbours else len(QUESTIONS))
        try:
            first = bench.run(config_a), bench.run(config_b)
        except Stopped:
            if stopping.interrupted:  # there is nothing to keep
                raise KeyboardInterrupt from None
            raise Refusal("a search stopped before both sides had run", "one that runs on", "Run it again.") from None
        split = effect_of(*first).split
        bench.steps = min(map(len, first)) if split is None else split + 1
        bench.measure(config_a, rows)
        found = search(bench.run, config_a, config_b, first)
        asked: dict[str, Effect] = {}
        configs: dict[str, RunConfig | str] = {}
        if neighbours and config_a.rows != config_b.rows and found.repeatable and not found.stopped:
            configs = neighbour_configs(config_a, max(config_a.rows, config_b.rows), bench.prompt.ids)
            asked = bench.ask(configs)
    stopping.tell()
    return _result(config_a, config_b, bench, found, configs, asked)


def expected_runs(a: RunConfig, b: RunConfig) -> int:
    """About how many runs `attribute` makes: each side twice, each field, some pairs, and the questions about a batch."""
    fields = len(a.difference(b))
    return 4 + fields + (fields if fields > 2 else 0) + (len(QUESTIONS) if a.rows != b.rows else 0)


def _refuse_sampling(a: RunConfig, b: RunConfig) -> None:
    """A knob moves the logits that a draw is made from: what the draw then takes is no effect of the knob alone."""
    drawn = {side: decode_path(config) for side, config in (("A", a), ("B", b)) if config.do_sample}
    if drawn:
        told = "; ".join(f"{side}: {path}" for side, path in drawn.items())
        seeds = "" if a.seed == b.seed else f", with the seeds {a.seed} and {b.seed}"
        raise Refusal(
            f"blaming a knob while tokens are sampled ({told}{seeds})",
            "greedy decoding on both sides",
            "Leave do_sample, temperature, top_k and top_p out on both sides, then ask again.",
        )


class _Bench:
    """Runs configurations and measures them against A: the one place of this module that holds state."""

    def __init__(
        self,
        model: Model,
        prompt: Prompt,
        isolated: bool,
        steps: int,
        progress: Progress | None,
        stop: Callable[[], bool] | None,
    ) -> None:
        self.prompt, self.steps, self.runs, self.expected = prompt, steps, 0, 0
        self.traces: dict[RunConfig, Trace] = {}
        self.epsilons: dict[RunConfig, float] = {}
        self._model, self._isolated, self._progress, self._stop = model, isolated, progress, stop
        self._reference: tuple[RunConfig, RowFile] | None = None

    def measure(self, a: RunConfig, rows: RowFile) -> None:
        """Keep A's rows of its next run, and measure every later run against them."""
        self._reference = a, rows

    def run(self, config: RunConfig) -> Trace:
        if self._stop is not None and self._stop():
            raise Stopped
        if self._progress is not None:
            self._progress(self.runs, max(self.expected, self.runs + 1), str(config))
        self.runs += 1
        go = run_isolated if self._isolated else decode
        trace = go(self._model, self.prompt, config, self.steps, on_row=self._watcher(config), stop=self._stop)
        if trace.finish_reason == "stopped":
            raise Stopped
        if trace.meta["error"] or not len(trace):
            raise RuntimeError(trace.meta["error"] or f"{config} gives no finite logits at step 0")
        self.traces[config] = trace
        return trace

    def ask(self, configs: Mapping[str, RunConfig | str]) -> dict[str, Effect]:
        """The effect of each configuration that is there, until somebody presses Stop."""
        reference = self.traces[self._reference[0]] if self._reference else None
        found: dict[str, Effect] = {}
        for question, config in configs.items():
            if reference is None or isinstance(config, str):
                found[question] = Effect(failed=str(config))
                continue
            try:
                trace = self.traces[config] if config in self.traces else self.run(config)
                found[question] = effect_of(reference, trace)
            except (Refusal, RuntimeError) as error:
                found[question] = Effect(failed=str(error))
            except Stopped:
                break
        return found

    def _watcher(self, config: RunConfig) -> Callable[[int, torch.Tensor, int], None] | None:
        if self._reference is None:
            return None
        a, rows = self._reference
        if config == a and a not in self.epsilons:
            self.epsilons[a] = 0.0
            return lambda step, row, token: rows.append(row)
        tokens = self.traces[a].token_ids
        common = True

        def see(step: int, row: torch.Tensor, token: int) -> None:
            nonlocal common
            if common and step < len(rows):
                here = epsilon(rows.read(step), row.cpu())
                self.epsilons[config] = max(self.epsilons.get(config, 0.0), here)
                common = token == tokens[step]

        return see


def _result(
    a: RunConfig,
    b: RunConfig,
    bench: _Bench,
    found: Search,
    configs: Mapping[str, RunConfig | str],
    asked: Mapping[str, Effect],
) -> Attribution:
    import polars as pl

    knobs = [
        {
            "knob": name,
            "a": _word(a, name),
            "b": _word(b, name),
            **_measured(effect, _mixed_or_none(a, b, name), a, bench),
        }
        for name, effect in found.single.items()
    ]
    questions = [
        {"question": name, "means": QUESTIONS[name], **_measured(effect, configs[name], a, bench)}
        for name, effect in asked.items()
    ]
    figures = {
        "first_drift": pl.Int32,
        "drift": pl.Float64,
        "split": pl.Int32,
        "verdict": pl.String,
        "inconclusive": pl.Boolean,
        "why": pl.String,
    }
    return Attribution(
        fields=found.fields,
        table=pl.DataFrame(knobs, schema={"knob": pl.String, "a": pl.String, "b": pl.String, **figures}),
        neighbours=pl.DataFrame(questions, schema={"question": pl.String, "means": pl.String, **figures}),
        minimal_flip=found.minimal_flip,
        minimal_drift=found.minimal_drift,
        steps=bench.steps,
        runs=bench.runs,
        repeatable=found.repeatable,
        stopped=found.stopped,
        notes=(*_notes(found, bench.steps), *_batch_notes(configs, asked, bench)),
    )


def _measured(effect: Effect, config: RunConfig | str | None, a: RunConfig, bench: _Bench) -> dict[str, Any]:
    row: dict[str, Any] = {"first_drift": effect.first_drift, "split": effect.split}
    if effect.failed is not None or not isinstance(config, RunConfig):
        return {**row, "why": effect.failed}
    row["drift"] = bench.epsilons.get(config, 0.0)
    if effect.split is not None:
        judged = compare_traces(bench.traces[a], bench.traces[config])
        return {**row, "verdict": judged.verdict.value, "inconclusive": judged.inconclusive, "why": judged.why}
    verdict = Verdict.IDENTICAL if effect.first_drift is None else Verdict.DRIFT_ONLY
    return {**row, "verdict": verdict.value, "inconclusive": False}


def _notes(found: Search, steps: int) -> list[str]:
    if not found.repeatable:
        sides = " and ".join(side.upper() for side, effect in found.repeats.items() if effect != Effect())
        return [f"{sides} run twice gave different bits: nothing can be blamed on a field before that is cured."]
    reach = f"within {steps} steps"
    if found.stopped:
        return [f"Stopped after {found.runs} more runs; what had been tried is in the table."]
    if not found.fields:
        return ["A and B are the same configuration."]
    notes = []
    if found.minimal_flip is not None:
        notes.append(
            f"{_set(found.minimal_flip)} {'is' if len(found.minimal_flip) == 1 else 'are'} enough to flip the token {reach}."
        )
    else:
        notes.append(f"No token differs {reach}.")
    if found.minimal_drift is not None:
        notes.append(
            f"{_set(found.minimal_drift)} {'is' if len(found.minimal_drift) == 1 else 'are'} enough for the logits to drift."
        )
    else:
        notes.append(f"The logits are equal in bits {reach}.")
    if len(found.fields) > 1 and found.minimal_drift is not None:
        notes.append("None of a set can be spared, but rounding is not monotone: other such sets may exist.")
    return notes


def _batch_notes(configs: Mapping[str, RunConfig | str], asked: Mapping[str, Effect], bench: _Bench) -> list[str]:
    """What the questions about the batch say when they are laid side by side."""
    traces = {
        name: bench.traces[config]
        for name, config in configs.items()
        if isinstance(config, RunConfig) and config in bench.traces and name in asked
    }
    pairs = (
        ("solo", "copies", "The size of the batch alone changes"),
        ("copies", "equal length", "The contents of the other rows, at equal length, change"),
        ("copies", "row", "The place of the row in the batch changes"),
        ("copies", "longer fillers", "Left pads, beside longer rows, change"),
    )
    notes = []
    for one, other, what in pairs:
        if one in traces and other in traces:
            first = effect_of(traces[one], traces[other]).first_drift
            notes.append(f"{what} {'nothing' if first is None else f'the logits from step {first} on'}.")
    return notes


def _mixed_or_none(a: RunConfig, b: RunConfig, name: str) -> RunConfig | None:
    try:
        return mixed(a, b, [name])
    except Refusal:
        return None


def _word(config: RunConfig, name: str) -> str:
    value = config.to_dict().get(name)
    return "as it is" if value is None else str(value)


def _set(names: Sequence[str]) -> str:
    return " and ".join(names)


def _line(name: str, row: Mapping[str, Any]) -> str:
    if row["verdict"] is None:
        return f"{name}: not run ({row['why']})"
    drift = (
        "no drift"
        if row["first_drift"] is None
        else f"drift from step {row['first_drift']} on, at most {row['drift']:.3g}"
    )
    split = "" if row["split"] is None else f", split at step {row['split']}"
    return f"{name}: {row['verdict']}; {drift}{split}"
