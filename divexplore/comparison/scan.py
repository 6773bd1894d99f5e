"""Which prompts and steps are near a tie? One configuration is enough to tell where another one could split."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from divexplore.config import RunConfig
from divexplore.engine.interrupt import interruptible
from divexplore.engine.run import decode
from divexplore.errors import Refusal
from divexplore.models.fairy_tales.prompts import PROMPTS
from divexplore.models.load import load_model
from divexplore.models.request import check_steps, checked_prompt

if TYPE_CHECKING:
    import polars as pl
    from transformers import PreTrainedModel

    from divexplore.models.model import Model
    from divexplore.trace import Trace

__all__ = ["find_near_ties"]

Progress = Callable[[int, int], None]
"""Called with the prompts done and the prompts asked for."""


def find_near_ties(
    model: Model | PreTrainedModel | str = "fairy-tales",
    prompts: Sequence[str | Sequence[int]] | None = None,
    config: RunConfig | Mapping[str, Any] | None = None,
    budget_seconds: float = 20,
    max_new_tokens: int = 48,
    epsilon: float | None = None,
    *,
    chat: bool | None = None,
    progress: Progress | None = None,
) -> pl.DataFrame:
    """Decode prompts under one configuration and rank all steps by their margin in ULPs.

    A step can only flip where the other configuration moves its logits by at least half its margin, so the smallest
    margins are where a pair will split on this machine, if it splits at all.

    Parameters
    ----------
    prompts
        Texts or id lists; ``None`` takes the bundled beginnings of fairy tales.
    config
        The configuration to decode with; ``None`` is the model's and the process's own set-up.
    budget_seconds
        No further step begins after this time. A `RuntimeWarning` then says how many prompts were run. A first interrupt
        ends the scan in the same way: the steps found so far are given.
    max_new_tokens
        Steps at most, of each prompt.
    epsilon
        Logits by which another configuration is expected to move a row, such as a comparison's largest epsilon.
    chat
        Whether the chat template wraps a text; ``None`` uses it where the tokenizer has one.
    progress
        Called after each prompt; see `Progress`.

    Returns
    -------
    polars.DataFrame
        A row a step, the smallest margin first: ``prompt_index``, ``prompt``, ``step``, ``text`` (of the token taken),
        ``runner_up`` (text of the second), ``margin`` (logits), ``margin_ulps``, ``exact_tie``, ``at_risk`` (margin at
        most ``2 * epsilon``; null without `epsilon`).

    Raises
    ------
    Refusal
        On a request that cannot be served.
    """
    import polars as pl

    _check(prompts, budget_seconds, epsilon)
    check_steps(max_new_tokens)
    config = RunConfig.of(config)
    texts = [checked_prompt(prompt) for prompt in (PROMPTS if prompts is None else prompts)]
    model = load_model(model)
    if prompts is None and model.tokenizer is None:
        raise Refusal("the bundled prompts for a model without a tokenizer", "lists of token ids", "Pass prompts.")
    encoded = [
        model.encode(prompt, chat=chat) for prompt in texts
    ]  # all of them: a bad one is refused before the first run
    deadline = time.monotonic() + budget_seconds
    tables: list[pl.DataFrame] = []
    with interruptible(lambda: time.monotonic() >= deadline) as stopping:
        for index, (shown, prompt) in enumerate(zip(texts, encoded, strict=True)):
            trace = decode(model, prompt, config, max_new_tokens, stop=stopping)
            tables.append(_steps(trace, index, shown))
            if trace.meta["error"]:
                told = f"prompt {index + 1} ended at step {len(trace)}: {trace.meta['error']}"
                warnings.warn(told, RuntimeWarning, stacklevel=3)
            if progress is not None:
                progress(index + 1, len(encoded))
            if stopping.interrupted:
                break
            if stopping() and (trace.partial or index + 1 < len(encoded)):
                warnings.warn(
                    f"the budget of {budget_seconds:g} s ended in prompt {index + 1} of {len(encoded)}, "
                    f"at step {len(trace)}; a larger budget_seconds runs more",
                    RuntimeWarning,
                    stacklevel=3,  # the public name is a function around this one
                )
                break
    stopping.tell()
    risk = pl.lit(None, pl.Boolean) if epsilon is None else pl.col("margin") <= 2 * epsilon
    return pl.concat(tables).with_columns(at_risk=risk).sort("margin_ulps", "margin", "prompt_index", "step")


def _steps(trace: Trace, index: int, prompt: str | Sequence[int]) -> pl.DataFrame:
    import polars as pl

    texts = trace.meta["texts"]
    return trace.table.select(
        prompt_index=pl.lit(index, pl.Int32),
        prompt=pl.lit(prompt if isinstance(prompt, str) else " ".join(map(str, prompt))),
        step="step",
        text="text",
        runner_up=pl.Series([texts[str(second)] for second in trace.top_ids[:, 1].tolist()], dtype=pl.String),
        margin="margin",
        margin_ulps="margin_ulps",
        exact_tie="exact_tie",
    )


def _check(prompts: Any, budget_seconds: Any, epsilon: Any) -> None:
    if isinstance(prompts, str):
        raise Refusal("prompts as one text", "a list of prompts", "Put it in a list: prompts=[text].")
    if prompts is not None and not isinstance(prompts, Sequence):
        raise Refusal(f"prompts of type {type(prompts).__name__}", "a list of prompts", "Put them in a list.")
    if prompts is not None and len(prompts) == 0:
        raise Refusal("no prompts", "at least one, or None for the bundled ones", "Add a prompt.")
    for name, value in (("budget_seconds", budget_seconds), ("epsilon", epsilon)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float) or not value > 0):
            raise Refusal(f"{name}={value!r}", "a number above 0", f"Correct {name}.")
