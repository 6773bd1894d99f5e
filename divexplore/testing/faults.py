"""What does a bug look like? Known faults around the inputs and the weights of a model, for one side of a comparison.

Each is a context manager::

    with faults.mask_dropped(only=dict(left_pad=3)):
        dx.compare(model, prompt, a=dict(left_pad=0), b=dict(left_pad=3))

`only` is the configuration of the side that has the bug, compared without its dtype, so that the fault acts in every run
of that side, the rungs of the precision ladder included; ``None`` is both sides. Where both sides would be equal
configurations, a `seed` tells them apart. A fault that met no such run warns as it ends. Where a side needs a fresh
process a fault cannot follow, and is refused.
"""

from __future__ import annotations

import contextlib
import math
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any

import torch

from divexplore.config import RunConfig
from divexplore.engine.interventions import intervene
from divexplore.errors import Refusal, nearest

__all__ = [
    "cache_one_short",
    "mask_dropped",
    "non_causal",
    "positions_missing",
    "positions_shifted",
    "state_carried_over",
    "weight_changed",
]

Only = RunConfig | Mapping[str, Any] | None
Arguments = dict[str, Any]


def mask_dropped(only: Only = None) -> AbstractContextManager[None]:
    """Every pad is attended to, as if the mask were all ones.

    Signature: nothing where a batch has no pads. One pad is enough: `structural`, with a share of the order of 1 on every
    rung, from the prefill on, and a jump between ``left_pad=0`` and ``left_pad=1``.
    """

    def drop(arguments: Arguments) -> None:
        mask = arguments.get("attention_mask")
        if mask is not None:
            arguments["attention_mask"] = torch.ones_like(mask)

    return _on_arguments(only, lambda net: drop)


def positions_missing(only: Only = None) -> AbstractContextManager[None]:
    """The model derives positions from the columns, pads counted.

    Signature: with left pads and learned positions (GPT-2) `structural` from the first real token on. Rotary positions
    only see distances, so there the same omission comes out benign; ALiBi models take no positions.
    """
    return _on_arguments(only, lambda net: lambda arguments: arguments.pop("position_ids", None))


def positions_shifted(only: Only = None, *, by: int = 1, from_step: int = 1) -> AbstractContextManager[None]:
    """Generated tokens are told a position that is off by `by`, from the forward of `from_step` on.

    Signature: bit-equal before that step, `structural` from it on, for learned and rotary positions alike. With a chunked
    prefill, steps are counted from the end of the first chunk.
    """
    _step("from_step", from_step)

    def make(net: Any) -> Callable[[Arguments], None]:
        columns = _Columns()

        def shift(arguments: Arguments) -> None:
            first = columns.of(arguments)
            positions = arguments.get("position_ids")
            if positions is not None:
                column = torch.arange(first, first + positions.shape[1], device=positions.device)
                arguments["position_ids"] = positions + by * (column >= columns.width + from_step - 1)

        return shift

    return _on_arguments(only, make)


def cache_one_short(only: Only = None, *, at_step: int = 4) -> AbstractContextManager[None]:
    """The newest entry of the cache is lost just before the forward of `at_step`.

    Signature: bit-equal before that step, `structural` from it on. Without a cache nothing is lost. A full sliding window
    keeps its length: its oldest entry stands there twice.
    """
    _step("at_step", at_step)

    def make(net: Any) -> Callable[[Arguments], None]:
        columns = _Columns()
        lost = False

        def crop(arguments: Arguments) -> None:
            nonlocal lost
            first, cache, mask = columns.of(arguments), _cache(arguments), arguments.get("attention_mask")
            if cache is None:
                return
            if not lost and first == columns.width + at_step - 1:
                for layer in cache.layers:
                    _lose_newest(layer)
                lost = True
            if mask is not None:  # as long as the keys that are left: pads are on the other end
                arguments["attention_mask"] = mask[:, : cache.get_seq_length() + arguments["input_ids"].shape[1]]

        return crop

    return _on_arguments(only, make)


def weight_changed(name: str, index: Any, factor: float = 2.0, only: Only = None) -> AbstractContextManager[None]:
    """One weight, or a slice of them, is multiplied by `factor` while a run lasts, and put back bit for bit.

    Signature: `structural`, with the same epsilon on every rung, however small; a flip of a head's row moves one logit.

    Parameters
    ----------
    name
        A parameter, as ``named_parameters`` calls it.
    index
        What of it changes: an int, a slice, or a tuple of these.
    factor
        0, or plus or minus a power of two: the same change in every dtype.
    """
    if factor != 0 and (not math.isfinite(factor) or abs(math.frexp(factor)[0]) != 0.5):
        raise Refusal(
            f"factor={factor!r}", "0, or plus or minus a power of two", "Choose 2.0 or -1.0: exact in every dtype."
        )

    @contextlib.contextmanager
    def change(net: Any) -> Iterator[None]:
        parameters = dict(net.named_parameters())
        if name not in parameters:
            raise Refusal(f"weight {name!r}", f"{len(parameters)} names", f"Correct it.{nearest(name, parameters)}")
        weight = parameters[name]
        with torch.no_grad():
            before = weight[index].clone()
            weight[index] = before * factor
        try:
            yield
        finally:
            with torch.no_grad():
                weight[index] = before

    return _on_net(only, change)


def non_causal(only: Only = None) -> AbstractContextManager[None]:
    """Tokens of a prefill see later ones.

    Signature: on one side `structural` from the first step on. On both sides nothing differs: only the causal probe of
    ``evidence="full"`` sees it, for it looks at earlier positions when a later token changes.
    """

    @contextlib.contextmanager
    def look_ahead(net: Any) -> Iterator[None]:
        # the masks ask the configuration; where they then hand over none, the kernel asks the module
        holders = {id(module.config): module.config for module in net.modules() if hasattr(module, "config")}
        modules = [module for module in net.modules() if getattr(module, "is_causal", False)]
        before = [(config, getattr(config, "is_causal", None)) for config in holders.values()]
        try:
            for config, _ in before:
                config.is_causal = False
            for module in modules:
                module.is_causal = False
            yield
        finally:
            for module in modules:
                module.is_causal = True
            for config, value in before:
                if value is None:
                    del config.is_causal
                else:
                    config.is_causal = value

    return _on_net(only, look_ahead)


def state_carried_over(only: Only = None) -> AbstractContextManager[None]:
    """A run leaves its last hidden state behind, and later runs of other sides add an eighth of it to their own.

    Signature: ``evidence="full"`` says `state_leak`, for A, A, B, A ends with another A. Without those repeats it looks
    `structural`. With ``only=None`` each run picks up what the one before it left, so that no run repeats itself.
    """
    left: list[torch.Tensor] = []
    side = None if only is None else RunConfig.of(only).replace(dtype=None)

    @contextlib.contextmanager
    def carry(net: Any, config: RunConfig) -> Iterator[None]:
        leaves = side is None or config.replace(dtype=None) == side
        found = None if not left or (leaves and side is not None) else left[-1]
        last: list[torch.Tensor] = []

        def head(module: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
            hidden = args[0]
            last[:] = [hidden[:, -1].mean(0).detach().double()]
            return args if found is None else (hidden + (found / 8).to(hidden.dtype), *args[1:])

        hook = net.get_output_embeddings().register_forward_pre_hook(head)
        try:
            yield
        finally:
            hook.remove()
            if leaves and last:
                left[:] = last

    return intervene(carry)


@contextlib.contextmanager
def _on_net(only: Only, change: Callable[[Any], AbstractContextManager[None]]) -> Iterator[None]:
    """Surround each run of one side, and warn where there was none: a fault that never acted looks like a benign pair."""
    side = None if only is None else RunConfig.of(only).replace(dtype=None)
    acted: list[bool] = []

    def around(net: Any, config: RunConfig) -> AbstractContextManager[None]:
        acted.append(side is None or config.replace(dtype=None) == side)
        return change(net) if acted[-1] else contextlib.nullcontext()

    with intervene(around):
        yield
    if acted and side is not None and not any(acted):
        named = ", ".join(f"{name}={value!r}" for name, value in side.to_dict().items())
        # 3: this function is a context manager, which contextlib leaves for the caller
        warnings.warn(f"the fault never acted: no run had just only=dict({named})", RuntimeWarning, stacklevel=3)


def _on_arguments(only: Only, make: Callable[[Any], Callable[[Arguments], Any]]) -> AbstractContextManager[None]:
    """Let a function, made afresh for each run, change the keyword arguments of each forward."""

    @contextlib.contextmanager
    def hooked(net: Any) -> Iterator[None]:
        change = make(net)

        def before(module: Any, args: tuple[Any, ...], arguments: Arguments) -> tuple[tuple[Any, ...], Arguments]:
            arguments = dict(arguments)
            change(arguments)
            return args, arguments

        hook = net.register_forward_pre_hook(before, with_kwargs=True)
        try:
            yield
        finally:
            hook.remove()

    return _on_net(only, hooked)


class _Columns:
    """Which column of the batch a forward begins with; `width` is that of the first forward."""

    def __init__(self) -> None:
        self.width = 0

    def of(self, arguments: Arguments) -> int:
        if not self.width:
            self.width = arguments["input_ids"].shape[1]
        cache = _cache(arguments)
        return 0 if cache is None else cache.get_seq_length()


def _cache(arguments: Arguments) -> Any:
    return arguments.get("cache", arguments.get("past_key_values"))


def _lose_newest(layer: Any) -> None:
    full = getattr(layer, "is_sliding", False) and layer.cumulative_length >= layer.sliding_window
    for name in ("keys", "values"):
        kept = getattr(layer, name)[:, :, :-1]
        setattr(layer, name, torch.cat([kept[:, :, :1], kept], dim=-2) if full else kept)
    if hasattr(layer, "cumulative_length"):
        layer.cumulative_length -= 1


def _step(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise Refusal(f"{name}={value!r}", "a whole number, 1 or more", "Name a decode step; step 0 is the prefill.")
