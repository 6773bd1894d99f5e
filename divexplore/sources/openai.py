"""What do the choices of OpenAI's shape hold? Chat entries, legacy arrays, and vLLM's and llama.cpp's ids beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from divexplore.errors import FormatError
from divexplore.sources.entries import Choice, Row, token_of

__all__ = ["openai_choices", "row_of"]


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
    message = part.get("message") or {}
    logprobs = part.get("logprobs") or {}
    ids: Sequence[int] | None = part.get("token_ids")
    prompt_ids = part.get("prompt_token_ids") or response.get("prompt_token_ids") or ()
    echo = len(prompt_ids) or (response.get("usage") or {}).get("prompt_tokens") if request.get("echo") else 0
    if echo is None:
        raise FormatError(
            f"{where} repeats the prompt and does not tell where it ends",
            "records without echo, or with usage.prompt_tokens",
            "Record it without echo.",
        )
    if isinstance(logprobs.get("content"), list):
        rows = [row_of(entry, f"{where}, token {index}") for index, entry in enumerate(logprobs["content"])]
    elif isinstance(logprobs.get("tokens"), list):
        rows = _arrays(logprobs, where)[echo:]
    else:
        rows = []
    if ids is not None and rows and len(ids) != len(rows):
        raise FormatError(
            f"{where} has {len(rows)} log-probabilities beside {len(ids)} token ids",
            "as many of one as of the other",
            "Record it again: a row too many or too few would shift every value behind it.",
        )
    if ids is not None:
        bare = rows or [Row(token_of(None, None, where)) for _ in ids]
        rows = [_named(row, token, f"{where}, token {index}") for index, (row, token) in enumerate(zip(bare, ids))]
    return Choice(
        shape="OpenAI completions" if legacy else "OpenAI chat completions",
        index=part.get("index", 0),
        text=part.get("text") if legacy else message.get("content"),
        rows=tuple(rows),
        finish=part.get("finish_reason"),
        prompt_ids=tuple(prompt_ids),
        model=response.get("model"),
        facts={name: part[name] for name in ("stop_reason",) if part.get(name) is not None},
    )


def _named(row: Row, token_id: Any, where: str) -> Row:
    """The row with the engine's id for the token taken."""
    return replace(row, chosen=replace(row.chosen, id=token_of(None, None, where, token_id=token_id).id))


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
