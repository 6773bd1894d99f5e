"""Tensors on disk: bit for bit as they were given, and a replaced one takes no further room."""

from __future__ import annotations

import torch

from divexplore.engine.spill import Spill


def test_what_is_replaced_again_and_again_does_not_fill_the_disk():
    """A run without a cache shows each position once a step."""
    with Spill() as kept:
        for turn in range(50):
            for key in range(3):
                kept.put(key, torch.full((64,), turn + key, dtype=torch.bfloat16))
        assert kept._file.seek(0, 2) == 3 * 64 * 2
        assert [kept.get(key).tolist() for key in range(3)] == [[49.0 + key] * 64 for key in range(3)]


def test_a_larger_or_smaller_one_replaces_the_first_and_leaves_its_neighbour_whole():
    with Spill() as kept:
        kept.put("a", torch.ones(4))
        kept.put("b", torch.arange(4))
        kept.put("a", torch.zeros(2, 9, dtype=torch.float64))
        assert torch.equal(kept.get("a"), torch.zeros(2, 9, dtype=torch.float64))
        kept.put("a", torch.tensor([2.5]))
        assert kept.get("a").tolist() == [2.5]
        assert torch.equal(kept.get("b"), torch.arange(4))
        assert len(kept) == 2
