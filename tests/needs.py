"""What a test needs that may be absent: a skip by name, or a failure where `DIVEXPLORE_REQUIRE` lists it."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest

__all__ = ["absent"]


def absent(what: str, reason: str) -> NoReturn:
    """Skip because `what` (``model``, ``browser``, ``server``, ``shared``) is missing, or fail if it is required."""
    required = {word.strip() for word in os.environ.get("DIVEXPLORE_REQUIRE", "").split(",")}
    if what in required:
        pytest.fail(f"required but absent: {what} ({reason})", pytrace=False)
    pytest.skip(f"{what} absent: {reason}")
