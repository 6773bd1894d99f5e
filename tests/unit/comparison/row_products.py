"""Does this processor multiply one row as it multiplies eight? The proof that a pair without drift must bring."""

from __future__ import annotations

import torch

__all__ = ["products_that_depend_on_rows"]

_ELEMENTS = 100_000  # of a product: in bf16 about one in 5,000 differs, and only where sums are long


def products_that_depend_on_rows(net: torch.nn.Module) -> list[str]:
    """Shapes of the model's own linears of which a row alone and the same row among eight differ in bits.

    Parameters
    ----------
    net
        Its weights are used as they are, in their dtype.
    """
    weights = {tuple(m.weight.shape): m.weight for m in net.modules() if isinstance(m, torch.nn.Linear)}
    return [f"{shape} {weight.dtype}" for shape, weight in weights.items() if _depends(weight)]


@torch.inference_mode()
def _depends(weight: torch.Tensor) -> bool:
    outputs, inputs = weight.shape
    random = torch.Generator().manual_seed(0)
    for _ in range(_ELEMENTS // (8 * outputs) + 1):
        rows = torch.randn(8, 1, inputs, generator=random).to(weight.dtype)
        together = torch.nn.functional.linear(rows, weight)
        alone = torch.cat([torch.nn.functional.linear(row[None], weight) for row in rows])
        if not torch.equal(together, alone):
            return True
    return False
