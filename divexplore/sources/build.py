"""How does a recorded completion become a trace? Log-probabilities stand for logits: their gaps are the same."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from divexplore.models.tokens import visible
from divexplore.sources.asked import (
    decode_words,
    greedy,
    limit,
    not_echoed,
    parameters,
    processors,
    prompt_of,
    stops,
)
from divexplore.sources.entries import Choice, Row, Token
from divexplore.trace import FORMAT, Trace, synthetic_id, trace_schema

__all__ = ["trace_of"]

_TOLERANCE = 1e-6  # nats; a value and the same token's own entry in the list are one number, printed twice
_FINISH = {"stop": "eos", "eos": "eos", "eos_token": "eos", "length": "length", "limit": "length"}
_PLACEHOLDER_ROWS = 2  # one certain token is no proof of a placeholder


@dataclass(frozen=True)
class _Step:
    """A row with ids: the list is sorted, holds the token taken where it has a value, and no id twice."""

    token_id: int
    chosen: Token
    listed: list[tuple[int, Token]]
    outside: bool
    mismatch: float
    dropped: int
    repeated: int


def trace_of(
    choice: Choice, request: Mapping[str, Any] | None, labels: Mapping[str, Any], place: Mapping[str, Any]
) -> Trace:
    """A recorded completion as a trace.

    ``logit`` and ``top_logits`` hold log-probabilities (nats), for the logits are not known; what only the engine knew
    (entropy, ULPs, ties of logits, hashes, seconds) is null. A top list that is shorter than the longest one ends in nulls.

    Parameters
    ----------
    choice
        What was read of the response.
    request
        The request, where it was recorded.
    labels
        What else stood beside the response.
    place
        Where it stands: ``file``, ``number`` among the file's completions, and ``place`` for people.
    """
    import polars as pl

    steps = [_step(row, index) for index, row in enumerate(choice.rows)]
    placeholder = _is_placeholder(choice.rows)
    k = max((len(step.listed) for step in steps), default=0) or 1
    margins = choice.facts.get("margins")
    columns: dict[str, list[Any]] = {name: [] for name in trace_schema(k)}
    for index, step in enumerate(steps):
        listed = [] if placeholder else step.listed
        value = None if placeholder else step.chosen.logprob
        padding = [None] * (k - len(listed))
        row = {
            "step": index,
            "phase": "prefill" if index == 0 else "decode",
            "token_id": step.token_id,
            "bytes": step.chosen.raw,
            "text": _shown(step.chosen, step.token_id),
            "logit": value,
            "logprob": value,
            "margin": _margin(listed) if margins is None else margins[index],
            "top_ids": [*(token_id for token_id, _ in listed), *padding],
            "top_logits": [*(token.logprob for _, token in listed), *padding],
        }
        for name, cells in columns.items():
            cells.append(row.get(name))
    texts = {str(step.token_id): _shown(step.chosen, step.token_id) for step in steps}
    for step in steps:
        texts |= {str(token_id): _shown(token, token_id) for token_id, token in step.listed}
    return Trace(
        pl.DataFrame(columns, schema=trace_schema(k)), _meta(choice, request, labels, place, steps, placeholder, texts)
    )


def _step(row: Row, index: int) -> _Step:
    chosen = row.chosen
    token_id = _id(chosen)
    if token_id is None:
        token_id = synthetic_id(
            b"\xef\xbf\xbd%d" % index
        )  # never claimed to be the same as another: see `unidentified`
    found: dict[int, Token] = {}
    dropped = repeated = 0
    for token in row.others:
        same = token.id == chosen.id if token.id is not None and chosen.id is not None else _looks_like(token, chosen)
        its_id = token_id if same else _id(token)
        if its_id is None:
            dropped += 1
        elif its_id in found:
            repeated += 1
        elif token.logprob is not None:
            found[its_id] = token
    own = found.get(token_id)
    mismatch = 0.0 if own is None or chosen.logprob is None else _distance(own.logprob, chosen.logprob)
    outside = own is None and bool(row.others)
    if own is None and chosen.logprob is not None:
        found[token_id] = chosen
    # ids that are only synthetic come last among equals: they are in no vocabulary's order
    listed = sorted(found.items(), key=lambda entry: (-(entry[1].logprob or 0.0), entry[0] < 0, entry[0]))
    return _Step(token_id, chosen, listed, outside, mismatch, dropped, repeated + row.lossy)


def _looks_like(token: Token, chosen: Token) -> bool:
    if token.key is not None or chosen.key is not None:
        return token.key == chosen.key
    return token.text == chosen.text and token.logprob == chosen.logprob  # bytes lost on both: the value tells


def _id(token: Token) -> int | None:
    if token.id is not None:
        return token.id
    return None if token.key is None else synthetic_id(token.key)


def _distance(a: float | None, b: float) -> float:
    return 0.0 if a is None or a == b else abs(a - b)


def _margin(listed: Sequence[tuple[int, Token]]) -> float | None:
    if len(listed) < 2:
        return None
    first, second = listed[0][1].logprob, listed[1][1].logprob
    return None if first is None or second is None or math.isinf(first) else first - second


def _shown(token: Token, token_id: int) -> str:
    if token.raw is not None:
        return visible(token.raw)
    return token.text if token.text is not None else f"⟨id {token_id}⟩"


def _is_placeholder(rows: Sequence[Row]) -> bool:
    """Zero everywhere and nothing beside it: what some servers write for "none", no certainty."""
    return len(rows) >= _PLACEHOLDER_ROWS and all(
        row.chosen.logprob == 0 and all(token.logprob in (0, None, -math.inf) for token in row.others[1:])
        for row in rows
    )


def _identity(rows: Sequence[Row]) -> str:
    """What tokens are known by: ``ids``, ``bytes``, ``text`` or ``nothing``."""
    if not rows:
        return "nothing"
    if all(row.chosen.id is not None for row in rows):
        return "ids"
    return "bytes" if all(row.chosen.id is not None or row.chosen.raw is not None for row in rows) else "text"


def _meta(
    choice: Choice,
    request: Mapping[str, Any] | None,
    labels: Mapping[str, Any],
    place: Mapping[str, Any],
    steps: Sequence[_Step],
    placeholder: bool,
    texts: dict[str, str],
) -> dict[str, Any]:
    text, ids, chat = prompt_of(request)
    asked_of = request, choice.shape, choice.echoed
    asked = parameters(request, choice.shape)
    kinds = {
        kind: [index for index, step in enumerate(steps) if step.chosen.kind == kind]
        for kind in ("missing", "floor", "-inf", "nan")
    }
    record = {
        **place,
        "shape": choice.shape,
        "index": choice.index,
        "labels": dict(labels),
        "identity": _identity(choice.rows),
        "values": choice.values
        if any(step.chosen.logprob is not None for step in steps) and not placeholder
        else "none",
        "text": choice.text,
        "finish": choice.finish,
        "request": None if request is None else dict(request),
        "echoed": choice.echoed,
        "greedy": greedy(*asked_of),
        "not_echoed": not_echoed(*asked_of),
        "processors": processors(*asked_of),
        "stops": stops(*asked_of),
        "limit": limit(*asked_of),
        "chosen_without_value": {kind: found for kind, found in kinds.items() if found},
        "floors": sum(token.kind == "floor" for row in choice.rows for token in (row.chosen, *row.others)),
        "unidentified": [
            index for index, step in enumerate(steps) if step.chosen.id is None and step.chosen.key is None
        ],
        "outside_list": [index for index, step in enumerate(steps) if step.outside],
        "lossy": [index for index, step in enumerate(steps) if step.repeated],
        **choice.facts,
    }
    # one beside the token taken spoils the choice as well; a token and its own entry in the list are counted once
    counts = [max(row.chosen.kind == "nan", sum(token.kind == "nan" for token in row.others)) for row in choice.rows]
    nan = [index for index, count in enumerate(counts) if count]
    return {
        "format": FORMAT,
        "model": {
            "name": choice.model or "unknown",
            "fingerprint": None,
            "architecture": "unknown",
            "vocab_size": None,
        },
        "prompt": {
            "text": text if text is not None else choice.prompt_text,
            "ids": list(choice.prompt_ids or ids),
            "chat": chat,
        },
        "requested": {},
        "effective": {
            "dtype": "unknown",
            "computing_dtype": "unknown",
            "recorded": choice.shape,
            "model": choice.model or "unknown",
            "decode": decode_words(*asked_of),
            "seed": {**asked, **choice.echoed}.get("seed"),
            **_ends(record),
            **{name: value for name, value in labels.items() if name == "arm"},
        },
        "rows": [],
        "forced": 0,
        "max_new_tokens": limit(*asked_of),
        "finish_reason": _finish(choice.finish),
        "partial": choice.cut is not None,
        "error": choice.cut,
        "invalid": {"step": nan[0], "nan": sum(counts), "positive_infinite": 0} if nan else None,
        "warnings": [*choice.notes, *_warnings(choice, steps, placeholder)],
        "snapshot": {},
        "texts": texts,
        "record": record,
    }


def _finish(word: Any) -> str:
    """Why a completion ended, in our words where there is one, else in the engine's."""
    return _FINISH.get(word, word) if isinstance(word, str) and word else "unknown"


def _ends(record: Mapping[str, Any]) -> dict[str, str]:
    """What was asked to end the stream, in words; nothing where it is not known."""
    if record["stops"] is None:
        return {}
    words = [*record["stops"], *([] if record["limit"] is None else [f"at most {record['limit']} tokens"])]
    return {"ends": ", ".join(words) or "as the engine has it"}


def _warnings(choice: Choice, steps: Sequence[_Step], placeholder: bool) -> list[str]:
    found = []
    if placeholder:
        found.append("every value is 0 and has no alternative: a placeholder, so no value is taken from it")
    worst = max((step.mismatch for step in steps), default=0.0)
    if worst > _TOLERANCE:
        count = sum(step.mismatch > _TOLERANCE for step in steps)
        found.append(
            f"at {count} steps the token's value and its own entry in the list differ, by up to {worst:.3g} nats"
        )
    if outside := [index for index, step in enumerate(steps) if step.outside]:
        found.append(f"at {len(outside)} steps, first at {outside[0]}, the token taken is outside its top list")
    if floors := sum(token.kind == "floor" for row in choice.rows for token in (row.chosen, *row.others)):
        found.append(f"{floors} values are a number that stands for none, and are taken as missing")
    if dropped := sum(step.dropped for step in steps):
        found.append(f"{dropped} alternatives have lost their bytes (U+FFFD, empty) and are left out")
    if repeated := sum(step.repeated for step in steps):
        found.append(f"{repeated} alternatives share the key or the id of another one: the list has lost some")
    joined = b"".join(row.chosen.raw or (row.chosen.text or "").encode(errors="surrogatepass") for row in choice.rows)
    told = (choice.text or "").encode(errors="surrogatepass")
    if choice.rows and choice.text is not None and all(row.chosen.text is not None for row in choice.rows):
        found += _unlike(joined, told)
    return found


def _unlike(joined: bytes, told: bytes) -> list[str]:
    if joined == told or joined.strip() == told.strip():
        return []
    if told and told in joined:
        return [
            f"the tokens hold {len(joined) - len(told)} bytes beside the text: special tokens, thinking or a stop word"
        ]
    return [f"the tokens joined ({len(joined)} bytes) are not the text ({len(told)} bytes)"]
