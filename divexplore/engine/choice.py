"""Which token follows a raw row? The best one, or what transformers' own processors and its draw make of the row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch

from divexplore.config import RunConfig
from divexplore.engine.statistics import best_id
from divexplore.errors import Refusal

if TYPE_CHECKING:
    from transformers import LogitsProcessorList

__all__ = ["Choice", "choice_of", "decode_path"]

_GREEDY = "greedy"  # the raw argmax, the lowest id among ties

Choice = Callable[[torch.Tensor, Sequence[int]], int]
"""Takes a raw row of shape ``(vocab,)`` and the ids generated so far, and gives the id that follows."""


def decode_path(config: RunConfig) -> str:
    """What chooses the tokens, in a few words: ``greedy, repetition_penalty 1.3 over output``, or ``sample, top_k 50``.

    The seed is not part of it: it is recorded beside it.
    """
    words = ["sample" if config.do_sample else _GREEDY]
    if config.repetition_penalty is not None:
        scope = config.penalty_scope or "all"
        over = f"the last {scope}" if isinstance(scope, int) else scope
        words.append(f"repetition_penalty {config.repetition_penalty} over {over}")
    if config.suppress_tokens is not None:
        words.append(f"suppress_tokens {' '.join(map(str, config.suppress_tokens))}")
    for name in ("temperature", "top_k", "top_p"):
        if (value := getattr(config, name)) is not None:
            words.append(f"{name} {value}")
    return ", ".join(words)


def choice_of(config: RunConfig, prompt_ids: Sequence[int], vocab_size: int) -> Choice | None:
    """The rule of a configuration, or ``None`` where it is the raw argmax.

    Scores are computed in fp32 and drawn by ``torch.multinomial`` from torch's own generator, as `generate` does for one
    row: the same seed gives the same ids.

    Parameters
    ----------
    prompt_ids
        The observed prompt, pads excluded.
    vocab_size
        Ids of the model.

    Raises
    ------
    Refusal
        Where `config` suppresses ids that the model lacks, or all that it has.
    """
    if decode_path(config) == _GREEDY:
        return None
    _check_suppressed(config.suppress_tokens or (), vocab_size)
    processors = _processors(config, len(prompt_ids))
    window = config.penalty_scope if isinstance(config.penalty_scope, int) else 0  # 0: all of it

    def choose(row: torch.Tensor, output: Sequence[int]) -> int:
        before = [*prompt_ids, *output][-window:]
        ids = torch.tensor([before], dtype=torch.int64, device=row.device)
        scores = processors(ids, row[None].float())
        if not torch.isfinite(scores.max()):
            raise RuntimeError(f"no finite score is left after {decode_path(config)}; use less extreme values")
        if config.do_sample:
            return int(torch.multinomial(scores.softmax(-1), 1))
        return best_id(scores[0])

    return choose


def _processors(config: RunConfig, prompt_length: int) -> LogitsProcessorList:
    """Transformers' processors in the order in which `generate` applies them; those that change nothing are left out."""
    from transformers import generation

    found = generation.LogitsProcessorList()
    if config.repetition_penalty not in (None, 1.0):
        ignored = prompt_length if config.penalty_scope == "output" else None
        found.append(generation.RepetitionPenaltyLogitsProcessor(config.repetition_penalty, ignored))
    if config.suppress_tokens is not None:
        found.append(generation.SuppressTokensLogitsProcessor(config.suppress_tokens))
    if config.temperature not in (None, 1.0):
        found.append(generation.TemperatureLogitsWarper(config.temperature))
    if config.top_k is not None:
        found.append(generation.TopKLogitsWarper(config.top_k))
    if config.top_p not in (None, 1.0):
        found.append(generation.TopPLogitsWarper(config.top_p))
    return found


def _check_suppressed(ids: Sequence[int], vocab_size: int) -> None:
    outside = [token for token in ids if token >= vocab_size]
    if outside:
        raise Refusal(f"suppress_tokens with {outside[0]}", f"ids from 0 to {vocab_size - 1}", "Leave that id out.")
    if len(ids) == vocab_size:
        raise Refusal("suppress_tokens with every id of the model", "fewer", "Leave at least one id to be taken.")
