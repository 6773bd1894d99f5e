"""Where is the residual stream of a transformers model, and what would its head say of each layer?"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from divexplore.engine.batch import Batch
from divexplore.engine.moment import Moment
from divexplore.errors import Refusal

__all__ = ["Keep", "Stack", "lens", "stack_of", "streaming"]

Keep = Callable[[int, int, torch.Tensor], None]
"""Called with the layer (0 is the embedding), the index of the first token, and vectors of shape ``(tokens, width)``."""


@dataclass(frozen=True)
class Stack:
    """The parts of a decoder that write the residual stream, and those that read it at the end."""

    layers: nn.ModuleList
    norm: nn.Module | None
    head: nn.Module


def stack_of(net: Any) -> Stack:
    """Find the layers, the final norm and the head of a transformers causal language model.

    Raises
    ------
    Refusal
        Where no list of modules is as long as the configuration says, or no head is to be had.
    """
    depth = net.config.get_text_config(decoder=True).num_hidden_layers
    for owner in net.modules():
        for child in owner.children():
            if isinstance(child, nn.ModuleList) and len(child) == depth:
                siblings = list(owner.named_children())
                after = [m for n, m in siblings if "norm" in f"{n} {type(m).__name__}".lower() or n.startswith("ln_f")]
                return Stack(child, after[-1] if after else None, net.get_output_embeddings())
    raise Refusal(
        f"layers of {type(net).__name__}, which has no list of {depth} modules",
        "a decoder with its layers in one list",
        "Use trace_ops, which needs no such list.",
    )


@contextlib.contextmanager
def streaming(net: Any, batch: Batch, keep: Keep) -> Iterator[None]:
    """Hand every vector of the observed row's residual stream to `keep`, pads left out."""
    stack = stack_of(net)
    first = 0

    def begin(module: Any, args: tuple[Any, ...], arguments: dict[str, Any]) -> None:
        nonlocal first
        cache = arguments.get("cache", arguments.get("past_key_values"))
        first = 0 if cache is None else int(cache.get_seq_length())

    def show(layer: int, hidden: torch.Tensor) -> None:
        pads = max(0, batch.pads[batch.row] - first)
        values = hidden[batch.row, pads:]
        if len(values):
            keep(layer, max(first - batch.pads[batch.row], 0), values.detach())

    with _hooked(stack, show) as hooks:
        hooks.append(net.register_forward_pre_hook(begin, with_kwargs=True))
        yield


def lens(moment: Moment) -> list[torch.Tensor]:
    """Logits of the observed row, shape ``(vocab,)``, that the final norm and the head give of each layer's output.

    The whole batch goes through them, in the shapes of the run, so that the last layer gives the model's own logits.
    """
    stack = stack_of(moment.net)
    rows: list[torch.Tensor] = []

    def read(layer: int, hidden: torch.Tensor) -> None:
        # all columns through the norm, as in the run: one column alone may come out with other bits
        normed = hidden if stack.norm is None else stack.norm(hidden)
        logits = stack.head(normed[:, -1:])
        rows.append(logits[moment.batch.row, -1].clone())

    with _hooked(stack, read):
        moment.replay()
    return rows


@contextlib.contextmanager
def _hooked(stack: Stack, show: Callable[[int, torch.Tensor], None]) -> Iterator[list[Any]]:
    """Show the input of the first layer as layer 0, and the output of each layer."""

    def entry(module: Any, args: tuple[Any, ...], arguments: dict[str, Any]) -> None:
        show(0, args[0] if args else arguments["hidden_states"])

    def output(number: int) -> Callable[[Any, Any, Any], None]:
        return lambda module, args, result: show(number, result[0] if isinstance(result, tuple) else result)

    hooks = [stack.layers[0].register_forward_pre_hook(entry, with_kwargs=True)]
    hooks += [layer.register_forward_hook(output(number)) for number, layer in enumerate(stack.layers, start=1)]
    try:
        yield hooks
    finally:
        for hook in hooks:
            hook.remove()
