"""A clean fp64 model: the top rung of the precision ladder, without the fp32 casts that transformers hard-codes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import psutil
import torch
from torch.overrides import TorchFunctionMode

from divexplore.models.canonical import bytes_needed, canonical_copy

if TYPE_CHECKING:
    from transformers import PreTrainedModel

__all__ = ["CleanFloat64", "fits", "raised", "rung_mode"]


class CleanFloat64(TorchFunctionMode):
    """While it is entered, ``torch.float32`` in any argument is ``torch.float64``, and ``Tensor.float`` is ``Tensor.double``.

    Transformers models cast to fp32 in norms, eager softmax and rotary tables, so an fp64 model as it comes is not one:
    eager against sdpa stops at 5.6e-6 there, and eager with left pads gives NaN. The mode belongs to one thread.
    """

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Run `func` with every fp32 dtype among its arguments widened."""
        if func is torch.Tensor.float:
            return args[0].double()
        widened = {name: _widen(value) for name, value in (kwargs or {}).items()}
        return func(*map(_widen, args), **widened)


def _widen(value: Any) -> Any:
    return torch.float64 if value is torch.float32 else value


def raised(net: PreTrainedModel, dtype: torch.dtype) -> PreTrainedModel:
    """A copy of `net` in a wider dtype that holds the very values `net` ran with, cast up exactly.

    Experts run one by one there: grouped matrix products have no fp64.
    """
    copy = canonical_copy(net, dtype)
    experts: dict[str, Any] = getattr(copy, "get_experts_implementation", dict)()
    if any(name not in (None, "eager") for name in experts.values()):
        copy.set_experts_implementation("eager")
    return copy


def rung_mode(dtype: str) -> Callable[[], AbstractContextManager[Any]]:
    """What makes the context of each forward on a rung: clean fp64 for the top one, nothing for fp32."""
    return CleanFloat64 if dtype == "float64" else contextlib.nullcontext


def fits(net: PreTrainedModel, dtype: torch.dtype) -> bool:
    """Whether a raised copy of `net` finds room beside it, with a fifth to spare for the run."""
    device = next(net.parameters()).device
    free = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else psutil.virtual_memory().available
    return 1.2 * bytes_needed(net, dtype) < free
