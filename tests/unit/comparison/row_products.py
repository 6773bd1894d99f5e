"""Does this processor multiply one row as it multiplies eight? The proof that a pair without drift must bring."""

from __future__ import annotations

import torch

__all__ = ["products_that_depend_on_rows"]


def products_that_depend_on_rows(net: torch.nn.Module, tries: int = 8) -> list[str]:
    """Shapes of the model's own linears of which a row alone and the same row among eight differ in bits.

    Parameters
    ----------
    net
        Its weights are used as they are, in their dtype.
    tries
        Random inputs for each shape: a narrow dtype shows one differing element in thousands.
    """
    weights = {tuple(m.weight.shape): m.weight for m in net.modules() if isinstance(m, torch.nn.Linear)}
    differing = []
    for shape, weight in weights.items():
        for seed in range(tries):
            random = torch.Generator().manual_seed(seed)
            rows = torch.randn(1, 1, shape[1], generator=random).to(weight.dtype).repeat(8, 1, 1)
            with torch.inference_mode():
                one, eight = (torch.nn.functional.linear(rows[:count].contiguous(), weight) for count in (1, 8))
            if not torch.equal(one[0], eight[0]):
                differing.append(f"{shape} {weight.dtype}")
                break
    return differing
