"""What did the model really get? Mask, positions and cache of every forward, and the weights that were there."""

from __future__ import annotations

import contextlib
import hashlib
import inspect
from collections.abc import Iterator
from typing import Any

import torch

from divexplore.engine.batch import Batch
from divexplore.models.model import QUICK_PARAMETERS

__all__ = ["Witness", "tensors_in_force"]

_WHOLE = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class Witness:
    """Checks the observed row's inputs at the model's door, after anything that might have changed them on the way.

    What is expected follows from the batch alone: token *i* after *p* pads has position *i*, sees itself and all before
    it, never a pad, and the cache holds every column fed so far.
    """

    def __init__(self, batch: Batch, use_cache: bool) -> None:
        self._row, self._pads, self._use_cache = batch.row, batch.pads[batch.row], use_cache
        self._fed = 0
        self._forwards = 0
        self._rows: set[int] = set()
        self._cached = False
        self._deviations: dict[str, str] = {}

    @contextlib.contextmanager
    def watching(self, net: Any) -> Iterator[None]:
        """Look on for the length of a ``with``; enter it last, so that it sees what the model sees."""
        takes_positions = "position_ids" in inspect.signature(net.forward).parameters

        def before(module: Any, args: tuple[Any, ...], arguments: dict[str, Any]) -> None:
            self._see(arguments, takes_positions)

        hook = net.register_forward_pre_hook(before, with_kwargs=True)
        try:
            yield
        finally:
            hook.remove()

    def _see(self, arguments: dict[str, Any], takes_positions: bool) -> None:
        rows, queries = arguments["input_ids"].shape
        cache = arguments.get("cache", arguments.get("past_key_values"))
        recurrent = cache is not None and all(getattr(cache, "is_linear", [False]))  # a state, which counts no columns
        held = 0 if cache is None else self._fed if recurrent else int(cache.get_seq_length())
        first = self._fed if self._use_cache else 0
        self._rows.add(int(rows))
        self._cached = self._cached or held > 0
        if held != first:
            self._deviate("cache", f"the cache holds {held} columns where {first} were fed")
        self._look_at_mask(arguments.get("attention_mask"), first + queries)
        if takes_positions:
            self._look_at_positions(arguments.get("position_ids"), first, queries)
        self._fed = first + queries
        self._forwards += 1

    def _look_at_mask(self, mask: torch.Tensor | None, columns: int) -> None:
        if mask is not None and mask.dim() != 2:
            return  # a prepared mask of four axes: none of ours
        seen = columns if mask is None else int(mask[self._row].sum())
        tokens = max(0, columns - self._pads)  # a chunk of the prefill may hold nothing but pads
        if seen != tokens:
            self._deviate("mask", f"{seen} columns are visible where {tokens} hold tokens")

    def _look_at_positions(self, positions: torch.Tensor | None, first: int, queries: int) -> None:
        expected = [max(column - self._pads, 0) for column in range(first, first + queries)]
        # a model without positions counts columns
        found = list(range(first, first + queries)) if positions is None else positions[self._row].tolist()
        real = max(0, self._pads - first)  # pads may have any position
        if found[real:] != expected[real:]:
            at = next(i for i in range(real, queries) if found[i] != expected[i])
            self._deviate("positions", f"a token has position {found[at]} where {expected[at]} is right")

    def _deviate(self, kind: str, what: str) -> None:
        self._deviations.setdefault(kind, f"forward {self._forwards}: {what}")

    def facts(self) -> dict[str, Any]:
        """What was seen, as plain JSON values.

        ``rows`` (batch sizes of the forwards), ``forwards``, ``cached`` (whether any forward found a filled cache) and
        ``deviations`` (first of each kind: ``mask``, ``positions``, ``cache``).
        """
        return {
            "rows": sorted(self._rows),
            "forwards": self._forwards,
            "cached": self._cached,
            "deviations": dict(self._deviations),
        }


def tensors_in_force(net: Any) -> dict[str, str | None]:
    """Short hashes of the weights and floating buffers of the model that ran: a change of one bit of one value shows.

    ``parameters`` is the sum of the bit patterns of each parameter, read as whole numbers of eight bytes where that goes
    up, then hashed: 0.02 s for 135 M parameters in bf16; ``None`` above 300 M. `Fingerprint` tells whether two checkpoints are the same; this tells whether
    what ran is what was loaded.
    """
    parameters = list(net.named_parameters())
    total = None
    if sum(parameter.numel() for _, parameter in parameters) < QUICK_PARAMETERS:
        total = hashlib.blake2b(digest_size=8)
        for name, parameter in parameters:
            bits = parameter.detach().flatten()
            even = parameter.numel() * parameter.element_size() % 8 == 0
            whole = bits.view(torch.int64 if even else _WHOLE[parameter.element_size()])
            total.update(f"{name} {parameter.dtype} {int(whole.sum(dtype=torch.int64))};".encode())
    held = hashlib.blake2b(digest_size=8)
    for name, buffer in net.named_buffers():
        if buffer.is_floating_point():
            held.update(f"{name} {buffer.dtype} {buffer.double().flatten().tolist()};".encode())
    return {"parameters": None if total is None else total.hexdigest(), "buffers": held.hexdigest()}
