"""One unit in the last place, against what numpy and torch themselves say is the next number."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from divexplore.ulp import EXPLICIT_BITS, UNIT_ROUNDOFF, spacing

NUMPY = {"float16": np.float16, "float32": np.float32, "float64": np.float64}


@pytest.mark.parametrize("name", NUMPY)
@given(data=st.data())
def test_it_is_the_spacing_of_numpy(name, data):
    width = {"float16": 16, "float32": 32, "float64": 64}[name]
    x = data.draw(st.floats(width=width, allow_nan=False, allow_infinity=False))
    largest = float(np.finfo(NUMPY[name]).max)
    expected = abs(np.spacing(NUMPY[name](abs(x)))) if abs(x) < largest else None
    if expected is not None and np.isfinite(expected):
        assert spacing(x, name) == float(expected)
    assert spacing(-x, name) == spacing(x, name)


@given(bits=st.integers(0, 0x7F7E))
def test_it_is_the_step_to_the_next_bfloat16(bits):
    """The next larger bf16 is the next bit pattern; as fp32 it is that pattern with sixteen zeros behind it."""
    x, following = np.array([bits << 16, (bits + 1) << 16], dtype=np.uint32).view(np.float32).astype(np.float64)
    assert spacing(x, "bfloat16") == following - x


@pytest.mark.parametrize("name", EXPLICIT_BITS)
def test_unit_roundoff_is_half_the_spacing_at_one(name):
    assert 2 * UNIT_ROUNDOFF[name] == spacing(1.0, name)


def test_known_steps_of_bfloat16():
    """The figures of the legend: 0.0625 from 8 to 16, 0.125 from 16 to 32; a power of two has the step above it."""
    assert spacing([8.0, 15.9, 16.0, 31.9, 32.0], "bfloat16").tolist() == [0.0625, 0.0625, 0.125, 0.125, 0.25]


@pytest.mark.parametrize("name", EXPLICIT_BITS)
@pytest.mark.parametrize("x", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_has_no_spacing(name, x):
    assert np.isnan(spacing(x, name))


def test_the_shape_is_kept():
    assert spacing(np.ones((3, 2)), "float32").shape == (3, 2)
