"""Fixtures of the tests of the view: an Explorer, and a stand-in for its runs."""

from __future__ import annotations

import pytest
from panels import Stand

import divexplore as dx


@pytest.fixture
def explorer(fairy_tales):
    """An Explorer with the bundled model, cheap runs."""
    opened = dx.Explorer(fairy_tales, "The giant", max_new_tokens=6)
    opened.panel.request = {**opened.panel.request, "evidence": "fast"}
    yield opened
    opened.close()


@pytest.fixture
def stand(monkeypatch):
    stub = Stand()
    monkeypatch.setattr("divexplore.comparison.compare.compare", stub)
    return stub
