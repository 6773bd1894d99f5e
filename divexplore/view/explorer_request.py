"""What the run panel asks for, as plain values: made from the Explorer's arguments, read when Run is pressed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from divexplore.config import PRESETS, RunConfig, parse_value
from divexplore.errors import Refusal
from divexplore.models.request import check_steps, checked_prompt
from divexplore.view.explorer_form import why_not
from divexplore.view.explorer_models import Shelf

__all__ = ["config_of", "first_request", "moved_off", "prompt_of"]

PROMPT = "The giant"  # with the bundled model, batch 1 and batch 8 part here
OWN = "own"  # no preset: the person's own two configurations


def first_request(shelf: Shelf, prompt: Any, a: Any, b: Any, steps: int) -> dict[str, Any]:
    """What the panel shows at first."""
    name = OWN
    if a is None and b is None:
        name = next((name for name, preset in PRESETS.items() if why_not(preset) is None), next(iter(PRESETS)))
        a, b = PRESETS[name].a, PRESETS[name].b
    check_steps(steps)
    ids = shelf.takes_ids if prompt is None else not isinstance(prompt, str)
    if ids and prompt is not None:
        prompt = checked_prompt(prompt)
    text = PROMPT if prompt is None and not ids else prompt
    return {
        "model": shelf.first,
        "prompt": ", ".join(str(i) for i in (text or ())) if ids else text,
        "ids": ids,
        "steps": steps,
        "preset": name,
        "chat": None,
        "evidence": "default",
        "a": RunConfig.of(a).to_dict(),
        "b": RunConfig.of(b).to_dict(),
    }


def prompt_of(request: Mapping[str, Any]) -> str | list[int]:
    """The prompt as `divexplore.compare` takes it: the text as it was typed, or ids.

    Raises
    ------
    Refusal
        On an empty prompt, or ids that are no numbers.
    """
    text = request["prompt"]
    checked_prompt(text)  # a text, even where it is a list of ids
    if not request["ids"]:
        return text
    try:
        return [int(word) for word in text.replace(",", " ").split()]
    except ValueError:
        raise Refusal(f"the prompt {text[:80]!r}", "token ids such as 1, 5, 9", "Write whole numbers.") from None


def config_of(fields: Mapping[str, Any]) -> RunConfig:
    """One side's configuration; what was typed is read by its field's name, fields that were emptied are left out."""
    read = {name: parse_value(name, value) if isinstance(value, str) else value for name, value in fields.items()}
    return RunConfig.of({name: value for name, value in read.items() if value is not None})


def moved_off(request: dict[str, Any], presets: list[dict[str, Any]]) -> dict[str, Any]:
    """The request with the first preset that can differ, where its own turned out not to."""
    reasons = {preset["name"]: preset["reason"] for preset in presets}
    if not reasons.get(request["preset"]):
        return request
    better = next((preset for preset in presets if not preset["reason"]), None)
    return request if better is None else {**request, "preset": better["name"], "a": better["a"], "b": better["b"]}
