"""What does an entry of a record say? A token, its value, and what is known of either."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field, replace
from typing import Any

from divexplore.errors import FormatError

__all__ = ["Choice", "Row", "Token", "ids_of", "is_id", "same_id", "token_of"]

_FLOORS = (-9999.0, -100.0)  # "not within the top 20" of OpenAI and vLLM, "none" of mlx servers
_FLOOR_BELOW = -1e30  # -FLT_MAX of llama.cpp among them
_ROUNDING = 1e-4  # a log-probability of about 0 may come out above it by this much
_ID = re.compile(r"token_id:(\d+)")  # vLLM's return_tokens_as_token_ids
_ESCAPED = re.compile(r"byte(?:s)?: ?((?:\\x[0-9a-fA-F]{2})+)")  # old OpenAI and llama.cpp byte tokens


@dataclass(frozen=True)
class Token:
    """A token with its log-probability, as far as the record tells.

    Parameters
    ----------
    text
        As the engine wrote it; ``None`` where only an id was recorded.
    id
        The engine's id.
    raw
        Its bytes, where the record has them.
    logprob
        Nats; ``None`` where there is none, `kind` says why.
    kind
        ``value``, ``missing``, ``floor`` (a number that stands for none), ``-inf`` or ``nan``.
    """

    text: str | None
    id: int | None
    raw: bytes | None
    logprob: float | None
    kind: str = "value"

    @property
    def key(self) -> bytes | None:
        """The bytes that the token is known by across records; ``None`` where they were lost (U+FFFD, empty)."""
        raw = self.raw if self.raw is not None else (self.text or "").encode("utf-8", errors="surrogatepass")
        return None if not raw or b"\xef\xbf\xbd" in raw else raw


@dataclass(frozen=True)
class Row:
    """One step: the token taken and the alternatives as recorded; `lossy` counts keys that stood for several of them."""

    chosen: Token
    others: tuple[Token, ...] = ()
    lossy: int = 0


@dataclass(frozen=True, kw_only=True)
class Choice:
    """One completion of a response, whatever the engine.

    Parameters
    ----------
    shape
        Which shape the response had, in words.
    index
        Its number among the completions of one response.
    text
        The text as the engine reports it.
    rows
        A row a generated token; none where only a text was recorded.
    finish
        Why it ended, in the engine's word.
    prompt_ids
        Ids of the prompt; empty where they were not recorded.
    prompt_text
        The prompt as the response repeats it.
    model
        The model's name.
    values
        ``logprobs``, or ``post-sampling logprobs`` where they are known to come after temperature and filters.
    echoed
        Settings that the response repeats: what ran.
    facts
        What else was recorded, as plain JSON values.
    notes
        What a reader should know, a sentence each.
    cut
        Why it is not whole; ``None`` where it is.
    """

    shape: str
    index: int = 0
    text: str | None = None
    rows: tuple[Row, ...] = ()
    finish: str | None = None
    prompt_ids: tuple[int, ...] = ()
    prompt_text: str | None = None
    model: str | None = None
    values: str = "logprobs"
    echoed: dict[str, Any] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    cut: str | None = None


def token_of(
    text: Any, logprob: Any, where: str, *, token_id: Any = None, raw: Any = None, probability: bool = False
) -> Token:
    """A token of a record.

    Parameters
    ----------
    text, logprob, token_id, raw
        As they stand in the record; `raw` is a list of bytes.
    where
        What to call the place in a message.
    probability
        Whether `logprob` is a probability.

    Raises
    ------
    FormatError
        On a value that is no log-probability, and on a token that is no token.
    """
    if text is not None and not isinstance(text, str):
        raise _not("a token", text, where)
    if match := _ID.fullmatch(text or ""):
        text, token_id = None, int(match[1])
    if match := _ESCAPED.fullmatch(text or ""):
        raw = list(bytes.fromhex(match[1].replace("\\x", "")))
    if token_id is not None and not is_id(token_id):
        raise _not("a token id", token_id, where)
    # `bytes` would also take a number, and make as many zeros of it
    if raw is not None and not (isinstance(raw, list) and all(type(byte) is int and 0 <= byte < 256 for byte in raw)):
        raise _not("a list of bytes", raw, where, "a list of numbers from 0 to 255, or null")
    known = bytes(raw) if raw or (raw is not None and not text) else None  # no bytes of a text are none recorded
    value, kind = _value(logprob, where, probability)
    return Token(text, token_id, known, value, kind)


def ids_of(given: Any, what: str, where: str) -> tuple[int, ...]:
    """Token ids as a list of a record has them; none where there is no list.

    Raises
    ------
    FormatError
        On what is no list of token ids.
    """
    if given is None:
        return ()
    if not isinstance(given, list):
        raise _not(what, given, where, "a list of token ids")
    if wrong := [token for token in given if not is_id(token)]:
        raise _not(f"a token id of {what}", wrong[0], where, "numbers from 0 to 2147483647")
    return tuple(given)


def is_id(value: Any) -> bool:
    """Whether a value can be a token id."""
    return type(value) is int and 0 <= value < 2**31


def same_id(token: Token, token_id: int, where: str) -> Token:
    """The token with the engine's id for it.

    Raises
    ------
    FormatError
        Where its own entry has another one.
    """
    if token.id is not None and token.id != token_id:
        raise FormatError(
            f"{where} has the id {token.id} in its entry and {token_id} in the list of token ids",
            "one id for a token",
            "Record it again: one of the two lists is shifted.",
        )
    return replace(token, id=token_id)


def _value(raw: Any, where: str, probability: bool) -> tuple[float | None, str]:
    """A log-probability, nats, and its kind; what stands for no value is never a number."""
    if raw is None:
        return None, "missing"
    if isinstance(raw, bool) or not isinstance(raw, int | float):
        raise _not("a log-probability", raw, where)
    value = float(raw)
    if math.isnan(value):
        return None, "nan"
    if probability:
        if not 0 <= value <= 1 + _ROUNDING:
            raise _not("a probability", raw, where)
        value = math.log(value) if value > 0 else -math.inf
    if value == -math.inf:
        return value, "-inf"
    if value > _ROUNDING:
        raise FormatError(
            f"{where} has a log-probability of {raw}, which is above 0",
            "log-probabilities in nats, 0 or less",
            "See whether the engine wrote probabilities, or a number that stands for none.",
        )
    if value in _FLOORS or value <= _FLOOR_BELOW:
        return None, "floor"
    return value, "value"


def _not(what: str, found: Any, where: str, allowed: str | None = None) -> FormatError:
    return FormatError(
        f"{where} has {str(found)[:60]!r} for {what}", allowed or what, "Look at the file, or record it again."
    )
