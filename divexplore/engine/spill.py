"""Tensors of one run, kept in a temporary file until another run is compared with them."""

from __future__ import annotations

import tempfile
from collections.abc import Hashable
from types import TracebackType

import numpy as np
import torch

from divexplore.engine.statistics import row_bytes

__all__ = ["Spill"]


class Spill:
    """Tensors of any shape and dtype by key, on disk; memory holds one at a time. Deleted when the ``with`` ends."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile(prefix="divexplore-tensors-")  # noqa: SIM115 - closed by __exit__
        self._where: dict[Hashable, tuple[int, int, torch.dtype, torch.Size]] = {}
        self._end = 0

    def __contains__(self, key: object) -> bool:
        return key in self._where

    def __len__(self) -> int:
        return len(self._where)

    def put(self, key: Hashable, tensor: torch.Tensor) -> None:
        """Keep a tensor; a second one of the same key replaces the first, in its place where it has room there."""
        tensor = tensor.detach().cpu().contiguous()
        data = row_bytes(tensor.reshape(-1)) if tensor.numel() else b""
        start, room, *_ = self._where.get(key, (self._end, 0))
        if len(data) > room:
            start, self._end = self._end, self._end + len(data)
        self._file.seek(start)
        self._file.write(data)
        self._where[key] = (start, len(data), tensor.dtype, tensor.shape)

    def get(self, key: Hashable) -> torch.Tensor:
        """The tensor of a key, bit for bit as it was given."""
        start, size, dtype, shape = self._where[key]
        self._file.seek(start)
        data = np.frombuffer(bytearray(self._file.read(size)), dtype=np.uint8)
        return torch.from_numpy(data).view(dtype).reshape(shape)

    def __enter__(self) -> Spill:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()
