"""What can a record not support? The reasons for the verdict `measurement`, each with what to do about it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

from divexplore.comparison.records import (
    greedy_by_request,
    is_record,
    only_the_end,
    other_processors,
    pieces_of,
    shorter_first,
    values_at,
)

if TYPE_CHECKING:
    from divexplore.comparison.comparison import Split
    from divexplore.trace import Trace

__all__ = ["Limit", "joins", "other_ends", "temperature_ratio", "unsupported"]

_OF_STREAMING = {"stream", "stream_options"}
_OF_MEASURING = _OF_STREAMING | {
    "decoder_input_details",
    "details",
    "logprobs",
    "n_probs",
    "return_token_ids",
    "return_tokens",
    "top_logprobs",
    "top_n_tokens",
}
_SHOWN = 40  # characters of what a side's tokens hold beside its text
_SCATTER = 0.02  # of the gaps: a batch moves them by less, another model by far more
_NEAR_ONE = 0.05  # two dtypes of one model stay within a hundredth
_ENOUGH = 8  # gaps, over at least two steps


@dataclass(frozen=True)
class Limit:
    """What a record does not support: one sentence why, one what to do, and whether it is open what the runs did."""

    why: str
    next: str
    open: bool = True


def unsupported(a: Trace, b: Trace, common: int, split: Split | None) -> Limit | None:
    """The first reason why the records do not support a claim about this pair, or ``None``.

    Parameters
    ----------
    common
        Steps of the common prefix, the split included.
    split
        The first step whose tokens differ.
    """
    if not is_record(a, b):
        return None
    sides = (("A", a), ("B", b))
    bare = [name for name, trace in sides if trace.record is not None and len(trace) == 0]
    if bare:
        return _text_only(a, b, bare)
    after = [name for name, t in sides if t.record is not None and t.record["values"] == "post-sampling logprobs"]
    if after:
        return Limit(
            f"{' and '.join(after)} recorded probabilities after temperature and the sampler's filters, not the model's.",
            "Record log-probabilities from before sampling (llama.cpp: leave post_sampling_probs out).",
        )
    found = _temperature(a, b, common) or _identity(a, b, common) or _recut(a, b, split)
    if found is not None:
        return found
    if split is not None:
        return _gap(a, b, split) if other_processors(a, b) is None else None
    return _uneven_end(a, b, common) or _no_values(a, b, common)


def temperature_ratio(a: Trace, b: Trace, steps: int) -> float | None:
    """B's gaps between log-probabilities over A's where that is one number at all steps, else ``None``.

    Dividing logits by a temperature T scales each gap by 1/T and leaves their order alone; rounding, a batch or another
    dtype moves gaps by amounts, not by a factor.
    """
    pairs: list[tuple[float, float]] = []
    used = 0
    for step in range(steps):
        of_a, of_b = values_at(a, step), values_at(b, step)
        shared = sorted(
            (i for i in of_a.keys() & of_b.keys() if math.isfinite(of_a[i] + of_b[i])), key=lambda i: -of_a[i]
        )
        gaps = [(of_a[shared[0]] - of_a[i], of_b[shared[0]] - of_b[i]) for i in shared[1:]]
        used += bool(gaps)
        pairs += gaps
    # quotients of small gaps are mostly rounding: the larger half of them tells the factor, all of them test it
    large = sorted(pairs, key=lambda pair: abs(pair[0]))[len(pairs) // 2 :]
    quotients = [y / x for x, y in large if x != 0]
    if len(pairs) < _ENOUGH or used < 2 or not quotients:
        return None
    ratio = median(quotients)
    scale = math.fsum(y * y for _, y in pairs)
    residual = math.fsum((y - ratio * x) ** 2 for x, y in pairs)
    constant = scale > 0 and math.sqrt(residual / scale) <= _SCATTER
    return ratio if constant and ratio > 0 and abs(math.log(ratio)) > _NEAR_ONE else None


def joins(a: Trace, b: Trace, step: int) -> str | None:
    """How the same bytes are cut otherwise from a step on, such as ``'he'+'llo' = 'hello'``; ``None`` where they are others."""
    of_a, of_b = _pieces(a, step), _pieces(b, step)
    if of_a is None or of_b is None:
        return None
    whole_a, whole_b = b"".join(of_a), b"".join(of_b)
    if not whole_a or not whole_b or not (whole_a.startswith(whole_b) or whole_b.startswith(whole_a)):
        return None
    taken: tuple[list[bytes], list[bytes]] = ([of_a[0]], [of_b[0]])
    rest = iter(of_a[1:]), iter(of_b[1:])
    while (lengths := [len(b"".join(side)) for side in taken])[0] != lengths[1]:
        shorter = 0 if lengths[0] < lengths[1] else 1
        piece = next(rest[shorter], None)
        if piece is None:
            return None  # the streams end before they meet
        taken[shorter].append(piece)
    return " = ".join("+".join(repr(piece.decode(errors="replace")) for piece in side) for side in taken)


def _text_only(a: Trace, b: Trace, bare: list[str]) -> Limit:
    sides = {"A": a, "B": b}
    texts = _told(a), _told(b)
    beside = [words for name, trace in sides.items() if (words := _beside(name, trace))]
    held = "; ".join([f"{' and '.join(bare)} {'hold' if len(bare) > 1 else 'holds'} a text without tokens", *beside])
    again = "Record ids or log-probabilities on both sides; a text is never tokenised again, since another cut gives other ids."
    if texts[0] == texts[1]:
        return Limit(f"{held}: no step can be compared. The texts are the same over {len(texts[0])} characters.", again)
    at = next((i for i, (x, y) in enumerate(zip(*texts, strict=False)) if x != y), min(map(len, texts)))
    words = f"the texts part at character {at}: A {texts[0][at : at + 20]!r}, B {texts[1][at : at + 20]!r}"
    early = [name for name, trace in sides.items() if trace.partial]
    if early:
        words += f", but {' and '.join(early)} ended early"
    measured = a if bare == ["B"] else b
    if len(bare) == 2 or early or not _same_but_for_measuring(measured, sides[bare[0]]):
        return Limit(f"{held}: no step can be compared; {words}.", again)
    sure = all(greedy_by_request(trace) is True for trace in (a, b))
    doubt = "" if sure else " Whether both were greedy is not known, so a sampler may have done it too."
    third = f"Keep {bare[0]}'s text as a third stream beside two records with log-probabilities: it is what users see."
    return Limit(
        f"The measurement changes the run: the same request with log-probabilities and without gave other texts; {words}."
        f"{doubt}",
        f"{third} Repeat both requests first, to see that each repeats itself.",
        not sure,
    )


def _told(trace: Trace) -> str:
    """What the engine reports as the text: its tokens may hold special ones, thinking and a leading space beside it."""
    return trace.text if trace.record is None or trace.record["text"] is None else str(trace.record["text"])


def _beside(name: str, trace: Trace) -> str | None:
    """What a side's tokens hold that its text leaves out, in words."""
    told, joined = _told(trace), trace.text
    if trace.record is None or not told or joined == told or told not in joined:
        return None
    before, _, after = joined.partition(told)
    left = " and ".join(
        repr(piece if len(piece) <= _SHOWN else piece[:_SHOWN] + "…") for piece in (before, after) if piece
    )
    return f"{name}'s tokens hold {left} beside its text (a special token, thinking, a stop word or a space)"


def _same_but_for_measuring(measured: Trace, bare: Trace) -> bool:
    """Whether one request asked for log-probabilities where the other did not, and for nothing else besides."""
    requests = [(trace.record or {}).get("request") for trace in (measured, bare)]
    if None in requests:
        return False
    (asked, one), (unasked, other) = (_measuring_apart(request or {}) for request in requests)
    return one == other and asked != unasked


def _measuring_apart(request: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a request asks to be told, and the rest of it."""
    asked: dict[str, Any] = {}
    rest: dict[str, Any] = {}
    for name, value in request.items():
        if isinstance(value, Mapping):
            asked[name], rest[name] = _measuring_apart(value)
        elif name not in _OF_MEASURING:
            rest[name] = value
        elif name not in _OF_STREAMING and value is not None and value is not False:
            asked[name] = value
    return asked, rest


def _uneven_end(a: Trace, b: Trace, common: int) -> Limit | None:
    """One stream ends by itself where the other goes on: a divergence whose token has no row on the side that ended."""
    ends = shorter_first(a, b)
    if ends is None:
        return None
    (name, short), (other, long) = ends
    if short.record is None or only_the_end(short, long):
        return None
    next_token = long.texts[common]
    if short.finish_reason == "eos" and not short.partial and other_ends(a, b) is None:
        return Limit(
            f"The tokens agree over {common} steps, then {name} ended where {other} went on with {next_token!r}: the "
            "end-of-sequence token has no row in the record, so how near the two were is not recorded.",
            "Repeat both sides with the end-of-sequence token ignored (ignore_eos), or in an engine that gives the end a row.",
        )
    limits = [(trace.record or {}).get("limit") for trace in (short, long)]
    if short.finish_reason == long.finish_reason == "length" and limits[0] is not None and limits[0] == limits[1]:
        return Limit(
            f"Both sides ended by length under one limit of {limits[0]} tokens, but {name} holds {len(short)} rows and {other} "
            f"{len(long)}: {name}'s record lacks some.",
            "Record it again; without streaming no row is lost between two chunks.",
        )
    return None


def other_ends(a: Trace, b: Trace) -> str | None:
    """How the rules that end a stream differ as they were asked for, in words; ``None`` where they do not, or nobody knows.

    A limit that the shorter side did not reach ended nothing.
    """
    records = [trace.record or {} for trace in (a, b)]
    stops = [record.get("stops") for record in records]
    if None in stops:
        return None
    limits = [record.get("limit") for record in records]
    least = min(len(a), len(b))
    cut = any(limit is not None and least >= limit for limit, t in zip(limits, (a, b), strict=True) if len(t) == least)
    reached = limits[0] != limits[1] and cut
    if stops[0] == stops[1] and not reached:
        return None
    told = []
    for name, stop, limit in zip("AB", stops, limits, strict=True):
        words = [*(stop or ()), *([] if limit is None or not reached else [f"at most {limit} tokens"])]
        told.append(f"{name} {', '.join(words) or 'none asked for'}")
    return "; ".join(told)


def _temperature(a: Trace, b: Trace, common: int) -> Limit | None:
    ratio = temperature_ratio(a, b, common)
    if ratio is None:
        return None
    scaled, raw, factor = ("B", "A", ratio) if ratio > 1 else ("A", "B", 1 / ratio)
    return Limit(
        f"The same logits at another temperature: {scaled}'s gaps between log-probabilities are {factor:.4g} times {raw}'s at "
        f"all {common} steps (T about {1 / factor:.3g} if {raw}'s are raw).",
        "Record both sides before temperature (vLLM: --logprobs-mode raw_logprobs), or both after the same one.",
        False,
    )


def _identity(a: Trace, b: Trace, common: int) -> Limit | None:
    for name, trace in (("A", a), ("B", b)):
        record = trace.record
        if record is None:
            continue
        lost = [step for step in record["unidentified"] if step < common]
        if lost:
            how = "has lost its bytes (U+FFFD)" if trace.texts[lost[0]] else "has neither a text nor bytes"
            return Limit(
                f"{name}'s token at step {lost[0]} {how}: nobody can say whether both sides took the same one.",
                "Record token ids or bytes.",
            )
        if record["identity"] == "text":
            return Limit(
                f"{name} knows its tokens by their text alone, without ids or bytes: two ids may share a text, so equal "
                "texts are no equal tokens.",
                "Record token ids (vLLM: return_token_ids) or bytes.",
            )
    return None


def _recut(a: Trace, b: Trace, split: Split | None) -> Limit | None:
    cut = None if split is None else joins(a, b, split.step)
    if cut is None or split is None:
        return None
    return Limit(
        f"The same bytes are cut otherwise from step {split.step} on: {cut}. The ids differ, the text does not.",
        "Compare ids as the engine chose them: ids made by tokenising a text again are others.",
    )


def _gap(a: Trace, b: Trace, split: Split) -> Limit | None:
    for name, trace, other, side in (("A", a, split.b, split.a), ("B", b, split.a, split.b)):
        if trace.record is None:
            continue
        if side.logit is None:
            why = f"{name} recorded no value for its token {side.text!r} at step {split.step}"
        elif side.gap is None:
            lost = ", which has lost tokens that shared a key" if split.step in trace.record["lossy"] else ""
            why = f"{other.text!r} is not in {name}'s list of {_entries(trace, split.step)}{lost}"
        else:
            continue
        values = " and ".join(
            f"{n} took {s.text!r} at {s.logit:.6g}" for n, s in (("A", split.a), ("B", split.b)) if s.logit is not None
        )
        return Limit(
            f"The runs part at step {split.step}{f': {values}' if values else ''}; how near the two tokens were is not "
            f"recorded: {why}.",
            "Record a longer top list on both sides.",
        )
    return None


def _no_values(a: Trace, b: Trace, common: int) -> Limit | None:
    silent = [
        name
        for name, trace in (("A", a), ("B", b))
        if trace.record is not None and trace.table["logprob"][:common].null_count() == common
    ]
    if not silent or common == 0:
        return None
    return Limit(
        f"The tokens agree over {common} steps, but {' and '.join(silent)} recorded no log-probability: whether the values "
        "drift is not known.",
        "Record log-probabilities on both sides.",
    )


def _entries(trace: Trace, step: int) -> int:
    return int((trace.top_ids[step] != -1).sum())


def _pieces(trace: Trace, start: int) -> list[bytes] | None:
    pieces: list[bytes] = []
    for piece in pieces_of(trace)[start:]:
        if piece is None:
            return None
        pieces.append(piece)
    return pieces or None
