"""What a difference means: the ten verdicts, and the judgement that carries one with its reasons."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import polars as pl

    from divexplore.comparison.comparison import Side, Split
    from divexplore.trace import Trace

__all__ = ["Judgement", "Verdict", "judge"]


class Verdict(StrEnum):
    """What a comparison found; in the order in which the rules are tried."""

    PROMPT_MISMATCH = "prompt_mismatch"
    MEASUREMENT = "measurement"
    INVALID = "invalid"
    STATE_LEAK = "state_leak"
    POLICY = "policy"
    STRUCTURAL = "structural"
    EXACT_TIE = "exact_tie"
    NEAR_TIE = "near_tie"
    DRIFT_ONLY = "drift_only"
    IDENTICAL = "identical"


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """A verdict with its reasons.

    Parameters
    ----------
    verdict
        The first rule that holds.
    inconclusive
        Whether a check that the verdict needs could not run.
    also
        Other rules that hold as well.
    why
        One sentence with numbers.
    next
        One sentence: what to try.
    evidence
        Sentences with numbers, one for each thing that was measured.
    """

    verdict: Verdict
    why: str
    next: str
    inconclusive: bool = False
    also: tuple[Verdict, ...] = ()
    evidence: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Case:
    """What the rules look at."""

    a: Trace
    b: Trace
    steps: pl.DataFrame
    split: Split | None

    @property
    def common(self) -> int:
        return self.steps.height

    @property
    def largest(self) -> float:
        """Largest epsilon of the common prefix, logits; 0 where none was measured."""
        return max(self.steps["epsilon"].drop_nulls().to_list(), default=0.0)


@dataclass(frozen=True)
class _Finding:
    why: str
    next: str
    inconclusive: bool = False


def judge(a: Trace, b: Trace, steps: pl.DataFrame, split: Split | None) -> Judgement:
    """Try the rules in order; the first that holds is the verdict, the others that hold as well are listed in ``also``."""
    case = _Case(a, b, steps, split)
    held: list[tuple[Verdict, _Finding]] = []
    for verdict, rule in _RULES:
        finding = rule(case)
        if finding is not None:
            held.append((verdict, finding))
            if verdict is Verdict.PROMPT_MISMATCH:
                break  # nothing else can be compared
    verdict, finding = held[0]
    return Judgement(
        verdict=verdict,
        why=finding.why,
        next=finding.next,
        inconclusive=finding.inconclusive or _cut_short(case),
        also=tuple(name for name, _ in held[1:]),
    )


def _prompt_mismatch(case: _Case) -> _Finding | None:
    a, b = case.a.prompt_ids, case.b.prompt_ids
    if a == b:
        return None
    at = next((index for index, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    twice = next((side for side, ids in (("A", a), ("B", b)) if len(ids) > 1 and ids[0] == ids[1]), None)
    doubled = "" if twice is None else f"; {twice} begins with id {(a if twice == 'A' else b)[0]} twice"
    return _Finding(
        f"The prompts differ from position {at}: A has {len(a)} ids, B has {len(b)}{doubled}.",
        "Give both sides the same token ids; look at the chat template and at a beginning-of-sequence token added twice.",
    )


def _invalid(case: _Case) -> _Finding | None:
    for side, trace in (("A", case.a), ("B", case.b)):
        found = trace.meta["invalid"]
        if found is not None:
            return _Finding(
                f"{side}'s logits at step {found['step']} hold {found['nan']} NaN and {found['positive_infinite']} infinite values "
                f"of {trace.meta['model']['vocab_size']} ({trace.effective['dtype']}); an argmax of them would pick a token silently.",
                "Look for an overflow: run the same side in bfloat16 or float32.",
            )
    for step, value in case.steps.select("step", "epsilon").drop_nulls().iter_rows():
        if not math.isfinite(value):
            return _Finding(
                f"At step {step} a logit is infinite on one side only.",
                "Look for a mask or an overflow that only one side has.",
            )
    return None


def _policy(case: _Case) -> _Finding | None:
    split = case.split
    if split is not None:
        for side, trace, at in (("A", case.a, split.a), ("B", case.b, split.b)):
            highest = float(trace.top_logits[split.step, 0])
            if at.logit < highest:
                return _Finding(
                    f"{side} took {at.text!r} at step {split.step} although its raw logit {at.logit:.6g} is below the raw maximum "
                    f"{highest:.6g}: a penalty, a suppressed id or a sampler chose.",
                    "Compare the generation settings of both sides, generation_config included.",
                )
    a, b = case.a, case.b
    if split is None and a.finish_reason != b.finish_reason and not (a.partial or b.partial) and not _any_invalid(case):
        return _Finding(
            f"The tokens agree over {case.common} steps, but A ended by {a.finish_reason} and B by {b.finish_reason}.",
            "Compare the stop rules: end-of-sequence ids and the number of new tokens.",
        )
    return None


def _exact_tie(case: _Case) -> _Finding | None:
    split = case.split
    if split is None or split.a.gap != 0 or split.b.gap != 0 or _policy(case) is not None:
        return None
    return _Finding(
        f"At step {split.step} {split.a.text!r} and {split.b.text!r} hold bit-equal top logits on both sides: the tie rule decided.",
        "Nothing is wrong with the numbers; fix the tie rule (lowest id) on both sides.",
    )


def _near_tie(case: _Case) -> _Finding | None:
    split = case.split
    if split is None:
        return None
    return _Finding(
        f"The runs part at step {split.step}: {_lean('A', split.a, case.a)}, {_lean('B', split.b, case.b)}. "
        "Whether this is rounding or a bug is not shown yet: the evidence of a higher precision is missing.",
        "Repeat the pair in float32: rounding shrinks there, a mask, position, cache or weight difference does not.",
        inconclusive=True,
    )


def _drift_only(case: _Case) -> _Finding | None:
    if case.split is not None or not case.steps["differs"].any():
        return None
    first = case.steps.filter(case.steps["differs"])["step"][0]
    size = f", at most {case.largest:.3g} logits" if case.largest else ""
    return _Finding(
        f"No token differs over {case.common} steps, but the logits do from step {first} on{size}.",
        "Try more steps, other prompts or a narrower dtype: the drift is there, a near-tie has not met it yet.",
    )


def _identical(case: _Case) -> _Finding | None:
    if case.split is not None or case.steps["differs"].any():
        return None
    unknown = case.steps["differs"].null_count()
    measure = "the tokens agree, but no row could be compared," if unknown else "equal row hashes"
    return _Finding(
        f"{measure[0].upper()}{measure[1:]} over {case.common} steps; no divergence in {case.common} steps is not determinism.",
        "Try more steps, other prompts, or another pair.",
        inconclusive=bool(unknown) or case.common == 0,
    )


_RULES: tuple[tuple[Verdict, Callable[[_Case], _Finding | None]], ...] = (
    (Verdict.PROMPT_MISMATCH, _prompt_mismatch),
    (Verdict.INVALID, _invalid),
    (Verdict.POLICY, _policy),
    (Verdict.EXACT_TIE, _exact_tie),
    (Verdict.NEAR_TIE, _near_tie),
    (Verdict.DRIFT_ONLY, _drift_only),
    (Verdict.IDENTICAL, _identical),
)


def _lean(name: str, side: Side, trace: Trace) -> str:
    if side.exact_tie:
        return f"{name} took {side.text!r} from an exact tie at {side.logit:.6g}"
    return f"{name} took {side.text!r} with a margin of {side.margin:.4g} logits ({side.margin_ulps:.3g} ULP of {trace.dtype})"


def _any_invalid(case: _Case) -> bool:
    return case.a.meta["invalid"] is not None or case.b.meta["invalid"] is not None


def _cut_short(case: _Case) -> bool:
    return case.split is None and (case.a.partial or case.b.partial)
