"""How is a token shown whose text cannot be seen, or would steer a terminal? As ``visible`` in ``format.js`` does it."""

from __future__ import annotations

import unicodedata

__all__ = ["visible"]

_UNSEEN = {"Cc", "Cf", "Zl", "Zp", "Co", "Cn"}
_GLYPHS = {"\r": "␍", "\n": "⏎", "\t": "→|"}
_JOINER = "\u200d"


def visible(text: str, *, spaces: bool = False) -> str:
    """A token's text with nothing left in it that cannot be seen or that turns its neighbours round.

    Parameters
    ----------
    spaces
        Whether blanks are shown as ␣; a text of blanks only always is.
    """
    if not text:
        return "∅"
    shown = "".join(_seen(text, place) for place in range(len(text)))
    if unicodedata.category(shown[0]).startswith("M"):
        shown = f"◌{shown}"
    if (spaces and not shown.startswith("⟨id ")) or not shown.strip():
        shown = "".join("␣" if unicodedata.category(c) == "Zs" else c for c in shown)
    return shown


def _seen(text: str, place: int) -> str:
    char = text[place]
    if unicodedata.category(char) not in _UNSEEN:
        return char
    around = text[place - 1 : place] + text[place + 1 : place + 2]
    if char == _JOINER and len(around) == 2 and all(ord(c) > 0x2000 for c in around):  # joins an emoji
        return char
    return _GLYPHS.get(char, f"⟨{ord(char):04X}⟩")
