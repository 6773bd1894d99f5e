"""The spacing of floats in each dtype: what one unit in the last place (ULP) is worth at a given value."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["EXPLICIT_BITS", "UNIT_ROUNDOFF", "spacing"]

EXPLICIT_BITS = {"bfloat16": 7, "float16": 10, "float32": 23, "float64": 52}
"""Explicit bits of the significand, the *p* of ``2 ** (floor(log2 |x|) - p)``."""

UNIT_ROUNDOFF = {name: 2.0 ** -(bits + 1) for name, bits in EXPLICIT_BITS.items()}
"""Half the spacing at 1: the largest relative error of one rounding."""

_SMALLEST_EXPONENT = {"bfloat16": -126, "float16": -14, "float32": -126, "float64": -1022}


def spacing(x: ArrayLike, dtype: str) -> NDArray[np.float64]:
    """Spacing of `dtype` at `x`: ``2 ** (floor(log2 |x|) - p)``; at zero and for subnormals the smallest spacing.

    Parameters
    ----------
    x
        Finite values, any shape, in fp64 after an exact cast. Non-finite values give NaN.
    dtype
        One of ``bfloat16``, ``float16``, ``float32``, ``float64``.
    """
    x = np.abs(np.asarray(x, dtype=np.float64))
    finite = np.isfinite(x)
    _, exponent = np.frexp(np.where(finite, x, 1.0))  # x = m * 2**e with m in [0.5, 1): floor(log2 x) = e - 1
    exponent = np.where(x == 0, _SMALLEST_EXPONENT[dtype], exponent - 1)
    exponent = np.maximum(exponent, _SMALLEST_EXPONENT[dtype])
    return np.where(finite, np.ldexp(1.0, exponent - EXPLICIT_BITS[dtype]), np.nan)
