"""A branch that a person forces: another token at one step, and on from there in one side's configuration."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from divexplore.config import whole
from divexplore.engine.interrupt import interruptible
from divexplore.errors import Refusal
from divexplore.models.request import check_steps
from divexplore.trace import Trace

if TYPE_CHECKING:
    from divexplore.comparison.comparison import Comparison

__all__ = ["fork"]


def fork(
    comparison: Comparison,
    side: str,
    step: int,
    token: int,
    max_new_tokens: int | None = None,
    *,
    progress: Callable[[int, int, str], None] | None = None,
    stop: Callable[[], bool] | None = None,
) -> Trace:
    """See `Comparison.fork`."""
    if max_new_tokens is not None:
        check_steps(max_new_tokens)
    pair = comparison.pair
    if pair is None:
        raise Refusal(
            "a fork of a comparison without its model", "a live comparison", "Run dx.compare again, then fork."
        )
    if side not in ("a", "b"):
        raise Refusal(f"side={side!r}", "'a' or 'b'", "Choose one of the two sides.")
    trace, config = (pair.a, pair.config_a) if side == "a" else (pair.b, pair.config_b)
    at, taken = whole(step), whole(token)  # an id of a top list is numpy's
    if at is None or not 0 <= at < len(trace):
        raise Refusal(f"step={step!r}", f"0 to {len(trace) - 1}", "Choose a step of that side.")
    if taken is None:
        raise Refusal(f"token={token!r}", "a token id", "Pass the id, such as one of the top list at that step.")
    step, token = at, taken
    forced = [*trace.token_ids[:step], token]
    ends = token in pair.model.eos_ids  # the configuration would end there too
    steps = len(forced) if ends else max(len(forced), max_new_tokens or trace.meta["max_new_tokens"] or len(trace))
    with interruptible(stop) as stopping:
        branch = pair.decode(config, steps, forced=forced, fillers=trace, progress=progress, stop=stopping)
    stopping.tell(between=2)  # the method and what wraps it
    meta = {**branch.meta, "fork": {"side": side, "step": step, "token_id": token}}
    return Trace(branch.table, {**meta, "finish_reason": "eos"} if ends and not branch.partial else meta)
