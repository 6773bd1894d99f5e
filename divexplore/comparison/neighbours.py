"""What about a batch moves the observed row: its size, who is in it, how long they are, or where the row stands?"""

from __future__ import annotations

from collections.abc import Sequence

from divexplore.config import RunConfig
from divexplore.errors import Refusal

__all__ = ["QUESTIONS", "neighbour_configs"]

QUESTIONS = {
    "solo": "the prompt alone",
    "copies": "only the size: the other rows are copies",
    "row": "only the place: the last row of the same copies",
    "equal length": "other contents of the same length, so no pads",
    "other fillers": "other prompts of other lengths",
    "longer fillers": "longer rows beside it, so the observed row has left pads",
}
"""The questions about a batch, in the order in which they are asked, and what each varies."""

_LONGER = 3  # tokens


def neighbour_configs(a: RunConfig, rows: int, prompt_ids: Sequence[int]) -> dict[str, RunConfig | str]:
    """A configuration for each question, or why there is none: A with other neighbours in a batch of `rows`."""
    if rows < 2:
        return {}
    ids = list(prompt_ids)
    # rotations keep ids that the model knows and the length; a prompt of equal tokens gives copies, and says nothing
    turned = [ids[turn:] + ids[:turn] for turn in (index % max(len(ids) - 1, 1) + 1 for index in range(rows - 1))]
    longer = [ids + (ids * _LONGER)[:_LONGER]] * (rows - 1)
    changes: dict[str, dict[str, object]] = {
        "solo": {"batch_size": 1, "fill": None, "row": None},
        "copies": {"batch_size": rows, "fill": None, "row": None},
        "row": {"batch_size": rows, "fill": None, "row": rows - 1},
        "equal length": {"batch_size": rows, "fill": turned, "row": None},
        "other fillers": {"batch_size": rows, "fill": "prompts", "row": None},
        "longer fillers": {"batch_size": rows, "fill": longer, "row": None},
    }
    # without fill the other rows are copies, as where batch_size alone was tried: one run fewer
    configs: dict[str, RunConfig | str] = {}
    for question in QUESTIONS:
        try:
            configs[question] = a.replace(**changes[question])
        except Refusal as refusal:
            configs[question] = str(refusal)
    return configs
