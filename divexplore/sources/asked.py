"""What did the request ask for, was it heard, and was the choice of tokens greedy?"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from typing import Any

from divexplore.sources.entries import is_id

__all__ = ["decode_words", "greedy", "limit", "not_echoed", "parameters", "processors", "prompt_of", "stops"]

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
    "repeat_last_n",
    "repeat_penalty",
    "repetition_penalty",
    "seed",
    "temperature",
    "top_k",
    "top_p",
    "typical_p",
}

# what moves the scores before the choice, each with the value that changes nothing
_NEUTRAL: dict[str, Any] = {
    "allowed_token_ids": None,
    "bad_words": None,
    "dry_multiplier": 0,
    "format": None,
    "frequency_penalty": 0,
    "grammar": None,
    "guided_choice": None,
    "guided_grammar": None,
    "guided_json": None,
    "guided_regex": None,
    "json_schema": None,
    "logit_bias": None,
    "no_repeat_ngram_size": 0,
    "presence_penalty": 0,
    "repeat_penalty": 1,
    "repetition_penalty": 1,
    "response_format": {"type": "text"},
    "structured_outputs": None,
    "use_beam_search": None,
}
# what leaves candidates out of a draw, each with the values that leave none out
_FILTERS: dict[str, tuple[float, ...]] = {
    "min_p": (0,),
    "mirostat": (0,),
    "top_k": (0, -1),
    "top_p": (1,),
    "typical_p": (1,),
    "xtc_probability": (0,),
}
_WINDOWED = {"frequency_penalty", "presence_penalty", "repeat_penalty"}  # over the tokens that repeat_last_n counts
_STOPS = ("stop", "stop_token_ids", "ignore_eos", "min_tokens")
_LIMITS = ("max_tokens", "max_completion_tokens", "n_predict", "num_predict", "max_new_tokens")
_LONG = 60  # characters


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
    asked = _settings(request, shape, echoed)
    if "temperature" in not_echoed(request, shape, echoed) and "temperature" not in asked:
        return False
    temperature = asked.get("temperature")
    if asked.get("top_k") == 1:
        return True
    if temperature is not None and not _is_number(temperature):
        return None  # one engine reads "0" as 0, the next refuses or ignores it
    if temperature == 0:
        return True
    if shape.startswith("TGI") and request is not None:  # greedy unless it is told to sample
        return not (asked.get("do_sample") or temperature is not None or asked.get("top_p") or asked.get("top_k"))
    if temperature is not None:
        return False
    return False if request is not None and shape.startswith("OpenAI") else None  # their default temperature is 1


def decode_words(request: Mapping[str, Any] | None, shape: str, echoed: Mapping[str, Any]) -> str:
    """What chose the tokens, as a run's ``effective["decode"]`` has it, such as ``greedy, repetition_penalty 1.3``.

    It begins with ``greedy``, ``sample`` or ``unknown``. The best of one candidate is another path than temperature 0.
    """
    return ", ".join([_path(request, shape, echoed), *(processors(request, shape, echoed) or ())])


def _path(request: Mapping[str, Any] | None, shape: str, echoed: Mapping[str, Any]) -> str:
    known = greedy(request, shape, echoed)
    asked = _settings(request, shape, echoed)
    temperature = asked.get("temperature")
    if known is None:
        return "unknown" if temperature is None else f"unknown (temperature {json.dumps(temperature)} is no number)"
    if known and asked.get("top_k") == 1 and not (_is_number(temperature) and temperature == 0):
        return "greedy by top_k 1" + ("" if temperature is None else f" at temperature {temperature}")
    if known:
        return "greedy"
    if temperature is None and "temperature" in not_echoed(request, shape, echoed):
        return "sample, for temperature was requested but not echoed"
    words = ["sample"] if temperature is None else ["sample", f"temperature {temperature}"]
    words += [
        f"{name} {_brief(asked[name])}"
        for name, neutral in _FILTERS.items()
        if _is_asked(asked.get(name)) and asked[name] not in neutral
    ]
    return ", ".join(words)


def processors(request: Mapping[str, Any] | None, shape: str, echoed: Mapping[str, Any]) -> list[str] | None:
    """What moves the scores before the choice: penalties, biases and constraints, a few words each.

    What is asked for at the value that changes nothing is left out. ``None`` where no request and no setting is known.
    """
    if request is None and not echoed:
        return None
    asked = _settings(request, shape, echoed)
    if shape.startswith("Ollama") and request is not None and request.get("format") is not None:
        asked["format"] = request["format"]
    names = [name for name in sorted(_NEUTRAL) if _is_asked(asked.get(name)) and asked[name] != _NEUTRAL[name]]
    window = asked.get("repeat_last_n")
    if window == 0:
        names = [name for name in names if name not in _WINDOWED]
    found = [f"{name} {_brief(asked[name])}" for name in names]
    if window is not None and _WINDOWED.intersection(names):
        found.append(f"penalties over the last {_brief(window)}")
    return found


def stops(request: Mapping[str, Any] | None, shape: str, echoed: Mapping[str, Any]) -> list[str] | None:
    """What ends a stream besides its end-of-sequence token and its limit, a few words each; ``None`` where unknown."""
    if request is None and not echoed:
        return None
    asked = _settings(request, shape, echoed)
    # min_tokens 0 holds nothing back
    return [f"{name} {_brief(asked[name])}" for name in _STOPS if _is_asked(asked.get(name)) and asked[name] != 0]


def limit(request: Mapping[str, Any] | None, shape: str, echoed: Mapping[str, Any]) -> int | None:
    """How many tokens were asked for at most; ``None`` where no limit is known."""
    asked = _settings(request, shape, echoed)
    found = next((asked[name] for name in _LIMITS if asked.get(name) is not None), None)
    return found if type(found) is int and found > 0 else None  # -1 is llama.cpp's and Ollama's word for none


def _settings(request: Mapping[str, Any] | None, shape: str, echoed: Mapping[str, Any]) -> dict[str, Any]:
    """What ran, as far as it is known: what the response repeats, else what was asked for where the engine reads it."""
    return {**parameters(request, shape), **echoed}


def _is_asked(value: Any) -> bool:
    """Whether a setting says anything; empty texts and lists, and ``false``, stand for none."""
    return value is not None and value is not False and value not in ("", [], {})


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _brief(value: Any) -> str:
    """A setting in a few words that are others for another value."""
    told = json.dumps(value, sort_keys=True, ensure_ascii=False)
    if len(told) <= _LONG:
        return told
    return f"{told[:_LONG]}… ({hashlib.blake2b(told.encode(errors='surrogatepass'), digest_size=4).hexdigest()})"


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
    if isinstance(given, list) and given and all(map(is_id, given)):
        return None, tuple(given), False
    return None, (), None


def _nested(shape: str) -> str | None:
    return next((place for engine, place in _NESTED.items() if shape.startswith(engine)), None)
