"""How does a streamed body read as one response? Chunks of OpenAI's shape, and lines of Ollama's."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from divexplore.errors import FormatError

__all__ = ["is_sse", "joined_lines", "joined_sse"]

_DONE = "[DONE]"
_ARRAYS = ("tokens", "token_logprobs", "top_logprobs", "text_offset", "content")


def is_sse(text: str) -> bool:
    """Whether a text is a stream of server-sent events."""
    return text.lstrip().startswith(("data:", "event:", "id:", "retry:", ":"))


def joined_sse(text: str, parse: Callable[[str], Any], where: str) -> dict[str, Any]:
    """One response of OpenAI's shape from its stream.

    Several tokens a chunk, several completions by their index, chunks without a choice, keep-alive lines and a missing
    ``[DONE]`` are all met in the wild.

    Raises
    ------
    FormatError
        On a stream of another shape, or without a chunk.
    """
    response: dict[str, Any] = {}
    choices: dict[int, dict[str, Any]] = {}
    for line in text.splitlines():
        if not line.startswith("data:"):
            continue
        payload = line.removeprefix("data:").strip()
        if payload in ("", _DONE):
            continue
        chunk = parse(payload)
        if not isinstance(chunk, dict) or not isinstance(chunk.get("choices"), list):
            found = ", ".join(chunk) if isinstance(chunk, dict) else type(chunk).__name__
            raise FormatError(
                f"{where} is a stream of events with {found[:80] or 'nothing'}",
                "streams of OpenAI's shape (choices with delta or text)",
                "Record the response without streaming.",
            )
        response |= {name: value for name, value in chunk.items() if name != "choices" and value is not None}
        for part in chunk["choices"]:
            _add(choices.setdefault(part.get("index", 0), {"index": part.get("index", 0)}), part)
    if not choices:
        raise FormatError(f"{where} is a stream without a choice", "at least one chunk", "Record it again.")
    return response | {"choices": [choices[index] for index in sorted(choices)]}


def joined_lines(lines: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """One response of Ollama's shape from its lines, of which the last is ``done``."""
    whole: dict[str, Any] = {}
    text, thinking = "", ""
    logprobs: list[Any] = []
    for line in lines:
        message = line.get("message")
        part = message if isinstance(message, dict) else line
        text += part.get("content" if isinstance(message, dict) else "response") or ""
        thinking += part.get("thinking") or ""
        logprobs += line.get("logprobs") or []
        whole |= line
    if isinstance(whole.get("message"), dict):
        whole["message"] = whole["message"] | {"content": text, "thinking": thinking}
    else:
        whole |= {"response": text, "thinking": thinking}
    return whole | {"logprobs": logprobs or None}


def _add(whole: dict[str, Any], part: dict[str, Any]) -> None:
    if "text" in part:
        whole["text"] = whole.get("text", "") + (part["text"] or "")
    if isinstance(part.get("delta"), dict):
        message = whole.setdefault("message", {"content": ""})
        message["content"] += part["delta"].get("content") or ""
    for name in ("finish_reason", "stop_reason", "prompt_token_ids"):
        if part.get(name) is not None:
            whole[name] = part[name]
    if part.get("token_ids") is not None:
        whole.setdefault("token_ids", []).extend(part["token_ids"])
    if isinstance(part.get("logprobs"), dict):
        logprobs = whole.setdefault("logprobs", {})
        for name in _ARRAYS:
            if part["logprobs"].get(name) is not None:
                logprobs.setdefault(name, []).extend(part["logprobs"][name])
