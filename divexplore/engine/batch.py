"""Fill a batch: the observed prompt among other rows, left-padded, with the mask and positions that `generate` derives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from divexplore.config import RunConfig
from divexplore.errors import Refusal

if TYPE_CHECKING:
    from divexplore.models.model import Model

__all__ = ["BUNDLED_PROMPTS", "Batch", "fill_batch"]

BUNDLED_PROMPTS = (
    "Once upon a time there lived an old woman who",
    "The fox said to the wolf,",
    "In a dark forest",
    "A poor fisherman went down to the sea and cast his net three times, and the third time",
    "The king said to his daughter,",
    "At last he came to a castle where",
    "There were once three brothers who",
    "The wind blew and the snow fell, and",
)
"""Fillers of different lengths for ``fill="prompts"``, used in turn."""


@dataclass(frozen=True)
class Batch:
    """Rows of one forward pass.

    Parameters
    ----------
    prompts
        Token ids of every row, pads excluded, shape ``(rows, any length)``.
    row
        Index of the observed row.
    left_pad
        Pads before the longest row; shorter rows have more.
    pad_id
        The id fed as a pad.
    copies
        Whether every row holds the observed prompt.
    """

    prompts: tuple[tuple[int, ...], ...]
    row: int
    left_pad: int
    pad_id: int
    copies: bool

    @property
    def width(self) -> int:
        """Columns of the prefill, pads included."""
        return max(map(len, self.prompts)) + self.left_pad

    @property
    def pads(self) -> list[int]:
        """Pads of every row."""
        return [self.width - len(prompt) for prompt in self.prompts]

    def inputs(self, device: torch.device) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor]:
        """Ids, mask and positions of the prefill, each of shape ``(rows, width)`` and int64.

        As `generate` passes them: no mask where it would be all ones, positions always (``cumsum(mask) - 1``, pads 0).
        """
        pads = self.pads
        ids = [[self.pad_id] * pad + list(prompt) for pad, prompt in zip(pads, self.prompts, strict=True)]
        mask = torch.tensor([[0] * pad + [1] * (self.width - pad) for pad in pads], device=device)
        positions = (mask.cumsum(-1) - 1).masked_fill(mask == 0, 0)
        return torch.tensor(ids, device=device), mask if any(pads) else None, positions


def fill_batch(model: Model, prompt_ids: Sequence[int], config: RunConfig, *, chat: bool) -> Batch:
    """The batch that `config` asks for around one observed prompt."""
    row = config.row or 0
    others = _fillers(model, tuple(prompt_ids), config, chat)
    rows = [*others[:row], tuple(prompt_ids), *others[row:]]
    limit = model.context_length
    batch = Batch(tuple(rows), row, config.left_pad or 0, _pad_id(model), config.fill in (None, "copies"))
    if limit is not None and batch.width > limit:
        raise Refusal(
            f"a batch {batch.width} tokens wide",
            f"up to the model's context of {limit} tokens",
            "Shorten the longest row or the padding.",
        )
    return batch


def _fillers(model: Model, prompt_ids: tuple[int, ...], config: RunConfig, chat: bool) -> list[tuple[int, ...]]:
    count, fill = config.rows - 1, config.fill
    if fill in (None, "copies"):
        return [prompt_ids] * count
    if fill == "prompts" and model.tokenizer is None:
        raise Refusal(
            "fill='prompts' for a model without a tokenizer",
            "'copies' or lists of token ids",
            "Load it with its tokenizer.",
        )
    texts: Sequence[str | Sequence[int]] = fill if not isinstance(fill, str) else BUNDLED_PROMPTS
    return [model.encode(texts[index % len(texts)], chat=chat).ids for index in range(count)]


def _pad_id(model: Model) -> int:
    candidates = [getattr(model.tokenizer, "pad_token_id", None), getattr(model.config, "pad_token_id", None)]
    candidates += sorted(model.eos_ids)
    for candidate in candidates:
        if isinstance(candidate, int) and 0 <= candidate < model.vocab_size:
            return candidate
    return 0
