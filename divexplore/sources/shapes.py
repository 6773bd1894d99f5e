"""Which engine's shape is a response, and what does it hold? Told by its fields, never by a URL or a name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from divexplore.errors import FormatError
from divexplore.sources.entries import Choice, Row, Token, ids_of, token_of
from divexplore.sources.openai import named, openai_choices, row_of

__all__ = ["SHAPES", "choices_of"]

SHAPES = (
    "OpenAI chat completions, OpenAI completions (vLLM's token_ids with them), llama.cpp completion, TGI generate, "
    "Ollama generate and chat, rows of margins"
)
"""What is read."""


def choices_of(response: Any, request: Mapping[str, Any] | None, where: str) -> list[Choice]:
    """Every completion of a response.

    Raises
    ------
    FormatError
        On a shape that is not known, an engine's error, and rows that do not fit together.
    """
    if isinstance(response, list) and response:
        return [choice for part in response for choice in choices_of(part, request, where)]
    if not isinstance(response, dict):
        raise _unknown(type(response).__name__, where)
    if response.get("error") and len(response) <= 2 and "choices" not in response:
        raise FormatError(
            f"{where} holds an engine's error: {str(response['error'])[:200]}", SHAPES, "Record it again."
        )
    for recognised, read in _READERS:
        if recognised(response):
            return read(response, request, where)
    raise _unknown(", ".join(map(str, response)), where)


def _llamacpp(response: dict[str, Any], request: Mapping[str, Any] | None, where: str) -> list[Choice]:
    """The native endpoint: new rows with ids, the same after sampling, or old ones of probabilities."""
    listed = response.get("completion_probabilities") or []
    ids = ids_of(response.get("tokens"), "tokens", where)
    after = any("probs" in entry or "prob" in entry for entry in listed)
    rows = [_llamacpp_row(entry, f"{where}, token {index}") for index, entry in enumerate(listed)]
    if ids:  # an empty list is what it gives where ids were not asked for
        rows = named(rows, ids, where)
    return [
        Choice(
            shape="llama.cpp completion",
            text=response.get("content"),
            rows=tuple(rows),
            finish=response.get("stop_type") or _old_finish(response),
            prompt_text=response.get("prompt"),
            model=response.get("model"),
            values="post-sampling logprobs" if after else "logprobs",
            echoed=dict(response.get("generation_settings") or {}),
            cut="one chunk of a stream that goes on (stop: false)" if response.get("stop") is False else None,
            notes=("values are probabilities after the sampler's filters, turned into logarithms",) if after else (),
        )
    ]


def _old_finish(response: Mapping[str, Any]) -> str | None:
    """Why llama.cpp ended before it had ``stop_type``."""
    flags = {"stopped_eos": "eos", "stopped_word": "word", "stopped_limit": "limit"}
    return next((word for flag, word in flags.items() if response.get(flag)), None)


def _llamacpp_row(entry: dict[str, Any], where: str) -> Row:
    if "probs" in entry:  # before late 2024: no ids, and the token taken is one of the list
        others = [token_of(o.get("tok_str"), o.get("prob"), where, probability=True) for o in entry["probs"]]
        text = entry.get("content")
        own = next((token for token in others if token.text == text), None)
        return Row(own or token_of(text, None, where), tuple(others))
    if "prob" in entry:
        chosen, *others = (
            token_of(o.get("token"), o.get("prob"), where, token_id=o.get("id"), raw=o.get("bytes"), probability=True)
            for o in (entry, *(entry.get("top_probs") or ()))
        )
        return Row(chosen, tuple(others))
    return row_of(entry, where)


def _tgi(response: dict[str, Any], request: Mapping[str, Any] | None, where: str) -> list[Choice]:
    details = response.get("details") or {}
    others = details.get("best_of_sequences") or []
    return [
        _tgi_sequence(response.get("generated_text"), details, 0, where),
        *(
            _tgi_sequence(one.get("generated_text"), one, index, f"{where}, sequence {index}")
            for index, one in enumerate(others, 1)
        ),
    ]


def _tgi_sequence(text: Any, details: Mapping[str, Any], index: int, where: str) -> Choice:
    tokens, lists = details.get("tokens") or [], details.get("top_tokens")
    if lists is not None and len(lists) != len(tokens):
        raise FormatError(
            f"{where} has {len(lists)} top lists beside {len(tokens)} tokens", "one list a token", "Record it again."
        )

    def token(entry: Mapping[str, Any]) -> Token:
        return token_of(entry.get("text"), entry.get("logprob"), where, token_id=entry.get("id"))

    prefill = details.get("prefill") or []
    ids = [entry.get("id") for entry in prefill]
    return Choice(
        shape="TGI generate",
        index=index,
        text=text,
        rows=tuple(
            Row(token(entry), tuple(map(token, lists[index] if lists else ()))) for index, entry in enumerate(tokens)
        ),
        finish=details.get("finish_reason"),
        prompt_ids=() if None in ids else ids_of(ids, "prefill", where),
        facts={"prefill": prefill} if prefill else {},
    )


def _ollama(response: dict[str, Any], request: Mapping[str, Any] | None, where: str) -> list[Choice]:
    message = response.get("message")
    part = message if isinstance(message, dict) else response
    entries = response.get("logprobs") or []
    return [
        Choice(
            shape="Ollama chat" if isinstance(message, dict) else "Ollama generate",
            text=part.get("content" if isinstance(message, dict) else "response"),
            rows=tuple(row_of(entry, f"{where}, token {index}") for index, entry in enumerate(entries)),
            finish=response.get("done_reason"),
            model=response.get("model"),
            facts={"thinking": part["thinking"]} if part.get("thinking") else {},
            cut=getattr(response, "cut", None),
        )
    ]


def _margins(response: dict[str, Any], request: Mapping[str, Any] | None, where: str) -> list[Choice]:
    """Rows that people make themselves: token, its value, and the values of the best two, which have no name."""
    rows = response["logprob_margins"]["tokens"]
    tokens = [token_of(row[0], row[1], f"{where}, token {index}") for index, row in enumerate(rows)]
    below = [
        float(row[2]) - float(row[1])
        for row in rows
        if row[1] is not None and row[2] is not None and float(row[1]) < float(row[2])
    ]
    return [
        Choice(
            shape="rows of margins",
            text="".join(token.text or "" for token in tokens),
            rows=tuple(map(Row, tokens)),
            finish=response.get("stop_reason"),
            model=response.get("model_id_sent"),
            facts={
                "margins": [None if row[2] is None or row[3] is None else row[2] - row[3] for row in rows],
                "below_best": {"steps": len(below), "of": len(rows), "most": max(below, default=0.0)},
            },
            notes=(_not_greedy(below, len(rows)),) if below else (),
        )
    ]


def _not_greedy(below: Sequence[float], rows: int) -> str:
    return (
        f"not greedy under the reported logprobs: the token taken is below the best one in {len(below)} of {rows} rows, "
        f"by up to {max(below):.3g} nats; the cause is not in the record"
    )


def _has_margins(response: dict[str, Any]) -> bool:
    rows = response.get("logprob_margins")
    return isinstance(rows, dict) and isinstance(rows.get("tokens"), list) and all(len(r) == 4 for r in rows["tokens"])


def _is_ollama(response: dict[str, Any]) -> bool:
    return "done" in response and (
        isinstance(response.get("response"), str) or isinstance(response.get("message"), dict)
    )


_Reader = Callable[[dict[str, Any], "Mapping[str, Any] | None", str], list[Choice]]

_READERS: Sequence[tuple[Callable[[dict[str, Any]], bool], _Reader]] = (
    (lambda r: isinstance(r.get("choices"), list), openai_choices),
    (lambda r: isinstance(r.get("completion_probabilities"), list) or "tokens_predicted" in r, _llamacpp),
    (lambda r: isinstance(r.get("generated_text"), str), _tgi),
    (_is_ollama, _ollama),
    (_has_margins, _margins),
)


def _unknown(found: str, where: str) -> FormatError:
    return FormatError(
        f"{where} holds {found[:160] or 'nothing'}, a shape that is not known",
        SHAPES,
        "Record the completion with one of these endpoints.",
    )
