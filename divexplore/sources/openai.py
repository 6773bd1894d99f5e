"""What do the choices of OpenAI's shape hold? Chat entries, legacy arrays, and vLLM's and llama.cpp's ids beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from divexplore.errors import FormatError
from divexplore.sources.entries import Choice, Row, ids_of, same_id, token_of

__all__ = ["named", "openai_choices", "row_of"]


def openai_choices(response: dict[str, Any], request: Mapping[str, Any] | None, where: str) -> list[Choice]:
    """Every choice of a chat completion or a legacy completion."""
    return [_choice(part, response, request or {}, where) for part in response["choices"]]


def row_of(entry: Any, where: str) -> Row:
    """A row of the chat shape: ``token``, ``logprob``, ``bytes`` and ``top_logprobs``; llama.cpp's have an ``id``."""
    if not isinstance(entry, dict) or "token" not in entry:
        raise FormatError(f"{where} is {str(entry)[:80]}", "an entry with token and logprob", "Record it again.")
    chosen, *others = (
        token_of(o.get("token"), o.get("logprob"), where, token_id=o.get("id"), raw=o.get("bytes"))
        for o in (entry, *(entry.get("top_logprobs") or ()))
    )
    return Row(chosen, tuple(others))


def _choice(part: dict[str, Any], response: dict[str, Any], request: Mapping[str, Any], where: str) -> Choice:
    legacy = "text" in part
    if "delta" in part and not legacy and "message" not in part:
        raise FormatError(
            f"{where} is one chunk of a stream, not a response",
            "a whole response, or a stream with its data: lines",
            "Record the body as it came.",
        )
    message = part.get("message") or {}
    logprobs = _arrays_of(part.get("logprobs"), where)
    prompt_ids = ids_of(part.get("prompt_token_ids") or response.get("prompt_token_ids"), "prompt_token_ids", where)
    if logprobs.get("content") is not None:
        rows = [row_of(entry, f"{where}, token {index}") for index, entry in enumerate(logprobs["content"])]
    elif logprobs.get("tokens") is not None:
        rows = _arrays(logprobs, where)
        rows = rows[_prompt_length(prompt_ids, response, len(rows), where) :] if request.get("echo") else rows
    else:
        rows = []
    ids = None if part.get("token_ids") is None else ids_of(part["token_ids"], "token_ids", where)
    error = part.get("error") or response.get("error")
    return Choice(
        shape="OpenAI completions" if legacy else "OpenAI chat completions",
        index=_index(part.get("index"), where),
        text=part.get("text") if legacy else message.get("content"),
        rows=tuple(rows if ids is None else named(rows, ids, where)),
        finish=part.get("finish_reason"),
        prompt_ids=prompt_ids,
        model=response.get("model"),
        facts={name: part[name] for name in ("stop_reason",) if part.get(name) is not None},
        cut=getattr(part, "cut", None) or (f"the engine reported an error: {str(error)[:200]}" if error else None),
    )


def named(rows: Sequence[Row], ids: Sequence[int], where: str) -> list[Row]:
    """The rows with the engine's ids for the tokens taken; of ids alone, rows that hold nothing else.

    Raises
    ------
    FormatError
        Where there are more of one than of the other, or a row has another id.
    """
    if rows and len(ids) != len(rows):
        raise FormatError(
            f"{where} has {len(rows)} log-probabilities beside {len(ids)} token ids",
            "as many of one as of the other",
            "Record it again: a row too many or too few would shift every value behind it.",
        )
    return [
        replace(row, chosen=same_id(row.chosen, token, f"{where}, token {index}"))
        for index, (row, token) in enumerate(zip(rows or [Row(token_of(None, None, where)) for _ in ids], ids))
    ]


def _arrays_of(logprobs: Any, where: str) -> dict[str, Any]:
    """The arrays beside a choice; none where it has none."""
    if logprobs is None:
        return {}
    if not isinstance(logprobs, dict):
        raise FormatError(f"{where} has {str(logprobs)[:60]!r} for logprobs", "an object or null", "Record it again.")
    for name in ("content", "tokens", "token_logprobs", "top_logprobs"):
        if not isinstance(logprobs.get(name), list | None):
            raise FormatError(
                f"{where} has {str(logprobs[name])[:60]!r} for logprobs.{name}", "a list or null", "Record it again."
            )
    return logprobs


def _prompt_length(prompt_ids: Sequence[int], response: Mapping[str, Any], rows: int, where: str) -> int:
    """How many of the rows are the prompt's, where a completion repeats it."""
    known = len(prompt_ids) or (response.get("usage") or {}).get("prompt_tokens")
    if known is None:
        raise FormatError(
            f"{where} repeats the prompt and does not tell where it ends",
            "records without echo, or with usage.prompt_tokens",
            "Record it without echo.",
        )
    if type(known) is not int or not 0 <= known <= rows:
        raise FormatError(
            f"{where} repeats a prompt of {known!r} tokens in {rows} rows",
            f"from 0 to {rows}",
            "Record it without echo.",
        )
    return known


def _index(index: Any, where: str) -> int:
    if index is None:
        return 0
    if type(index) is not int or index < 0:
        raise FormatError(f"{where} has {str(index)[:60]!r} for index", "a number from 0", "Record it again.")
    return index


def _arrays(logprobs: Mapping[str, Any], where: str) -> list[Row]:
    """The legacy arrays: tokens, their values, and an object of alternatives each, whose keys may stand for several."""
    tokens, values, lists = logprobs["tokens"], logprobs.get("token_logprobs"), logprobs.get("top_logprobs")
    for name, other in (("token_logprobs", values), ("top_logprobs", lists)):
        if other is not None and len(other) != len(tokens):
            raise FormatError(
                f"{where} has {len(other)} {name} beside {len(tokens)} tokens", "as many of each", "Record it again."
            )
    rows = []
    for index, text in enumerate(tokens):
        place = f"{where}, token {index}"
        listed = (lists[index] if lists else None) or {}
        others = tuple(token_of(key, value, place) for key, value in listed.items())
        lossy = getattr(listed, "repeated", 0)
        rows.append(Row(token_of(text, values[index] if values else None, place), others, lossy))
    return rows
