"""What a difference means: the ten verdicts, and the judgement that carries one with its reasons."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from divexplore.comparison import rules
from divexplore.comparison.decode_paths import OF_CHOICE, differing_paths, unmet
from divexplore.comparison.records import sentences_of_records
from divexplore.comparison.rules import Case, Finding

if TYPE_CHECKING:
    import polars as pl

    from divexplore.comparison.comparison import Split
    from divexplore.comparison.evidence import Evidence
    from divexplore.comparison.guards import Guard
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


_RULES: tuple[tuple[Verdict, Callable[[Case], Finding | None]], ...] = (
    (Verdict.PROMPT_MISMATCH, rules.prompt_mismatch),
    (Verdict.MEASUREMENT, rules.measurement),
    (Verdict.INVALID, rules.invalid),
    (Verdict.STATE_LEAK, rules.state_leak),
    (Verdict.POLICY, rules.policy),
    (Verdict.STRUCTURAL, rules.structural),
    (Verdict.EXACT_TIE, rules.exact_tie),
    (Verdict.NEAR_TIE, rules.near_tie),
    (Verdict.DRIFT_ONLY, rules.drift_only),
    (Verdict.IDENTICAL, rules.identical),
)


_OF_TOKENS = (Verdict.POLICY, Verdict.EXACT_TIE, Verdict.NEAR_TIE, Verdict.DRIFT_ONLY, Verdict.IDENTICAL)
"""Verdicts on which token was taken; the others hold whatever chose it."""


def judge(
    a: Trace,
    b: Trace,
    steps: pl.DataFrame,
    split: Split | None,
    evidence: Evidence | None = None,
    guards: tuple[Guard, ...] = (),
) -> Judgement:
    """Try the rules in order; the first that holds is the verdict, the others that hold as well are listed in ``also``.

    A guard that failed makes the judgement inconclusive, names the cause of a structural difference, or is a rule itself.
    """
    case = Case(a, b, steps, split, evidence, guards)
    held: list[tuple[Verdict, Finding]] = []
    for verdict, rule in _RULES:
        finding = rule(case)
        if finding is not None:
            held.append((verdict, finding))
            if verdict in (Verdict.PROMPT_MISMATCH, Verdict.MEASUREMENT, Verdict.INVALID):
                break  # nothing else can be compared
    (verdict, finding), *others = held
    finding = _without_blame(case, verdict, finding)
    doubts = _doubts(case, [str(name) for name, _ in held])
    return Judgement(
        verdict=verdict,
        why=" ".join([finding.why, *([] if finding.inconclusive or not doubts else [f"Inconclusive: {doubts[0]}"])]),
        next=finding.next,
        inconclusive=finding.inconclusive or bool(doubts),
        also=tuple(name for name, _ in others),
        evidence=_sentences(case),
    )


def _doubts(case: Case, held: list[str]) -> list[str]:
    """Why no verdict on this case is certain, as sentences; a guard whose outcome is a verdict that holds is no doubt."""
    found = [f"the check {g.name} failed. {g.why}" for g in case.guards if g.ok is False and g.outcome not in held]
    if case.evidence is not None and case.evidence.unsteady is not None:
        found.insert(0, case.evidence.unsteady)
    if case.split is None and (case.a.partial or case.b.partial):
        found.insert(0, "a run ended early.")
    return found


def _without_blame(case: Case, verdict: Verdict, finding: Finding) -> Finding:
    """The finding of a pair that samples says so: no setting can be blamed for what a draw may have made."""
    reason = None if verdict not in _OF_TOKENS else unmet(case.a, case.b, case.knobs)
    if reason is None:
        return finding
    return replace(
        finding,
        why=f"{finding.why} {reason}",
        next="Compare both sides greedily (leave do_sample out), with one thing differing; only then blame it.",
    )


def _sentences(case: Case) -> tuple[str, ...]:
    """What was measured, a sentence each."""
    at = None if case.split is None else case.split.step
    found = [
        *sentences_of_records(case.a, case.b, case.steps, at),
        _shifted(case),
        *_partial(case),
        _paths(case),
        _dtype_as_well(case),
        _invariance(case),
        _flag(case),
        _left_out(case),
    ]
    found += [f"guard {guard.name} failed: {guard.why}" for guard in case.guards if guard.ok is False]
    found += _beyond_context(case)
    evidence = case.evidence
    if evidence is not None:
        if evidence.ladder:
            rungs = ", ".join(
                f"{rung.dtype} {rung.epsilon_max:.2g}{' (shows nothing here)' if rung.vacuous else ''}"
                for rung in evidence.ladder
            )
            found.append(f"precision ladder, largest epsilon in logits: {rungs}")
        referee = evidence.referee
        if referee is not None:
            opinion = "undecided, " if referee.undecided else ""
            found.append(f"referee: {opinion}{referee.text!r} by {referee.gap:.3g} logits")
        if evidence.cascade is not None:
            found.append(f"cascade: {evidence.cascade}")
        found += evidence.notes
    return tuple(sentence for sentence in found if sentence)


def _paths(case: Case) -> str | None:
    paths = differing_paths(case.a, case.b)
    return None if paths is None else f"the decode paths differ: {paths}"


def _dtype_as_well(case: Case) -> str | None:
    """A knob is not to blame for what another dtype may have done."""
    others = case.knobs - OF_CHOICE - {"dtype"}
    if "dtype" not in case.knobs or not others:
        return None
    return f"dtype differs as well: {', '.join(sorted(others))} alone is not to blame until it is tried alone"


def _invariance(case: Case) -> str | None:
    """What runs that repeat themselves and yet differ are: not random, but not invariant to what differs."""
    evidence = case.evidence
    knobs = sorted(case.knobs - OF_CHOICE)
    if evidence is None or not evidence.steady or not knobs or not case.steps["differs"].any():
        return None
    again = evidence.forced["epsilon"].head(case.common).to_list() == case.steps["epsilon"].to_list()
    if not again:  # B, forced on the tokens of the common prefix, is a second run of B
        return None
    to = "batch-invariant" if knobs == ["batch_size"] else f"invariant to {', '.join(knobs)}"
    return f"deterministic, but not {to}: each side repeats itself, and the sides differ"


def _flag(case: Case) -> str | None:
    """What torch's deterministic flag does not cover, where it was on and rows differ all the same."""
    sides = [name for name, t in (("A", case.a), ("B", case.b)) if t.effective.get("deterministic")]
    if not sides or not case.steps["differs"].any():
        return None
    return (
        f"the deterministic flag was on ({' and '.join(sides)}): it makes a run repeat itself, and covers neither another "
        "batch size nor other threads"
    )


def _left_out(case: Case) -> str | None:
    """What a model's own generation settings ask for and a run did not do, for `generate` does it unasked."""
    settings = case.a.meta["model"].get("generation_config") or {}
    given = case.a.requested.keys() | case.b.requested.keys()
    named = ", ".join(f"{name} {value}" for name, value in settings.items() if name not in given)
    if not named:
        return None
    return f"the model's generation_config has {named}: generate() applies it, a run here only where it is asked to"


def _beyond_context(case: Case) -> list[str]:
    """Rotary positions go on without an error where the context of a model ends."""
    found = {}
    for side, trace in (("A", case.a), ("B", case.b)):
        limit = trace.meta["model"].get("context_length")
        if limit and len(trace.prompt_ids) + len(trace) > limit:
            found[side] = limit - len(trace.prompt_ids), limit
    return [
        f"{' and '.join(side for side in found if found[side] == place)}: steps from {place[0]} on lie beyond the model's "
        f"context of {place[1]} tokens"
        for place in dict.fromkeys(found.values())
    ]


def _partial(case: Case) -> list[str]:
    return [
        f"{side} ended early at step {len(trace)}: {trace.meta['error'] or 'stopped'}"
        for side, trace in (("A", case.a), ("B", case.b))
        if trace.partial
    ]


def _shifted(case: Case, length: int = 8) -> str | None:
    """Streams that are the same but for one step: a token counted twice, or dropped, on one side."""
    if case.split is None:
        return None
    step, a, b = case.split.step, case.a.token_ids, case.b.token_ids
    for name, early, late in (("A", a, b), ("B", b, a)):
        tail = early[step + 1 :][: len(late) - step]
        if len(tail) >= length and tail == late[step : step + len(tail)]:
            other = "B" if name == "A" else "A"
            return f"{other}'s stream is {name}'s shifted by one: {name} has one token more, at step {step}"
    return None
