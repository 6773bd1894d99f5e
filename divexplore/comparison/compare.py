"""Compare two configurations on one prompt, or two traces that were recorded before."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from divexplore.comparison.align import align, first_divergence
from divexplore.comparison.comparison import Comparison, Split
from divexplore.comparison.drift import epsilon
from divexplore.comparison.extras import add_extras
from divexplore.comparison.gather import gather
from divexplore.comparison.guards import guards, observe
from divexplore.comparison.ladder import Pair
from divexplore.comparison.margins import logit_of, split_of
from divexplore.comparison.records import changes, is_record, prompts_differ, same_ids
from divexplore.comparison.verdict import judge
from divexplore.config import PRESETS, RunConfig
from divexplore.engine.fresh_process import kept_processes
from divexplore.engine.interrupt import interruptible
from divexplore.engine.isolated import needs_isolation, run_isolated
from divexplore.engine.rowfile import RowFile
from divexplore.engine.run import OnRow, decode
from divexplore.errors import Refusal, nearest
from divexplore.models.request import opened
from divexplore.trace import Trace

if TYPE_CHECKING:
    import polars as pl
    from transformers import PreTrainedModel

    from divexplore.comparison.evidence import Evidence
    from divexplore.models.model import Model, Prompt

__all__ = ["compare", "compare_traces"]

EVIDENCE = ("fast", "default", "full")
"""How much is measured beyond what a comparison cannot do without."""

Progress = Callable[[str, int, int, str], None]
"""Called with the run's name (``A``, ``B``, …), the steps done, the steps asked for and the last characters of the text."""


def compare(
    model: Model | PreTrainedModel | str = "fairy-tales",
    prompt: str | Sequence[int] = "",
    a: RunConfig | Mapping[str, Any] | None = None,
    b: RunConfig | Mapping[str, Any] | None = None,
    max_new_tokens: int = 128,
    *,
    chat: bool | None = None,
    evidence: str = "default",
    progress: Progress | None = None,
    stop: Callable[[], bool] | None = None,
) -> Comparison:
    """Run one prompt under two configurations and compare them step by step, over the whole vocabulary.

    Parameters
    ----------
    model
        A loaded `Model`, a transformers model, or what `load_model` takes.
    prompt
        A text, or token ids that are taken as they are.
    a, b
        The two configurations; both left out, the pair of the preset ``batch``: 1 against 8 rows in bf16.
    max_new_tokens
        Steps at most, of each side.
    chat
        Whether the chat template wraps a text; ``None`` uses it where the tokenizer has one.
    evidence
        ``fast``: the two free runs only, so that a flip stays inconclusive. ``default``: also B forced on A's tokens
        and both sides in clean fp64, to the split and some steps beyond, or to where the drift jumps later. ``full``:
        that for all steps, also in fp32, A forced on B's tokens, A-A-B-A, the causal probe and both sides without
        recording; `divexplore.comparison.prices` holds what each costs.
    progress, stop
        As `divexplore.run` takes them, `progress` with the name of the run in front. A stopped comparison keeps what
        was recorded, and so does one that is interrupted once.

    Raises
    ------
    Refusal
        On a request that cannot be served.
    """
    if evidence not in EVIDENCE:
        raise Refusal(f"evidence={evidence!r}", ", ".join(EVIDENCE), f"Choose one.{nearest(str(evidence), EVIDENCE)}")
    if a is None and b is None:
        a, b = PRESETS["batch"].a, PRESETS["batch"].b
    config_a, config_b = RunConfig.of(a), RunConfig.of(b)
    model, encoded = opened(model, prompt, chat=chat, max_new_tokens=max_new_tokens)
    with kept_processes(), interruptible(stop) as stopping:
        found = _compared(model, encoded, config_a, config_b, max_new_tokens, evidence, progress, stopping)
    stopping.tell()
    return found


def _compared(
    model: Model,
    encoded: Prompt,
    config_a: RunConfig,
    config_b: RunConfig,
    max_new_tokens: int,
    evidence: str,
    progress: Progress | None,
    stop: Callable[[], bool],
) -> Comparison:
    """The comparison of a request that can be served."""
    where = run_isolated if needs_isolation(config_a, config_b) else decode

    def watch(name: str) -> dict[str, Any]:
        return {"progress": _named(name, progress), "stop": stop}

    def free(name: str, config: RunConfig, on_row: OnRow | None = None) -> Trace:
        return where(model, encoded, config, max_new_tokens, on_row=on_row, **watch(name))

    with RowFile() as rows:
        trace_a = free("A", config_a, lambda step, row, token: rows.append(row))
        again = [free("A again", config_a)] if evidence == "full" else []
        common = _CommonPrefix(trace_a, rows)
        trace_b = free("B", config_b, common.see)
        again += [free("A after B", config_a)] if evidence == "full" else []
        split = common.split(trace_b)
        if trace_a.meta["error"] and trace_b.meta["error"] and not len(trace_a) + len(trace_b):
            raise Refusal(
                f"two sides that ended before their first step: {trace_a.meta['error']}",
                "a pair that this model and this machine can run",
                "Try one side with dx.run first.",
            )
        columns = align(trace_a.token_ids, trace_b.token_ids)
        pair = Pair(model, encoded, config_a, config_b, trace_a, trace_b)
        gathered = None
        if evidence != "fast" and not stop():
            at = None if split is None else split.step
            gathered = gather(pair, rows, columns, at, everything=evidence == "full", watch=watch)
    if gathered is not None and again and not stop():
        gathered = add_extras(gathered, pair, again[0], again[1], watch)
    observed = None
    leaking = gathered is not None and gathered.state_leak is not None  # then a repeat of A is another run by itself
    if evidence == "full" and not pair.isolated and not leaking and not stop():
        sides = ((config_a, trace_a), (config_b, trace_b))
        observed = [observe(model, encoded, config, trace, stop=stop) for config, trace in sides]
        observed = None if stop() else observed
    steps = _steps_table(common.epsilons, [value != 0 for value in common.epsilons])
    return _assemble(trace_a, trace_b, steps, columns, split, gathered, pair, observed, evidence)


def compare_traces(a: Trace, b: Trace) -> Comparison:
    """Compare two traces that were recorded before, without the model.

    Full rows are gone, so epsilon is not known; whether rows differ is known where both were computed in one dtype, by
    their hashes. Where a side is a serving engine's record, the recorded log-probabilities tell it, and ``steps`` has
    two more columns: ``delta_logprob``, |Δlogprob| of the token taken, and ``delta_listed``, the largest over the ids that
    both sides list. Different prompts end the comparison at once.
    """
    for side in (a, b):
        if not isinstance(side, Trace):
            raise Refusal(
                f"a {type(side).__name__} in place of a trace",
                "two traces",
                "Pass what dx.run or dx.Trace.load gave; a comparison has its two as .a and .b.",
            )
    if is_record(a, b):
        a, b = same_ids(a, b)
    columns = align(a.token_ids, b.token_ids)
    if prompts_differ(a, b):
        return _assemble(a, b, _steps_table([], []), columns, None)
    step = first_divergence(a.token_ids, b.token_ids)
    common = min(len(a), len(b)) if step is None else step + 1
    split = None
    if step is not None:
        logits = logit_of(a, step, b.token_ids[step]), logit_of(b, step, a.token_ids[step])
        split = split_of(a, b, step, None, logits)
    if is_record(a, b):
        steps = changes(a, b, common)
    else:
        hashes = zip(a.table["row_hash"], b.table["row_hash"], strict=False)
        steps = _steps_table([None] * common, [x != y if a.dtype == b.dtype else None for x, y in hashes][:common])
    return _assemble(a, b, steps, columns, split)


class _CommonPrefix:
    """B's rows against A's for as long as both streams have the same prefix."""

    def __init__(self, a: Trace, rows: RowFile) -> None:
        self._a, self._tokens, self._rows = a, a.token_ids, rows
        self._live = True
        self._crossed: tuple[float, float] | None = None
        self.epsilons: list[float] = []

    def see(self, step: int, row: torch.Tensor, token: int) -> None:
        if not self._live or step >= len(self._tokens):
            return
        row = row.cpu()
        row_a = self._rows.read(step)
        self.epsilons.append(epsilon(row_a, row))
        if token != self._tokens[step]:
            self._live = False
            self._crossed = float(row_a[token]), float(row[self._tokens[step]])

    def split(self, b: Trace) -> Split | None:
        if self._crossed is None:
            return None
        return split_of(self._a, b, len(self.epsilons) - 1, self.epsilons[-1], self._crossed)


def _named(name: str, progress: Progress | None) -> Callable[[int, int, str], None] | None:
    return None if progress is None else lambda done, total, text: progress(name, done, total, text)


def _steps_table(epsilons: Sequence[float | None], differs: Sequence[bool | None]) -> pl.DataFrame:
    import polars as pl

    columns = {"step": range(len(epsilons)), "epsilon": epsilons, "differs": differs}
    return pl.DataFrame(columns, schema={"step": pl.Int32, "epsilon": pl.Float64, "differs": pl.Boolean})


def _assemble(
    a: Trace,
    b: Trace,
    steps: pl.DataFrame,
    columns: pl.DataFrame,
    split: Split | None,
    evidence: Evidence | None = None,
    pair: Pair | None = None,
    observed: list[str | None] | None = None,
    asked: str | None = None,
) -> Comparison:
    checks = guards(a, b, steps["epsilon"].to_list(), observed)
    return Comparison(
        a=a,
        b=b,
        steps=steps,
        columns=columns,
        judgement=judge(a, b, steps, split, evidence, checks),
        split=split,
        evidence=evidence,
        guards=checks,
        pair=pair,
        evidence_asked=asked,
    )
