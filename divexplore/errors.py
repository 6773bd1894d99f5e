"""How divexplore says no: every refusal tells what was asked, what is allowed and what to do."""

from __future__ import annotations

import difflib
import functools
import inspect
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

__all__ = [
    "FormatError",
    "Interrupted",
    "Refusal",
    "UnknownArgument",
    "nearest",
    "path_of",
    "refuse_unknown",
    "told_nearest",
]

_P = ParamSpec("_P")
_R = TypeVar("_R")


class Refusal(ValueError):
    """A request that cannot be served as it stands.

    Parameters
    ----------
    asked
        What came, as the caller wrote it.
    allowed
        What would have been accepted.
    do
        What to do next, as an instruction.
    """

    def __init__(self, asked: str, allowed: str, do: str) -> None:
        super().__init__(f"{asked}. Allowed: {allowed}. {do}")
        self.asked, self.allowed, self.do = asked, allowed, do

    def __reduce__(self) -> tuple[type[Refusal], tuple[str, str, str]]:
        return type(self), (self.asked, self.allowed, self.do)

    def to_dict(self) -> dict[str, str]:
        """The refusal as the command line prints it with ``--json``."""
        return {"asked": self.asked, "allowed": self.allowed, "do": self.do}


class FormatError(Refusal):
    """A file that is not what it should be: foreign, truncated, corrupted, or written by a newer divexplore."""


class UnknownArgument(Refusal, TypeError):
    """A keyword that a function does not take: the `TypeError` that Python would raise, which also names the nearest."""


class Interrupted(RuntimeWarning):
    """An interrupt ended a run as Stop does."""


def nearest(word: str, allowed: Iterable[str]) -> str:
    """`` Did you mean 'x'?`` for the closest allowed word, or an empty string."""
    close = difflib.get_close_matches(word, list(allowed), n=1)
    return f" Did you mean {close[0]!r}?" if close else ""


def refuse_unknown(given: Iterable[str], names: Iterable[str]) -> None:
    """Refuse the first of the keywords `given` that is none of `names`, with the nearest of these."""
    names = list(names)
    for word in given:
        if word not in names:
            raise UnknownArgument(
                f"unknown argument {word!r}", ", ".join(names), f"Correct the name.{nearest(word, names)}"
            )


def told_nearest(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """The same function, which refuses a keyword that it does not take with the nearest that it does."""
    taken = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    known = inspect.signature(function).parameters.items()
    names = [name for name, parameter in known if parameter.kind in taken and name != "self"]

    @functools.wraps(function)
    def asked(*given: _P.args, **named: _P.kwargs) -> _R:
        refuse_unknown(named, names)
        return function(*given, **named)

    return asked


def path_of(value: Any, what: str) -> Path:
    """A path from a text or a path.

    Parameters
    ----------
    what
        What it should lead to, such as ``a file that Trace.save wrote``.

    Raises
    ------
    Refusal
        On anything else, and on a text that can be no path.
    """
    if not isinstance(value, str | os.PathLike) or not str(value).strip() or "\0" in str(value):
        came = "an empty path" if value == "" else f"{type(value).__name__} {str(value)[:80]!r} in place of a path"
        raise Refusal(came, f"the path of {what}", "Pass that path as a text or a Path.")
    return Path(value)
