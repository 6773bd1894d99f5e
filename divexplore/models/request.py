"""Can a request be served, as far as that can be told before its model is loaded? Imports neither torch nor transformers."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from divexplore.errors import Refusal

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from divexplore.models.model import Model, Prompt

__all__ = ["check_steps", "checked_prompt", "opened", "whole_ids"]


def opened(
    model: Model | PreTrainedModel | str,
    prompt: str | Sequence[int],
    *,
    chat: bool | None = None,
    max_new_tokens: int = 1,
) -> tuple[Model, Prompt]:
    """The loaded model and the encoded prompt of a request, which is checked first: a load takes seconds.

    Raises
    ------
    Refusal
        On a request that cannot be served, as `checked_prompt`, `check_steps`, `divexplore.load_model` and
        `Model.encode` raise it.
    """
    check_steps(max_new_tokens)
    prompt = checked_prompt(prompt)
    from divexplore.models.load import load_model

    model = load_model(model)
    return model, model.encode(prompt, chat=chat)


def check_steps(max_new_tokens: Any) -> None:
    """Refuse a number of steps that is none."""
    if isinstance(max_new_tokens, bool) or not isinstance(max_new_tokens, int) or max_new_tokens < 1:
        raise Refusal(f"max_new_tokens={max_new_tokens!r}", "a whole number, 1 or more", "Correct max_new_tokens.")


def checked_prompt(prompt: Any) -> str | tuple[int, ...]:
    """A text as it is, or ids as whole numbers; only a model knows whether they are in its vocabulary.

    Raises
    ------
    Refusal
        On an empty prompt, a text that is no Unicode, or what is neither a text nor ids.
    """
    if not isinstance(prompt, str):
        return whole_ids(prompt, "prompt")
    if not prompt.strip():
        raise Refusal("an empty prompt", "a text or token ids", "Write at least one word.")
    if any("\ud800" <= character <= "\udfff" for character in prompt):
        raise Refusal("a prompt that is no Unicode text", "valid Unicode", "Remove the bytes that are no characters.")
    return prompt


def whole_ids(ids: Any, what: str) -> tuple[int, ...]:
    """Token ids as whole numbers, at least one.

    Parameters
    ----------
    what
        What they are to the caller, such as ``prompt``, for the refusal.
    """
    allowed = "a text or a list of token ids" if what == "prompt" else "a list of token ids"
    try:
        given = list(ids)
        if isinstance(ids, str | bytes | bytearray) or any(isinstance(i, bool) for i in given):
            raise TypeError  # Python takes their parts for numbers, or could
        whole = tuple(map(operator.index, given))
    except TypeError:
        raise Refusal(f"the {what} {str(ids)[:80]}", allowed, "Pass that.") from None
    if not whole:
        raise Refusal(f"an empty {what}", allowed, "Give at least one id.")
    return whole
