"""The result of a comparison: two traces, what was measured between them, and the judgement."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from divexplore.errors import told_nearest

if TYPE_CHECKING:
    import polars as pl

    from divexplore.comparison.attribution import Attribution
    from divexplore.comparison.cause import Cause
    from divexplore.comparison.evidence import Evidence
    from divexplore.comparison.guards import Guard
    from divexplore.comparison.ladder import Pair
    from divexplore.comparison.layers import LayerDrift
    from divexplore.comparison.operations import OperationTrace
    from divexplore.comparison.verdict import Judgement, Verdict
    from divexplore.trace import Trace

__all__ = ["Comparison", "Side", "Split"]


@dataclass(frozen=True, kw_only=True)
class Side:
    """One side at the split. Logits are raw, in fp64 after an exact cast; log-probabilities where only those were recorded.

    `gap` is the logit of its chosen token minus that of the other side's token, or ``None`` where a record lacks the
    latter; `margin` is top-1 minus top-2, and is never larger than the gap where the chosen token is the raw argmax. What a
    record does not tell is ``None``.
    """

    token_id: int
    text: str
    logit: float | None
    probability: float | None
    margin: float | None
    margin_ulps: float | None
    gap: float | None
    exact_tie: bool | None


@dataclass(frozen=True, kw_only=True)
class Split:
    """The first step whose tokens differ.

    `epsilon` is max |Δlogit| over the vocabulary and `pair_swing` is gap_A + gap_B, at most ``2 * epsilon`` where both
    chosen ids are raw argmaxes; ``None`` where only records were compared, without full rows.
    """

    step: int
    epsilon: float | None
    pair_swing: float | None
    a: Side
    b: Side


@dataclass(frozen=True, eq=False)
class Comparison:
    """Two runs of one prompt, side by side.

    Parameters
    ----------
    a, b
        The two traces.
    steps
        What was measured on the common prefix, a row a step: ``step``, ``epsilon`` (logits, null where full rows were
        not at hand) and ``differs`` (whether the raw rows differ in value, null where nobody can know). The split is
        the last step of it, for later steps have other prefixes.
    columns
        The aligned streams, a row a column: ``a`` and ``b`` are steps, or null for a gap.
    judgement
        The verdict with its reasons.
    split
        The first step whose tokens differ, or ``None``.
    evidence
        What was measured beyond the two free runs, or ``None``.
    guards
        Checks that both runs did what was asked.
    pair
        The model and the two configurations while the comparison is live; ``None`` once it was saved and loaded.
    cause
        What was found out about the cause of the difference; ``None`` until somebody asks (`with_cause`).
    evidence_asked
        How much was asked of `divexplore.compare`: ``fast``, ``default`` or ``full``; ``None`` for recorded traces.
    """

    a: Trace
    b: Trace
    steps: pl.DataFrame
    columns: pl.DataFrame
    judgement: Judgement
    split: Split | None = None
    evidence: Evidence | None = None
    guards: tuple[Guard, ...] = ()
    pair: Pair | None = None
    cause: Cause | None = None
    evidence_asked: str | None = None

    @property
    def verdict(self) -> Verdict:
        """The first rule that holds."""
        return self.judgement.verdict

    @property
    def inconclusive(self) -> bool:
        """Whether a check that the verdict needs could not run."""
        return self.judgement.inconclusive

    @property
    def why(self) -> str:
        """One sentence with numbers."""
        return self.judgement.why

    @property
    def next(self) -> str:
        """One sentence: what to try."""
        return self.judgement.next

    @property
    def first_divergence(self) -> int | None:
        """First step whose tokens differ (the field's Div_Index)."""
        return None if self.split is None else self.split.step

    @property
    def first_drift(self) -> int | None:
        """First step of the common prefix whose raw rows differ in value."""
        drifted = self.steps.filter(self.steps["differs"])["step"]
        return int(drifted[0]) if len(drifted) else None

    @told_nearest
    def with_cause(
        self,
        *,
        attribution: Attribution | None = None,
        operations: OperationTrace | None = None,
        layers: LayerDrift | None = None,
    ) -> Comparison:
        """The same comparison with what was found out about its cause; parts that are left out stay as they are.

        Parameters
        ----------
        attribution, operations, layers
            What `divexplore.attribute`, `divexplore.trace_ops` and `divexplore.layer_drift` gave for the same pair.

        Raises
        ------
        Refusal
            On what was found out about another pair of configurations.
        """
        from divexplore.comparison.cause import with_cause

        return with_cause(self, attribution=attribution, operations=operations, layers=layers)

    @told_nearest
    def fork(
        self,
        side: str,
        step: int,
        token: int,
        max_new_tokens: int | None = None,
        *,
        progress: Callable[[int, int, str], None] | None = None,
        stop: Callable[[], bool] | None = None,
    ) -> Trace:
        """Take another token at one step and go on in that side's configuration.

        Parameters
        ----------
        side
            ``"a"`` or ``"b"``.
        step
            The step whose token is replaced; those before it are forced.
        token
            The id taken there.
        max_new_tokens
            Steps in all; ``None`` takes as many as were asked of that side. An end-of-sequence token ends it at once.
        progress, stop
            As `divexplore.run` takes them.

        Returns
        -------
        Trace
            A trace like others; `compare_traces` compares it with them.

        Raises
        ------
        Refusal
            On another side or step, or where the model is not at hand any more.
        """
        from divexplore.comparison.fork import fork

        return fork(self, side, step, token, max_new_tokens, progress=progress, stop=stop)

    def to_dict(self) -> dict[str, Any]:
        """The comparison as plain JSON values: what ``divexplore compare --json`` prints."""
        return _report().to_dict(self)

    def to_markdown(self) -> str:
        """The report as Markdown, to paste into an issue."""
        return _report().to_markdown(self)

    def __str__(self) -> str:
        return _report().to_text(self)

    def __repr__(self) -> str:
        return _report().one_line(self)

    @told_nearest
    def save(self, folder: str | Path) -> Path:
        """Write the comparison into a folder; it opens on another machine without the model."""
        from divexplore.comparison import storage

        return storage.save(self, folder)

    @classmethod
    def load(cls, folder: str | Path) -> Comparison:
        """Read what `save` wrote.

        Raises
        ------
        FileNotFoundError
            Where the folder holds no comparison.
        FormatError
            On files that are damaged, foreign or of a newer major version.
        """
        from divexplore.comparison import storage

        return storage.load(folder)

    @told_nearest
    def to_html(self, path: str | Path | None = None) -> str | Path:
        """The comparison as one page that needs neither a kernel nor a network.

        With a `path` it is written there, and the path is returned in place of half a megabyte of text.

        Raises
        ------
        Refusal
            Where `path` is a folder or its folder is not there.
        """
        return _view().to_html(self, path)

    def _ipython_display_(self) -> None:
        """A comparison displays as its view."""
        _view().display(self)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Any:
        """The same as one bundle, for callers that place it themselves."""
        return _view().mimebundle(self, include=include, exclude=exclude)


def _view() -> Any:
    return importlib.import_module("divexplore.view")  # by name: a comparison knows nothing of what shows it


def _report() -> ModuleType:
    from divexplore.comparison import report  # at its first use: a report reads a comparison, not the other way round

    return report
