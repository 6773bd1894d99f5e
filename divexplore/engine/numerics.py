"""Apply a configuration to torch's process-wide switches, and put every one back."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import torch

from divexplore.config import RunConfig
from divexplore.errors import Refusal

__all__ = ["applied", "attention", "check_dtype", "in_force"]

_TURN = threading.RLock()  # re-entrant: what a run calls back may look into a model of its own


@contextlib.contextmanager
def applied(config: RunConfig) -> Iterator[None]:
    """Set threads, determinism, matmul precision, oneDNN and seed for the length of a ``with``, then restore them.

    These belong to the whole process, and a model is shared: a run in another thread (an Explorer's, say) waits until this
    one is over. Who waits in the main thread still gets an interrupt: it is the first one of `interruptible`, so the run
    ends before its first step once its turn comes, and the second one leaves at once.
    """
    with _TURN, contextlib.ExitStack() as undo:
        if config.num_threads is not None:
            undo.callback(torch.set_num_threads, torch.get_num_threads())
            torch.set_num_threads(config.num_threads)
        if config.deterministic is not None:
            warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
            undo.callback(
                torch.use_deterministic_algorithms, torch.are_deterministic_algorithms_enabled(), warn_only=warn_only
            )
            torch.use_deterministic_algorithms(config.deterministic)
        if config.float32_matmul_precision is not None:
            undo.callback(torch.set_float32_matmul_precision, torch.get_float32_matmul_precision())
            torch.set_float32_matmul_precision(config.float32_matmul_precision)
        if config.mkldnn is not None:
            # not by its flags(), which also resets TF32 and warns of it
            undo.callback(setattr, torch.backends.mkldnn, "enabled", torch.backends.mkldnn.enabled)
            torch.backends.mkldnn.enabled = config.mkldnn
        if config.seed is not None:
            undo.enter_context(torch.random.fork_rng(devices=range(torch.cuda.device_count())))
            torch.manual_seed(config.seed)
        yield


@contextlib.contextmanager
def attention(net: Any, name: str | None) -> Iterator[None]:
    """Switch a transformers model to another attention implementation for the length of a ``with``.

    Raises
    ------
    Refusal
        Where the model or this machine cannot do it.
    """
    before = net.config._attn_implementation
    if name is None or name == before:
        yield
        return
    try:
        net.set_attn_implementation(name)
    except (ImportError, ValueError) as error:
        raise Refusal(
            f"attn_implementation={name!r} ({error})", "eager, sdpa, or a kernel installed here", "Choose another one."
        ) from error
    try:
        if net.config._attn_implementation != name:
            raise Refusal(
                f"attn_implementation={name!r} on {type(net).__name__}", repr(before), "Leave attn_implementation out."
            )
        yield
    finally:
        net.set_attn_implementation(before)


def in_force(net: Any) -> dict[str, Any]:
    """What is in force now: the effective values of every process-wide switch, and of the model's own."""
    parameter = next(net.parameters())
    return {
        "dtype": str(parameter.dtype).removeprefix("torch."),
        "device": str(parameter.device),
        "attn_implementation": net.config._attn_implementation,
        "num_threads": torch.get_num_threads(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "float32_matmul_precision": torch.get_float32_matmul_precision(),
        "mkldnn": torch.backends.mkldnn.is_available() and torch.backends.mkldnn.enabled,
    }


def check_dtype(dtype: str, device: str) -> None:
    """Refuse a dtype in which this device cannot multiply, before a model is cast to it."""
    try:
        one = torch.ones(2, 2, dtype=getattr(torch, dtype), device=device)
        torch.nn.functional.linear(one, one)
    except (RuntimeError, AssertionError, TypeError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise Refusal(
            f"dtype={dtype} on device={device} ({reason})",
            "a dtype and a device that work together here",
            "Choose others.",
        ) from error
