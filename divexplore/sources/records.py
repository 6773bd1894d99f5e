"""What did a serving engine record? A file of responses, each with or without its request, as traces."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from divexplore.errors import FormatError, Refusal
from divexplore.sources.build import trace_of
from divexplore.sources.shapes import SHAPES, choices_of
from divexplore.sources.stream import is_sse, joined_lines, joined_sse
from divexplore.trace import Trace

__all__ = ["read_records"]

_ENVELOPE = {"request", "response", "sse"}
_HALF = re.compile("[\ud800-\udfff]")


class _Object(dict[str, Any]):
    """A JSON object that knows how many of its keys came more than once: two tokens of one text share a key."""

    repeated = 0


def read_records(path: str | Path) -> list[Trace]:
    """Read recorded responses of serving engines, a trace a completion.

    Parameters
    ----------
    path
        A file with one JSON value, a JSON value a line, or a stream of server-sent events. Each value is a response, or
        an object of ``request`` and ``response`` (or ``sse``, a streamed body) with labels such as ``arm`` beside them.

    Returns
    -------
    list of Trace
        In the order of the file. ``meta["record"]`` tells the shape, the request, whether it was greedy (``None`` where
        nobody knows), what tokens are known by (``identity``) and what the values are. No text is ever tokenised again:
        a record of a text alone has no steps.

    Raises
    ------
    FileNotFoundError
        Where there is no file.
    FormatError
        On a shape that is not known, rows that do not fit together, and values that are no log-probabilities.
    """
    path = Path(path)
    if path.is_dir():
        raise Refusal(f"{path.name} is a folder", "a file of recorded responses", "Name one of its files.")
    if not path.is_file():
        raise FileNotFoundError(f"no record at {path}")
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise FormatError(
            f"{path.name} is no UTF-8 text ({error.reason})", SHAPES, "Name a file of records."
        ) from error
    traces: list[Trace] = []
    for where, item in _items(text, path.name):
        request, response, labels = _opened(item, where)
        try:
            choices = choices_of(response, request, where)
            for choice in choices:
                place = {"file": path.name, "number": len(traces), "place": where}
                traces.append(trace_of(choice, request, labels, place))
        except Refusal:
            raise
        except (AttributeError, LookupError, TypeError, ValueError, OverflowError) as error:
            raise FormatError(
                f"{where} has a known shape, but not its fields ({error})", SHAPES, "Record it again."
            ) from error
    if not traces:
        raise FormatError(f"{path.name} holds no completion", SHAPES, "Name a file of records.")
    return traces


def _items(text: str, name: str) -> Iterator[tuple[str, Any]]:
    """Each recorded value with its place; the lines of a streamed Ollama response are one value."""
    if is_sse(text):
        yield name, joined_sse(text, lambda part: _parse(part, name), name)
        return
    try:
        whole = _loads(text)
    except ValueError:
        whole = None
    if whole is not None:
        for index, item in enumerate(whole if isinstance(whole, list) else [whole]):
            yield (f"{name}, item {index}" if isinstance(whole, list) else name), item
        return
    waiting: list[dict[str, Any]] = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        item = _parse(line, f"{name}, line {number}")
        if isinstance(item, dict) and item.get("done") is False:
            waiting.append(item)
            continue
        yield f"{name}, line {number}", joined_lines([*waiting, item]) if waiting else item
        waiting = []
    if waiting:
        raise FormatError(f"{name} ends in the middle of a stream", "a stream up to its last line", "Record it again.")


def _opened(item: Any, where: str) -> tuple[Mapping[str, Any] | None, Any, dict[str, Any]]:
    """Request, response and labels."""
    if not isinstance(item, dict) or not (isinstance(item.get("request"), dict) or _holds_response(item)):
        return None, item, {}
    request, response, sse = item.get("request"), item.get("response"), item.get("sse")
    if response is None and isinstance(sse, str):
        response = joined_sse(sse, lambda part: _parse(part, where), where)
    if response is None:
        raise FormatError(f"{where} holds a request and no response", SHAPES, "Record the response as well.")
    labels = {name: value for name, value in item.items() if name not in _ENVELOPE and isinstance(value, str | int)}
    return request, response, labels


def _holds_response(item: dict[str, Any]) -> bool:
    return isinstance(item.get("response"), dict | list) or isinstance(item.get("sse"), str)


def _parse(text: str, where: str) -> Any:
    try:
        return _loads(text)
    except ValueError as error:
        raise FormatError(
            f"{where} is no JSON ({error})", "JSON, JSON a line, or events of data", "Look at it."
        ) from error


def _loads(text: str) -> Any:
    return _whole(json.loads(text, object_pairs_hook=_counted))


def _counted(pairs: list[tuple[str, Any]]) -> _Object:
    found = _Object((_whole(key), _whole(value)) for key, value in pairs)
    found.repeated = len(pairs) - len(found)
    return found


def _whole(value: Any) -> Any:
    """Half of a surrogate pair, as a cut of an emoji leaves it in JSON, is no text: it becomes U+FFFD, which identifies nothing."""
    if isinstance(value, str):
        return _HALF.sub("\N{REPLACEMENT CHARACTER}", value)
    return [_whole(item) for item in value] if isinstance(value, list) else value
