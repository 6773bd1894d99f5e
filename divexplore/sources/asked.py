"""What did the request ask for, was it heard, and was the choice of tokens greedy?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["decode_words", "greedy", "not_echoed", "parameters", "prompt_of"]

_NESTED = {"Ollama": "options", "TGI": "parameters"}  # where these engines read what the others read at the top
_SAMPLING = {
    "frequency_penalty",
    "logit_bias",
    "max_new_tokens",
    "min_p",
    "mirostat",
    "num_ctx",
    "num_predict",
    "presence_penalty",
    "repeat_penalty",
    "repetition_penalty",
    "seed",
    "temperature",
    "top_k",
    "top_p",
    "typical_p",
}


def parameters(request: Mapping[str, Any] | None, shape: str) -> dict[str, Any]:
    """Settings where the engine reads them."""
    if request is None:
        return {}
    place = _nested(shape)
    found = request if place is None else request.get(place)
    return dict(found) if isinstance(found, Mapping) else {}


def not_echoed(request: Mapping[str, Any] | None, shape: str, echoed: Mapping[str, Any]) -> dict[str, str]:
    """Settings that were requested and of which nothing shows that they ran, by name, each with what is known of it.

    A setting at the wrong level of the body is read by nobody, and no engine says so; a response that repeats the
    settings may repeat another value.
    """
    if request is None:
        return {}
    place = _nested(shape)
    if place is None:
        misplaced = [
            (name, f"inside {outer!r}, where this engine reads nothing")
            for outer in _NESTED.values()
            if isinstance(request.get(outer), Mapping)
            for name in request[outer]
            if name in _SAMPLING
        ]
    else:
        misplaced = [
            (name, f"at the top level of the request, where this engine ignores it: it reads {place!r}")
            for name in request
            if name in _SAMPLING
        ]
    found = dict(misplaced)
    for name, asked in parameters(request, shape).items():
        if name in _SAMPLING and name in echoed and echoed[name] != asked:
            found[name] = f"{asked!r} was asked for, the response says {echoed[name]!r}"
    return dict(sorted(found.items()))


def greedy(request: Mapping[str, Any] | None, shape: str, echoed: Mapping[str, Any]) -> bool | None:
    """Whether every token was the best one by request; ``None`` where nobody knows.

    A temperature that was asked for in a place that the engine does not read counts as not greedy.
    """
    asked = {**parameters(request, shape), **echoed}
    if "temperature" in not_echoed(request, shape, echoed) and "temperature" not in asked:
        return False
    temperature = asked.get("temperature")
    if asked.get("top_k") == 1 or temperature == 0:
        return True
    if shape.startswith("TGI") and request is not None:  # greedy unless it is told to sample
        return not (asked.get("do_sample") or temperature is not None or asked.get("top_p") or asked.get("top_k"))
    if temperature is not None:
        return False
    return False if request is not None and shape.startswith("OpenAI") else None  # their default temperature is 1


def decode_words(request: Mapping[str, Any] | None, shape: str, echoed: Mapping[str, Any]) -> str:
    """What chose the tokens, as a run's ``effective["decode"]`` has it: ``greedy``, ``sample …`` or ``unknown``."""
    known = greedy(request, shape, echoed)
    if known is None:
        return "unknown"
    if known:
        return "greedy"
    lost = not_echoed(request, shape, echoed)
    temperature = {**parameters(request, shape), **echoed}.get("temperature")
    if temperature is None and "temperature" in lost:
        return "sample, for temperature was requested but not echoed"
    return "sample" if temperature is None else f"sample, temperature {temperature}"


def prompt_of(request: Mapping[str, Any] | None) -> tuple[str | None, tuple[int, ...], bool | None]:
    """Text, ids and whether it was a chat, as far as the request tells; a chat's text is that of all its messages."""
    if request is None:
        return None, (), None
    messages = request.get("messages")
    if isinstance(messages, list):
        contents = [message.get("content") for message in messages if isinstance(message, Mapping)]
        texts = [content for content in contents if isinstance(content, str)]
        return ("\n".join(texts) if texts and len(texts) == len(contents) else None), (), True
    given = request.get("prompt", request.get("inputs"))
    if isinstance(given, str):
        return given, (), False
    if isinstance(given, list) and given and all(isinstance(item, int) for item in given):
        return None, tuple(given), False
    return None, (), None


def _nested(shape: str) -> str | None:
    return next((place for engine, place in _NESTED.items() if shape.startswith(engine)), None)
