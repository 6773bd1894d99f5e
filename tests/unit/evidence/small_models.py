"""What the tests of evidence share: loaded tiny models, prompts, and a tie made to order."""

from __future__ import annotations

import functools
from typing import Any

import torch
from tiny_models import tiny

from divexplore.engine.run import run
from divexplore.models import load_model

__all__ = ["BENIGN", "PROMPT", "ids", "nearly_tied", "small"]

PROMPT = [17, 4, 201, 96, 33, 150, 8, 77, 240, 5]
BENIGN = {"exact_tie", "near_tie", "drift_only", "identical"}


@functools.cache
def small(kind: str = "llama", hidden: int = 64, seed: int = 1, **changes: Any) -> Any:
    """A loaded tiny model, shared."""
    return load_model(tiny(kind, hidden, seed, **changes))


def ids(length: int, seed: int = 0) -> list[int]:
    """A prompt of random ids."""
    return torch.randint(257, (length,), generator=torch.Generator().manual_seed(seed)).tolist()


def nearly_tied(seed: int, step: int = 5, apart: float = 1.0) -> tuple[Any, int, int]:
    """A model in which a second id has the logit of the chosen one at `step`, but for rounding.

    Its row of the head is that of the chosen id plus a vector orthogonal to the last hidden state there. With ``apart=0``
    the rows are bit-equal, and so are the logits, always.

    Returns
    -------
    The loaded model, the chosen id and its double.
    """
    net = tiny("llama", 256, seed)
    model = load_model(net)
    head = model.master.lm_head
    seen: list[torch.Tensor] = []
    hook = head.register_forward_pre_hook(lambda module, args: seen.append(args[0][0, -1].clone()))
    try:
        trace = run(model, PROMPT, None, step + 1)
    finally:
        hook.remove()
    hidden, chosen = seen[step].double(), trace.token_ids[step]
    double = next(token for token in range(257) if token not in trace.token_ids and token not in PROMPT)
    with torch.no_grad():
        noise = torch.randn(256, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)) * 0.2 * apart
        noise -= hidden * (noise @ hidden) / (hidden @ hidden)
        net.lm_head.weight[double] = (net.lm_head.weight[chosen].double() + noise).float()
    return load_model(net), chosen, double
