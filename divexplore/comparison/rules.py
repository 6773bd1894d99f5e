"""The rule of each verdict: does it hold for a pair of runs, why, and what to try next."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from divexplore.comparison.decode_paths import GREEDY, OF_CHOICE, decode_path
from divexplore.comparison.ladder import differing_knobs
from divexplore.comparison.record_limits import other_ends, unsupported
from divexplore.comparison.records import (
    constant_values,
    is_record,
    one_sided_infinity,
    other_processors,
    prompts_differ,
    uneven_ends,
)

if TYPE_CHECKING:
    import polars as pl

    from divexplore.comparison.comparison import Side, Split
    from divexplore.comparison.evidence import Evidence
    from divexplore.comparison.guards import Guard
    from divexplore.trace import Trace

__all__ = [
    "Case",
    "Finding",
    "drift_only",
    "exact_tie",
    "identical",
    "invalid",
    "measurement",
    "near_tie",
    "policy",
    "prompt_mismatch",
    "state_leak",
    "structural",
]

_KERNEL_RATIO = 4.0  # e_A / e_B of one dtype was at most 2.1 on benign pairs

_REMEDY = {
    "batch_size": "Keep the batch size fixed on both sides",
    "pads": "Keep the padding fixed on both sides",
    "left_pad": "Keep the padding fixed on both sides",
    "attn_implementation": "Use one attention implementation on both sides",
    "use_cache": "Use the cache on both sides or on neither",
    "prefill_chunk": "Prefill in chunks of one size on both sides",
    "num_threads": "Keep the number of threads fixed",
    "dtype": "Compute both sides in one dtype",
    "decode": "Let one rule choose the tokens of both sides",
}


@dataclass(frozen=True)
class Finding:
    """A rule that holds: one sentence why, one what to try, and whether a check is missing."""

    why: str
    next: str
    inconclusive: bool = False


@dataclass(frozen=True)
class Case:
    """What the rules look at: two traces, the common prefix, the split, the evidence, if there is any, and the guards."""

    a: Trace
    b: Trace
    steps: pl.DataFrame
    split: Split | None
    evidence: Evidence | None = None
    guards: tuple[Guard, ...] = ()

    @property
    def common(self) -> int:
        """Steps of the common prefix, the split included."""
        return self.steps.height

    @property
    def recorded(self) -> bool:
        """Whether a side is a serving engine's record."""
        return is_record(self.a, self.b)

    @cached_property
    def knobs(self) -> set[str]:
        """The effective settings that differ."""
        return differing_knobs(self.a, self.b)

    @cached_property
    def largest(self) -> float | None:
        """Largest epsilon measured, logits: of all forced steps where B was forced, else of the common prefix."""
        forced = self.evidence is not None and self.evidence.forced.height > 0
        table = self.evidence.forced if forced and self.evidence is not None else self.steps
        return max(table["epsilon"].drop_nulls().to_list(), default=None)

    @property
    def missing(self) -> str | None:
        """Why no rung of the ladder shows anything, or ``None`` where one does."""
        if self.recorded:
            return "a record holds no model to run in a higher precision"
        if self.evidence is None:
            return "the evidence of a higher precision is missing"
        return self.evidence.missing

    @property
    def precision_pair(self) -> bool:
        """Whether nothing but dtype differs of what moves logits."""
        return "dtype" in self.knobs and self.knobs - OF_CHOICE <= {"dtype", "float32_matmul_precision"}


def prompt_mismatch(case: Case) -> Finding | None:
    """The prompt ids differ: nothing else can be compared."""
    a, b = case.a.prompt_ids, case.b.prompt_ids
    if not prompts_differ(case.a, case.b):
        return None
    if not a or not b:
        return Finding("The texts of the prompts differ.", "Give both sides the same prompt, and record its ids.")
    at = next((index for index, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    twice = [
        f"; {side} begins with id {ids[0]} twice"
        for side, ids in (("A", a), ("B", b))
        if len(ids) > 1 and ids[0] == ids[1]
    ]
    return Finding(
        f"The prompts differ from position {at}: A has {len(a)} ids, B has {len(b)}{''.join(twice)}.",
        "Give both sides the same token ids; look at the chat template and at a beginning-of-sequence token added twice.",
    )


def measurement(case: Case) -> Finding | None:
    """Nothing was recorded that could support a claim: not one common step, or a record that lacks what the claim needs."""
    limit = unsupported(case.a, case.b, case.common, case.split)
    if limit is not None:
        return Finding(limit.why, limit.next, inconclusive=limit.open)
    if case.common > 0 or case.a.meta["invalid"] is not None or case.b.meta["invalid"] is not None:
        return None
    ended = [
        f"{side}: {t.meta['error'] or t.finish_reason}" for side, t in (("A", case.a), ("B", case.b)) if len(t) == 0
    ]
    stopped = not any(t.meta["error"] for t in (case.a, case.b))
    then = "Compare again, and let both sides take a step." if stopped else "Mend that, then compare again."
    return Finding(f"No step was compared ({'; '.join(ended)}).", then, inconclusive=True)


def invalid(case: Case) -> Finding | None:
    """NaN, an infinity on one side, or logprobs that are all the same."""
    for side, trace in (("A", case.a), ("B", case.b)):
        found = trace.meta["invalid"]
        if found is not None:
            return Finding(
                f"{side}'s {_values(trace)} at step {found['step']} hold {_not_finite(found)}{_of_all(trace)}; an argmax of them would "
                "pick a token silently.",
                "Look for an overflow: run the same side in bfloat16 or float32."
                if trace.effective["dtype"] == "float16"
                else "Look for NaN or infinity in the weights, and for a row of the mask that allows no key.",
            )
        flat = trace.top_logits
        same = len(trace) > 0 and flat.shape[1] > 1 and bool((flat == flat[:, :1]).all())
        if constant_values(trace) if trace.record is not None else same:
            return Finding(
                f"{side}'s {_values(trace)} are constant at all {len(trace)} steps: every token is as likely as any other.",
                "Look at the weights: a head of zeros gives such logits.",
            )
    for step, value in case.steps.select("step", "epsilon").drop_nulls().iter_rows():
        if not math.isfinite(value):
            return Finding(
                f"At step {step} a logit is infinite on one side only.",
                "Look for a mask or an overflow that only one side has.",
            )
    infinite = one_sided_infinity(case.a, case.b, case.common) if case.recorded else None
    if infinite is not None:
        step, side, token_id = infinite
        text = (case.a if side == "A" else case.b).meta["texts"].get(str(token_id))
        return Finding(
            f"At step {step} the log-probability of {text!r} is minus infinity on {side} only.",
            "Look for a mask, an overflow, or a filter before the values (top_k, top_p, a bias) that only one side has.",
        )
    return None


def state_leak(case: Case) -> Finding | None:
    """A, A, B, A: the last A differs although the first two agree."""
    if case.evidence is None or case.evidence.state_leak is None:
        return None
    return Finding(
        case.evidence.state_leak,
        "Load the model afresh for each run, and look for a buffer that a run changes, such as a rotary table.",
    )


def policy(case: Case) -> Finding | None:
    """At the split a chosen token is not the raw argmax, or the stop rules differ."""
    a, b = case.a, case.b
    if case.split is not None:
        step, below = case.split.step, _below_the_maximum(case, case.split)
        for name, trace, side in below:
            if step >= trace.meta["forced"]:
                return Finding(
                    f"{name} took {side.text!r} at step {step} although its raw logit {side.logit:.6g} is below the raw "
                    f"maximum {float(trace.top_logits[step, 0]):.6g}: {_chooser(trace)} chose.",
                    _policy_next(a, b),
                )
        for name, trace, side in below:
            return Finding(
                f"{name}'s token {side.text!r} at step {step} was given, not chosen: its raw logit {side.logit:.6g} is "
                f"below the raw maximum {float(trace.top_logits[step, 0]):.6g}.",
                "Read what follows as a branch that a person forced, not as a divergence.",
            )
        others = other_processors(a, b) if case.recorded else None
        if others is not None:
            return Finding(
                f"The runs part at step {step}, and what moves the scores before the choice differs: {others}. Whether the "
                "recorded values are from before it is not told, so it is not shown that it chose here.",
                "Ask both sides for the same penalties, biases and constraints, and compare again.",
                inconclusive=True,
            )
        return None
    ended = {a.finish_reason, b.finish_reason}
    asked = other_ends(a, b) if case.recorded else None
    uneven = case.recorded and len(a) != len(b) and (ended == {"length"} or asked is not None)
    if ended == {"eos", "length"} or uneven:
        rules = f"the stop rules differ{'' if asked is None else f' ({asked})'}"
        untold = case.recorded and asked is None and len(a) == len(b)  # nothing asked for tells them apart
        return Finding(
            f"The tokens agree over {case.common} steps, but A ended by {a.finish_reason} after {len(a)} and B by "
            f"{b.finish_reason} after {len(b)}: {'how they differ is not in the requests' if untold else rules}.",
            "Compare the end-of-sequence ids and the number of new tokens of both sides.",
            inconclusive=untold,
        )
    return None


def structural(case: Case) -> Finding | None:
    """A part of epsilon that does not vanish up the ladder, or what a probe found: a pad or a later token that matters."""
    evidence = case.evidence
    if evidence is None:
        return None
    failed = [guard for guard in case.guards if guard.ok is False and guard.outcome == "structural"]
    reason = "".join(f" The {guard.name} guard says: {guard.why}" for guard in failed)
    look = f"Look at the mask, positions, cache and weights of what differs ({', '.join(sorted(case.knobs)) or 'nothing named'})."
    landmark = evidence.landmark
    if evidence.structural is None:
        return None if landmark is None else Finding(landmark + reason, look)
    reason += "" if landmark is None else f" {landmark}"
    pair = evidence.ladder[0].epsilon_max
    share = "" if pair == 0 else f" ({min(1.0, evidence.structural / pair):.0%} of the pair's {pair:.3g})"
    flip = ""
    if evidence.flip_survives is not None:
        flip = "; the flip survives there" if evidence.flip_survives else "; the flip does not survive there"
    return Finding(
        f"{evidence.structural:.3g} logits{share} of the difference do not vanish in {_rung_name(evidence)}{flip}: this is no "
        f"rounding.{reason}",
        look,
    )


def exact_tie(case: Case) -> Finding | None:
    """Both chosen ids hold bit-equal top logits on both sides."""
    split = case.split
    if split is None or split.a.gap != 0 or split.b.gap != 0 or not (split.a.exact_tie and split.b.exact_tie):
        return None
    return Finding(
        f"At step {split.step} {split.a.text!r} and {split.b.text!r} hold bit-equal top logits on both sides: the tie rule "
        f"decided ({_taken('A', case.a, split)}, {_taken('B', case.b, split)}).",
        "Nothing is wrong with the numbers; let both sides take the lowest id among ties.",
    )


def _taken(side: str, trace: Trace, split: Split) -> str:
    """Which of the ids that tie a side took."""
    row = trace.top_logits[split.step]
    tied = trace.top_ids[split.step][row == row[0]]
    which = {int(tied.min()): "the lowest", int(tied.max()): "the highest"}
    return (
        f"{side} took {which.get(trace.token_ids[split.step], 'neither the lowest nor the highest')} of {len(tied)} ids"
    )


def near_tie(case: Case) -> Finding | None:
    """A flip whose epsilon vanishes up the ladder."""
    split, evidence = case.split, case.evidence
    if split is None or _below_the_maximum(case, split) or structural(case) is not None:
        return None
    part = f"The runs part at step {split.step}: {_lean('A', split.a, case.a)}, {_lean('B', split.b, case.b)}"
    if case.precision_pair and evidence is not None and evidence.weight_rounding is not None:
        return Finding(
            f"{part}. Precision is what differs: {case.a.effective['dtype']} against {case.b.effective['dtype']}, whose "
            f"weights, rounded, are {evidence.weight_rounding:.3g} logits apart in clean fp64.",
            f"{_remedy(case)}; the wider dtype is the better witness.",
        )
    if case.missing is not None:
        return Finding(
            f"{part}. Whether this is rounding or a bug is not shown: {case.missing}.",
            _missing_next(case),
            inconclusive=True,
        )
    assert evidence is not None
    top = evidence.ladder[-1]
    floor = evidence.floor_at(split.step)
    measured = f"epsilon {_number(split.epsilon)} there"
    if floor and split.epsilon is not None:
        measured += f" ({split.epsilon / floor:.2g} of the noise floor)"
    uneven = _uneven(case)
    return Finding(
        f"{part}; {measured} vanishes in {_rung_name(evidence)} ({_number(top.epsilon_at_split)}){uneven or ''}: rounding met a "
        "near-tie.",
        f"{_remedy(case)}, or compute in float32, where such ties are rarer.",
        inconclusive=uneven is not None,
    )


def drift_only(case: Case) -> Finding | None:
    """Logits differ, no token does."""
    if case.split is not None or not case.steps["differs"].any():
        return None
    first = case.steps.filter(case.steps["differs"])["step"][0]
    size = "" if case.largest is None else f", at most {_number(case.largest)} logits"
    uneven = None
    if case.precision_pair and case.evidence is not None and case.evidence.weight_rounding is not None:
        shown = f"; precision is what differs, weight rounding {case.evidence.weight_rounding:.3g}"
    elif case.evidence is not None and case.missing is None:
        uneven = _uneven(case)
        shown = f"; it vanishes in {_rung_name(case.evidence)} ({_number(case.evidence.ladder[-1].epsilon_max)})"
        shown += f"{_share_covered(case)}{uneven or ''}"
    else:
        shown = f"; {case.missing}" if case.missing else ""
    return Finding(
        f"No token differs over {_steps(case.common)}{_further(case)}, but the {_values(case.a)} do from step {first} on{size}{shown}.",
        "Try more steps, other prompts or a narrower dtype: the drift is there, it has not met a near-tie yet.",
        inconclusive=uneven is not None or (case.missing is not None and not case.precision_pair),
    )


def identical(case: Case) -> Finding | None:
    """Equal rows over all common steps."""
    if case.common == 0 or case.split is not None or case.steps["differs"].any():
        return None
    unknown = case.steps["differs"].null_count() > 0
    measure = "The tokens agree, but rows of different dtypes cannot be compared by hash," if unknown else "Equal rows"
    if case.recorded:
        values = "not every log-probability was recorded" if unknown else "equal recorded log-probabilities"
        measure = f"Equal tokens {'but' if unknown else 'and'} {values}"
    uneven = uneven_ends(case.a, case.b)
    over = _steps(case.common) + ("" if uneven is None else f", but {uneven}") + _further(case)
    return Finding(
        f"{measure} over {over}; no divergence in {_steps(case.common)} is not determinism.",
        "Try more steps, other prompts, or another pair.",
        inconclusive=unknown or uneven is not None,
    )


def _further(case: Case) -> str:
    """Which side was asked for more steps, which nothing is compared with."""
    a, b = len(case.a), len(case.b)
    if a == b or case.recorded or case.a.partial or case.b.partial:
        return ""
    longer = "A" if a > b else "B"
    return f" ({longer} has {abs(a - b)} more, which nothing is compared with)"


def _values(trace: Trace) -> str:
    return "logits" if trace.record is None else "log-probabilities"


def _not_finite(found: dict[str, int]) -> str:
    names = {"nan": "NaN", "positive_infinite": "+inf", "negative_infinite": "-inf"}
    return " and ".join(f"{found[key]} {name}" for key, name in names.items() if found.get(key)) or "no number"


def _of_all(trace: Trace) -> str:
    vocab = trace.meta["model"].get("vocab_size")
    return "" if vocab is None else f" among {vocab} values of {trace.effective['dtype']}"


def _below_the_maximum(case: Case, split: Split) -> list[tuple[str, Trace, Side]]:
    """The sides whose token at the split is not the best of its raw row: something else than the logits parted the runs."""
    sides = (("A", case.a, split.a), ("B", case.b, split.b))
    return [
        (name, trace, side)
        for name, trace, side in sides
        if side.logit is not None and side.logit < float(trace.top_logits[split.step, 0])
    ]


def _policy_next(a: Trace, b: Trace) -> str:
    if decode_path(a) == decode_path(b) != GREEDY:
        return "Both sides choose by this rule, so what else differs moved its scores: compare again with both sides greedy."
    return "Compare the generation settings of both sides, generation_config included."


def _chooser(trace: Trace) -> str:
    path = decode_path(trace)
    return "a penalty, a suppressed id or a sampler" if path == GREEDY else f"its decode path ({path})"


def _lean(name: str, side: Side, trace: Trace) -> str:
    if side.exact_tie:
        return f"{name} took {side.text!r} from an exact tie at {side.logit:.6g}"
    if side.margin_ulps is None:
        return f"{name} took {side.text!r}{'' if side.margin is None else f' with a margin of {side.margin:.4g} nats'}"
    return f"{name} took {side.text!r} with a margin of {side.margin:.4g} logits ({side.margin_ulps:.3g} ULP of {trace.dtype})"


def _rung_name(evidence: Evidence) -> str:
    return "clean fp64" if evidence.ladder[-1].dtype == "float64" else evidence.ladder[-1].dtype


def _remedy(case: Case) -> str:
    return next(
        (words for knob, words in _REMEDY.items() if knob in case.knobs), "Look at what differs between the two sides"
    )


def _missing_next(case: Case) -> str:
    if case.recorded:
        return "Run the same prompt on the same weights with dx.compare, or record both sides in float32."
    if case.evidence is None:
        return 'Compare again with evidence="default", which runs both sides in clean fp64.'
    return "Repeat the pair in a dtype that has a rung above it, or on a machine where clean fp64 fits."


def _uneven(case: Case) -> str | None:
    """One side rounds far worse than the other in one dtype: its kernel or its buffers are worse than its dtype."""
    floor = None if case.evidence is None else case.evidence.floor
    if floor is None or case.a.effective["dtype"] != case.b.effective["dtype"] or _routed(case):
        return None
    e_a, e_b = float(floor["e_a"].max() or 0.0), float(floor["e_b"].max() or 0.0)  # type: ignore[arg-type]
    if min(e_a, e_b) == 0 or max(e_a, e_b) <= _KERNEL_RATIO * min(e_a, e_b):
        return None
    worse = "A" if e_a > e_b else "B"
    return f", but {worse} rounds {max(e_a, e_b) / min(e_a, e_b):.1f} times worse than its dtype lets the other side"


def _share_covered(case: Case) -> str:
    """Over which steps the top rung looked, where it was not all of them."""
    floor = None if case.evidence is None else case.evidence.floor
    if floor is None or floor.height >= case.common:
        return ""
    return f" over the first {_steps(floor.height)}"


def _steps(count: int) -> str:
    return "1 step" if count == 1 else f"{count} steps"


def _routed(case: Case) -> bool:
    return case.evidence is not None and case.evidence.routed


def _number(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.3g}"
