"""What a difference means: the ten verdicts, and the judgement that carries one with its reasons."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["Judgement", "Verdict"]


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
