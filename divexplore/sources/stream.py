"""How does a streamed body read as one response? Chunks of OpenAI's shape, and lines of Ollama's."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from divexplore.errors import FormatError

__all__ = ["Part", "is_sse", "joined_sse", "lines_of", "whole_responses"]

_DONE = "[DONE]"
_ARRAYS = ("tokens", "token_logprobs", "top_logprobs", "text_offset", "content")
# A JSON text may hold U+2028, U+2029 and U+0085 as they are; `str.splitlines` would cut it there
_LINE_END = re.compile(r"\r\n|\r|\n")
_NAMES: dict[type, str] = {str: "a text", list: "a list", dict: "an object"}


class Part(dict[str, Any]):
    """A response, or one of its choices, put together from a stream; `cut` says why it is not whole, where it is not."""

    cut: str | None = None


def lines_of(text: str) -> list[str]:
    """Lines as JSON a line and server-sent events have them."""
    return _LINE_END.split(text)


def is_sse(text: str) -> bool:
    """Whether a text is a stream of server-sent events."""
    return text.lstrip().startswith(("data:", "event:", "id:", "retry:", "error:", ":"))


def joined_sse(text: str, parse: Callable[[str, str], Any], where: str) -> list[Part]:
    """The responses of OpenAI's shape in a stream, one as a rule.

    Several tokens a chunk, several completions by their index, chunks without a choice, keep-alive lines and a missing
    ``[DONE]`` are all met in the wild. A stream that ends without ``[DONE]`` and without saying why, or with an error, is
    kept as far as it came.

    Parameters
    ----------
    parse
        Takes a JSON text and what to call its place.

    Raises
    ------
    FormatError
        On a stream of another shape, without a chunk, or with a field of another kind.
    """
    streams = [_Stream()]
    for number, line in enumerate(lines_of(text), 1):
        name, _, payload = line.partition(":")
        payload = payload.strip()
        if name not in ("data", "error") or not payload:
            continue
        if payload == _DONE:
            streams[-1].done = True
            continue
        place = f"{where}, line {number}"
        chunk = {"error": payload} if name == "error" else parse(payload, place)
        if isinstance(chunk, dict) and chunk.get("error"):
            streams[-1].error = _message(chunk["error"])
            if not isinstance(chunk.get("choices"), list):
                continue
        if not isinstance(chunk, dict) or not isinstance(chunk.get("choices"), list):
            found = ", ".join(map(str, chunk)) if isinstance(chunk, dict) else type(chunk).__name__
            raise FormatError(
                f"{where} is a stream of events with {found[:80] or 'nothing'}",
                "streams of OpenAI's shape (choices with delta or text)",
                "Record the response without streaming.",
            )
        if streams[-1].is_over(chunk, place):
            streams.append(_Stream())
        streams[-1].add(chunk, place)
    return [stream.response(where) for stream in streams]


def whole_responses(items: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
    """Values with their places, in which the lines of a streamed Ollama response are one value, at its last line's place.

    A stream that ends before its last line, or with an error, is kept as far as it came.
    """
    waiting: list[tuple[str, dict[str, Any]]] = []
    for where, item in items:
        if waiting and not _continues(waiting[0][1], item):
            yield waiting[-1][0], _joined_lines(waiting, None)
            waiting = []
        if isinstance(item, dict) and item.get("done") is False:
            waiting.append((where, item))
        elif waiting:
            yield where, _joined_lines(waiting, (where, item))
            waiting = []
        else:
            yield where, item
    if waiting:
        yield waiting[-1][0], _joined_lines(waiting, None)


class _Stream:
    """One response while its chunks come in."""

    def __init__(self) -> None:
        self.done = False
        self.error: str | None = None
        self._fields: dict[str, Any] = {}
        self._choices: dict[int, Part] = {}

    def is_over(self, chunk: dict[str, Any], where: str) -> bool:
        """Whether a chunk belongs to another response.

        Another id alone does not tell: llama.cpp gave each chunk one of its own.
        """
        if not chunk["choices"] or not self._choices:
            return False
        known, new = self._fields.get("id"), chunk.get("id")
        ended = [self._choices.get(_index(part, where), Part()).get("finish_reason") for part in chunk["choices"]]
        return self.done or (any(ended) and None not in (known, new) and known != new)

    def add(self, chunk: dict[str, Any], where: str) -> None:
        self._fields |= {name: value for name, value in chunk.items() if name != "choices" and value is not None}
        for part in chunk["choices"]:
            index = _index(part, where)
            _add(self._choices.setdefault(index, Part(index=index)), part, where)

    def response(self, where: str) -> Part:
        if not self._choices:
            if self.error is not None:
                raise FormatError(f"{where} holds an engine's error: {self.error}", "a response", "Record it again.")
            raise FormatError(f"{where} is a stream without a choice", "at least one chunk", "Record it again.")
        for part in self._choices.values():
            if self.error is not None:
                part.cut = f"the stream ended with an error: {self.error}"
            elif not self.done and part.get("finish_reason") is None:
                part.cut = "the stream ends without a finish_reason and without [DONE]"
        choices = [self._choices[index] for index in sorted(self._choices)]
        fields = {name: value for name, value in self._fields.items() if name != "error"}
        return Part(fields | {"choices": choices})


def _index(part: Any, where: str) -> int:
    if not isinstance(part, dict):
        raise _not("a choice", "an object", part, where)
    index = part.get("index")
    if index is None:
        return 0
    if type(index) is not int or index < 0:
        raise _not("index", "a number from 0", index, where)
    return index


def _add(whole: Part, part: dict[str, Any], where: str) -> None:
    if "text" in part:
        whole["text"] = whole.get("text", "") + (_field(part, "text", str, where) or "")
    if (delta := _field(part, "delta", dict, where)) is not None:
        message = whole.setdefault("message", {"content": ""})
        message["content"] += _field(delta, "content", str, where) or ""
    for name in ("finish_reason", "stop_reason", "prompt_token_ids"):
        if part.get(name) is not None:
            whole[name] = part[name]
    if (ids := _field(part, "token_ids", list, where)) is not None:
        whole.setdefault("token_ids", []).extend(ids)
    if (logprobs := _field(part, "logprobs", dict, where)) is not None:
        kept = whole.setdefault("logprobs", {})
        for name in _ARRAYS:
            if (values := _field(logprobs, name, list, where)) is not None:
                kept.setdefault(name, []).extend(values)


def _joined_lines(waiting: list[tuple[str, dict[str, Any]]], last: tuple[str, Any] | None) -> Part:
    """One response of Ollama's shape from its lines; `last` is ``done``, or an error in its place."""
    whole = Part()
    text, thinking = "", ""
    logprobs: list[Any] = []
    failed = last is not None and "done" not in last[1]
    for where, line in [*waiting, *([] if last is None or failed else [last])]:
        message = _field(line, "message", dict, where)
        part = line if message is None else message
        text += _field(part, "response" if message is None else "content", str, where) or ""
        thinking += _field(part, "thinking", str, where) or ""
        logprobs += _field(line, "logprobs", list, where) or []
        whole |= line
    if isinstance(whole.get("message"), dict):
        whole["message"] = whole["message"] | {"content": text, "thinking": thinking}
    else:
        whole |= {"response": text, "thinking": thinking}
    whole["logprobs"] = logprobs or None
    if last is None:
        whole.cut = "the stream ends before its last line (done: true)"
    elif failed:
        whole.cut = f"the stream ended with an error: {_message(last[1]['error'])}"
    return whole


def _continues(first: dict[str, Any], item: Any) -> bool:
    """Whether a value is a further line of the stream that `first` begins: of its model and route, or an error."""
    if not isinstance(item, dict):
        return False
    if "done" not in item:
        return "error" in item and len(item) <= 2
    models = first.get("model"), item.get("model")
    routes = [("message" in line, "response" in line) for line in (first, item)]
    return (None in models or models[0] == models[1]) and routes[0] == routes[1]


def _message(error: Any) -> str:
    told = error.get("message") if isinstance(error, dict) else None
    return str(told or error)[:200]


def _field(holder: dict[str, Any], name: str, kind: type, where: str) -> Any:
    """A field that is absent, null or of a kind."""
    value = holder.get(name)
    if value is not None and not isinstance(value, kind):
        raise _not(name, f"{_NAMES[kind]} or null", value, where)
    return value


def _not(name: str, allowed: str, found: Any, where: str) -> FormatError:
    return FormatError(f"{where} has {str(found)[:60]!r} for {name}", allowed, "Look at the file, or record it again.")
