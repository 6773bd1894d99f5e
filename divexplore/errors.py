"""How divexplore says no: every refusal tells what was asked, what is allowed and what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = ["FormatError", "Refusal", "nearest"]


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


def nearest(word: str, allowed: Iterable[str]) -> str:
    """`` Did you mean 'x'?`` for the closest allowed word, or an empty string."""
    close = difflib.get_close_matches(word, list(allowed), n=1)
    return f" Did you mean {close[0]!r}?" if close else ""
