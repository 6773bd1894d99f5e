"""Run one configuration: decode by its rule, greedily for most, or along given tokens, and record a row a step."""

from __future__ import annotations

import contextlib
import logging
import os
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import torch

from divexplore.config import RunConfig
from divexplore.engine.batch import Batch, fill_batch
from divexplore.engine.choice import Choice, choice_of
from divexplore.engine.forwards import forwards
from divexplore.engine.interrupt import interruptible
from divexplore.engine.interventions import surround
from divexplore.engine.numerics import applied, attention, check_dtype, in_force
from divexplore.engine.recorder import Recorder
from divexplore.engine.witness import tensors_in_force
from divexplore.errors import Refusal
from divexplore.models.model import Model, Prompt
from divexplore.models.request import check_steps, opened, whole_ids
from divexplore.trace import Trace

if TYPE_CHECKING:
    from transformers import PreTrainedModel

__all__ = ["OnRow", "Progress", "decode", "force", "run"]

OnRow = Callable[[int, torch.Tensor, int], None]
"""Called with the step, the observed raw row of shape ``(vocab,)`` and the token that was taken."""

Progress = Callable[[int, int, str], None]
"""Called with the steps done, the steps asked for and the last characters of the text."""

logger = logging.getLogger(__name__)


def run(
    model: Model | PreTrainedModel | str = "fairy-tales",
    prompt: str | Sequence[int] = "",
    config: RunConfig | Mapping[str, Any] | None = None,
    max_new_tokens: int = 128,
    *,
    chat: bool | None = None,
    progress: Progress | None = None,
    stop: Callable[[], bool] | None = None,
) -> Trace:
    """Decode under one configuration, greedily unless it says otherwise, and record every step.

    Parameters
    ----------
    model
        A loaded `Model`, a transformers model, or what `load_model` takes.
    prompt
        A text, or token ids that are taken as they are.
    config
        A `RunConfig`, or a mapping of its fields; ``None`` is the model's and the process's own set-up.
    max_new_tokens
        Steps at most; the run ends earlier where the observed row meets an end-of-sequence token.
    chat
        Whether the chat template wraps a text; ``None`` uses it where the tokenizer has one.
    progress
        Called after each step; see `Progress`.
    stop
        Asked before each step; when it answers true the run ends and the trace is kept, marked partial. So it is at a
        first interrupt; a second one leaves at once.

    Returns
    -------
    Trace
        Partial where the run was stopped or met an error; what was recorded is never lost.

    Raises
    ------
    Refusal
        On a request that cannot be served.
    """
    config = RunConfig.of(config)
    model, encoded = opened(model, prompt, chat=chat, max_new_tokens=max_new_tokens)
    with interruptible(stop) as stopping:
        trace = _where_it_belongs(config)(model, encoded, config, max_new_tokens, progress=progress, stop=stopping)
    stopping.tell()
    if trace.meta["error"]:
        # 3: the public name is a function around this one
        warnings.warn(f"the run ended early: {trace.meta['error']}", RuntimeWarning, stacklevel=3)
    return trace


def force(
    model: Model | PreTrainedModel | str,
    prompt: str | Sequence[int],
    config: RunConfig | Mapping[str, Any] | None,
    token_ids: Sequence[int] | Trace,
    *,
    fillers: Trace | None = None,
    chat: bool | None = None,
) -> Trace:
    """Teacher forcing in the same shapes: the observed row is fed `token_ids`, step by step with the cache and batch of `config`.

    Parameters
    ----------
    token_ids
        The observed row's ids, or a trace whose ids (and, without `fillers`, other rows) are replayed.
    fillers
        A free run of the same configuration, whose other rows are replayed; copies get `token_ids`. Without it fillers
        that were not recorded decode greedily.

    Returns
    -------
    Trace
        One step a given token: the raw row that predicts it, and that token's logit. Partial where it was interrupted
        once or met an error.
    """
    config = RunConfig.of(config)
    if isinstance(token_ids, Trace):
        fillers = fillers or (token_ids if token_ids.requested == config.to_dict() else None)
        token_ids = token_ids.token_ids
    token_ids = whole_ids(token_ids, "list of forced tokens")
    model, encoded = opened(model, prompt, chat=chat)
    go = _where_it_belongs(config)
    with interruptible() as stopping:
        trace = go(model, encoded, config, len(token_ids), forced=token_ids, fillers=fillers, stop=stopping)
    stopping.tell()
    return trace


def _where_it_belongs(config: RunConfig) -> Callable[..., Trace]:
    """`decode`, or the same in a fresh process where a setting is read only when a process starts."""
    if not config.start_variables:
        return decode
    from divexplore.engine.isolated import run_isolated  # the way to a worker, which imports this module

    return run_isolated


def decode(
    model: Model,
    prompt: Prompt,
    config: RunConfig,
    max_new_tokens: int,
    *,
    forced: Sequence[int] = (),
    fillers: Trace | None = None,
    on_row: OnRow | None = None,
    progress: Progress | None = None,
    stop: Callable[[], bool] | None = None,
    net: Any = None,
    within: Callable[[], AbstractContextManager[Any]] = contextlib.nullcontext,
) -> Trace:
    """The recording loop behind `run` and `force`: the first ``len(forced)`` tokens are given, the others chosen.

    Parameters
    ----------
    on_row
        Sees every raw row and the token taken after it.
    net
        A prepared transformers model to use in place of ``model.instance(config.dtype, config.device)``.
    within
        Makes the context of each forward, which neither the statistics nor `on_row` may see.
    """
    _check_request(model, prompt, config, max_new_tokens, forced)
    choice = choice_of(config, prompt.ids, model.vocab_size)
    if net is None:
        check_dtype(config.dtype or str(model.dtype).removeprefix("torch."), config.device or "cpu")
        net = model.instance(config.dtype, config.device)
    batch = fill_batch(model, prompt.ids, config, chat=prompt.chat)
    _check_positions(model, batch, max_new_tokens)
    use_cache = config.use_cache if config.use_cache is not None else bool(getattr(net.config, "use_cache", True))
    replay = None if fillers is None else [row["token_ids"] for row in fillers.meta["rows"]]
    with applied(config), attention(net, config.attn_implementation), surround(net, config):
        recorder = Recorder(model, prompt, config, batch, {**in_force(net), "use_cache": use_cache})
        recorder.tensors = tensors_in_force(net)
        recorder.forced, recorder.asked = len(forced), max_new_tokens
        with recorder.keeping_warnings(), recorder.witness.watching(net):
            _warn_of_length(model, batch, max_new_tokens, recorder)
            stream = forwards(net, batch, use_cache=use_cache, prefill_chunk=config.prefill_chunk)

            def advance(tokens: torch.Tensor | None) -> torch.Tensor:
                with within():
                    return next(stream) if tokens is None else stream.send(tokens)

            try:
                _decode(advance, model, batch, max_new_tokens, forced, replay, choice, recorder, on_row, progress, stop)
            except Refusal:
                raise
            except Exception as error:  # whatever torch raises in mid-run: what was recorded so far is kept
                logger.debug("the run ended early", exc_info=True)
                recorder.fail(error)
            finally:
                stream.close()
    return recorder.trace()


def _decode(
    advance: Callable[[torch.Tensor | None], torch.Tensor],
    model: Model,
    batch: Batch,
    max_new_tokens: int,
    forced: Sequence[int],
    replay: list[list[int]] | None,
    choice: Choice | None,
    recorder: Recorder,
    on_row: OnRow | None,
    progress: Progress | None,
    stop: Callable[[], bool] | None,
) -> None:
    ended = [False] * len(batch.prompts)
    taken: list[int] = []
    tokens: torch.Tensor | None = None
    if len(forced) >= max_new_tokens:
        choice = None
    for step in range(max_new_tokens):
        if stop is not None and stop():  # asked before a forward: the step under way is the last one
            recorder.finish_reason = "stopped"
            return
        started = time.perf_counter()
        logits = advance(tokens)
        row = logits[batch.row]
        statistics = recorder.see(row, logits.shape[0], time.perf_counter() - started)
        if statistics is None:
            return  # NaN or infinity: there is no argmax to take
        # made before given tokens too, where free ones follow: so the n-th draw belongs to step n in a branch as well
        token = int(statistics.top_ids[0]) if choice is None else choice(row, taken)
        if step < len(forced):
            token = forced[step]
        taken.append(token)
        fed = [token]
        if len(ended) > 1:
            # cast up exactly, as `generate` does: an argmax of 16-bit values takes four times as long
            wide = logits if logits.dtype == torch.float64 else logits.float()
            best = wide.argmax(-1).tolist()
            fed = [batch.pad_id if over else other for over, other in zip(ended, best, strict=False)]
            if replay is not None or forced or choice is not None:
                _replay(fed, batch, step, token, replay)
            fed[batch.row] = token
        recorder.take(token, row, fed)
        if on_row is not None:
            on_row(step, row, token)
        ended = [over or other in model.eos_ids for over, other in zip(ended, fed, strict=False)]
        tokens = torch.tensor(fed, device=logits.device)
        if progress is not None:
            progress(step + 1, max_new_tokens, recorder.tail())
        if step >= len(forced) and token in model.eos_ids:
            recorder.finish_reason = "eos"
            return
    recorder.finish_reason = "length"


def _replay(fed: list[int], batch: Batch, step: int, token: int, replay: list[list[int]] | None) -> None:
    """Give the other rows their recorded tokens; copies follow the observed row."""
    for index in range(len(fed)):
        if batch.copies:
            fed[index] = token
        elif replay is not None and step < len(replay[index]):
            fed[index] = replay[index][step]


def _check_request(model: Model, prompt: Prompt, config: RunConfig, max_new_tokens: int, forced: Sequence[int]) -> None:
    for variable, value in config.start_variables.items():
        if os.environ.get(variable) != value:
            raise Refusal(
                f"{variable}={value} in a process that has started without it",
                "a fresh process, as dx.run and dx.compare start one",
                "Use one of these, or leave it out.",
            )
    check_steps(max_new_tokens)
    outside = [token for token in forced if not 0 <= token < model.vocab_size]
    if outside:
        raise Refusal(
            f"forced token {outside[0]}", f"ids from 0 to {model.vocab_size - 1}", "Pass ids of this model's tokenizer."
        )
    limit = model.context_length
    if limit is not None and len(prompt.ids) >= limit:
        raise Refusal(
            f"a prompt of {len(prompt.ids)} tokens",
            f"fewer than the model's context of {limit}",
            "Shorten the prompt or use a model with a longer context.",
        )


def _check_positions(model: Model, batch: Batch, max_new_tokens: int) -> None:
    """Refuse steps for which a model has no position: such a run would end in an index error of an embedding."""
    limit, longest = model.context_length, max(map(len, batch.prompts))  # positions count no pads
    if limit is not None and longest + max_new_tokens > limit and not _rotary(model):
        raise Refusal(
            f"{longest} prompt tokens and {max_new_tokens} new ones",
            f"{limit} in all: this model has a learned embedding for each position",
            f"Ask for at most {limit - longest} new tokens."
            if longest < limit
            else "Shorten the longest row of the batch.",
        )


def _rotary(model: Model) -> bool:
    return getattr(model.config.get_text_config(decoder=True), "rope_parameters", None) is not None


def _warn_of_length(model: Model, batch: Batch, max_new_tokens: int, recorder: Recorder) -> None:
    limit = model.context_length
    if limit is not None and batch.width + max_new_tokens > limit:
        recorder.warnings.append(
            f"steps from {limit - batch.width} on lie beyond the model's context of {limit} tokens"
        )
