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
from divexplore.sources.stream import is_sse, joined_sse, lines_of, whole_responses
from divexplore.trace import Trace

__all__ = ["read_records"]

_ENVELOPE = {"request", "response", "sse"}
_DEEPEST = 100  # levels; a saved tool's schema is the deepest part of a record
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
    where = path.name
    try:
        for where, item in _items(text, path.name):
            request, response, labels = _opened(item, where)
            for choice in choices_of(response, request, where):
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
    """Each recorded value with its place; the chunks or lines of a streamed response are one value."""
    if is_sse(text):
        yield name, joined_sse(text, _parse, name)
        return
    broken: json.JSONDecodeError | None = None
    try:
        whole = _loads(text, name)
    except json.JSONDecodeError as error:
        broken, whole = error, None
    if whole is None:
        yield from whole_responses(_lines(text, name, broken))
    elif isinstance(whole, list):
        yield from whole_responses((f"{name}, item {index}", item) for index, item in enumerate(whole))
    else:
        yield from whole_responses([(name, whole)])


def _lines(text: str, name: str, broken: json.JSONDecodeError | None) -> Iterator[tuple[str, Any]]:
    """A JSON value a line; `broken` says why the text is not one value as a whole."""
    first = True
    for number, line in enumerate(lines_of(text), 1):
        if not line.strip():
            continue
        try:
            item = _loads(line, f"{name}, line {number}")
        except json.JSONDecodeError as error:
            if (
                first and broken is not None and broken.lineno > number
            ):  # one value over several lines, and not to its end
                raise _no_json(name, broken, text) from error
            raise _no_json(f"{name}, line {number}", error, line) from error
        first = False
        yield f"{name}, line {number}", item


def _opened(item: Any, where: str) -> tuple[Mapping[str, Any] | None, Any, dict[str, Any]]:
    """Request, response and labels."""
    if not isinstance(item, dict) or not (isinstance(item.get("request"), dict) or _holds_response(item)):
        return None, item, {}
    request, response, sse = item.get("request"), item.get("response"), item.get("sse")
    if request is not None and not isinstance(request, dict):
        raise FormatError(
            f"{where} has {str(request)[:60]!r} for a request", "an object, or no request", "Record the request's body."
        )
    if response is None and isinstance(sse, str):
        response = joined_sse(sse, _parse, f"{where}, its stream")
    if response is None:
        raise FormatError(f"{where} holds a request and no response", SHAPES, "Record the response as well.")
    parts = response if isinstance(response, list) else [response]
    joined = [part for _, part in whole_responses((where, part) for part in parts)]
    labels = {name: value for name, value in item.items() if name not in _ENVELOPE and isinstance(value, str | int)}
    return request, joined if isinstance(response, list) else joined[0], labels


def _holds_response(item: dict[str, Any]) -> bool:
    return isinstance(item.get("response"), dict | list) or isinstance(item.get("sse"), str)


def _parse(text: str, where: str) -> Any:
    try:
        return _loads(text, where)
    except json.JSONDecodeError as error:
        raise _no_json(where, error, text) from error


def _no_json(where: str, error: json.JSONDecodeError, text: str) -> FormatError:
    cut = error.msg.startswith("Unterminated string") or error.pos >= len(text.rstrip())
    words = "it ends in the middle of a value; " if cut else ""
    return FormatError(
        f"{where} is no JSON ({words}{error})",
        "JSON, JSON a line, or events of data",
        "Look at it, or record it again.",
    )


def _loads(text: str, where: str) -> Any:
    """A JSON value, not nested deeper than any record is.

    Raises
    ------
    json.JSONDecodeError
        On a text that is no JSON.
    FormatError
        On one that is nested too deep.
    """
    try:
        value = _whole(json.loads(text, object_pairs_hook=_counted))
    except RecursionError:
        raise _too_deep(where) from None
    except json.JSONDecodeError:
        raise
    except ValueError as error:  # a number of more digits than Python reads
        raise FormatError(f"{where} is no JSON that can be read ({error})", SHAPES, "Look at it.") from error
    level = [value]
    for _ in range(_DEEPEST):
        level = [
            child
            for holder in level
            if isinstance(holder, dict | list)
            for child in (holder.values() if isinstance(holder, dict) else holder)
        ]
        if not level:
            return value
    raise _too_deep(where)


def _too_deep(where: str) -> FormatError:
    return FormatError(f"{where} is nested deeper than {_DEEPEST} levels", f"up to {_DEEPEST}", "Look at it.")


def _counted(pairs: list[tuple[str, Any]]) -> _Object:
    found = _Object((_whole(key), _whole(value)) for key, value in pairs)
    found.repeated = len(pairs) - len(found)
    return found


def _whole(value: Any) -> Any:
    """Half of a surrogate pair, as a cut of an emoji leaves it in JSON, is no text: it becomes U+FFFD, which identifies nothing."""
    if isinstance(value, str):
        return _HALF.sub("\N{REPLACEMENT CHARACTER}", value)
    return [_whole(item) for item in value] if isinstance(value, list) else value
