"""Score a finished text in one prefill: all positions at once, which is another measurement than decoding it."""

from __future__ import annotations

import inspect
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from divexplore.config import RunConfig
from divexplore.engine.batch import Batch, fill_batch
from divexplore.engine.interventions import surround
from divexplore.engine.numerics import applied, attention, check_dtype, in_force
from divexplore.engine.recorder import Recorder
from divexplore.engine.run import OnRow
from divexplore.errors import Refusal
from divexplore.models.model import Model, Prompt
from divexplore.models.request import opened, whole_ids
from divexplore.trace import Trace

if TYPE_CHECKING:
    from transformers import PreTrainedModel

__all__ = ["position_logits", "score"]


def score(
    model: Model | PreTrainedModel | str,
    prompt: str | Sequence[int],
    token_ids: Sequence[int] | Trace,
    config: RunConfig | Mapping[str, Any] | None = None,
    *,
    chat: bool | None = None,
    on_row: OnRow | None = None,
) -> Trace:
    """Log-probabilities of given tokens after a prompt, from one prefill over all of them.

    This is not teacher forcing: a prefill multiplies other shapes than a decode step, so its logits drift from those of
    the run that wrote the tokens. The trace says so: its ``phase`` is ``score``. Of `config` it leaves out what has no
    meaning here, and what the trace names is what ran: nothing is chosen, and the one prefill has neither chunks nor a
    cache. Settings that are read when a process starts are refused.

    Parameters
    ----------
    token_ids
        The tokens to score, or a trace of them.
    on_row
        Sees every raw row, shape ``(vocab,)``, and the scored token.

    Returns
    -------
    Trace
        A row a scored token.

    Raises
    ------
    Refusal
        On a request that cannot be served.
    """
    config = _without_choice(RunConfig.of(config))
    tokens = whole_ids(token_ids.token_ids if isinstance(token_ids, Trace) else token_ids, "list of tokens to score")
    model, encoded = opened(model, prompt, chat=chat)
    whole = model.encode([*encoded.ids, *tokens])  # also checks the ids
    check_dtype(config.dtype or str(model.dtype).removeprefix("torch."), config.device or "cpu")
    net = model.instance(config.dtype, config.device)
    batch = fill_batch(model, whole.ids, config, chat=encoded.chat)
    with applied(config), attention(net, config.attn_implementation), surround(net, config):
        recorder = Recorder(
            model, Prompt(encoded.text, encoded.ids, encoded.chat), config, batch, {**in_force(net), "use_cache": False}
        )
        recorder.forced = len(tokens)
        with recorder.keeping_warnings():
            started = time.perf_counter()
            rows = position_logits(net, batch)
            seconds = (time.perf_counter() - started) / len(rows)
            for step, token in enumerate(tokens):
                row = rows[len(encoded.ids) - 1 + step]
                if recorder.see(row, len(batch.prompts), seconds) is None:
                    break
                recorder.take(token, row, [token] * len(batch.prompts))
                if on_row is not None:
                    on_row(step, row, token)
    trace = recorder.trace()
    import polars as pl

    return Trace(trace.table.with_columns(phase=pl.lit("score")), trace.meta)


def _without_choice(config: RunConfig) -> RunConfig:
    """What a prefill of given tokens can honour: nothing is chosen here, and this process has started already."""
    if config.start_variables:
        raise Refusal(
            f"a score under {', '.join(config.start_variables)}, read when a process starts",
            "settings that take effect in this process",
            "Leave them out, or use dx.force, which starts a process for them.",
        )
    choosing = ("do_sample", "temperature", "top_k", "top_p", "repetition_penalty", "penalty_scope", "suppress_tokens")
    return config.replace(**dict.fromkeys((*choosing, "use_cache", "prefill_chunk")))


def position_logits(net: Any, batch: Batch) -> torch.Tensor:
    """Raw logits of the observed row at each of its positions, pads excluded, shape ``(length, vocab)``, on the CPU."""
    accepted = set(inspect.signature(net.forward).parameters)
    ids, mask, positions = batch.inputs(next(net.parameters()).device)
    given: dict[str, Any] = {"use_cache": False, "return_dict": True}
    if "position_ids" in accepted:
        given["position_ids"] = positions
    with torch.inference_mode():
        logits = net(input_ids=ids, attention_mask=mask, **given).logits
        return logits[batch.row, batch.pads[batch.row] :].cpu()
