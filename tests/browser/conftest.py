"""Fixtures of the browser tests: a browser, a page a test, and servers that start when a test asks for one."""

from __future__ import annotations

import shutil
from pathlib import Path

import harness
import pytest
from chromium import Watch, chromium, find_chromium
from needs import absent

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
VIEWPORT = {"width": 1280, "height": 900}
PATIENCE_MS = 30_000


@pytest.fixture(scope="session")
def browser():
    """A headless Chromium."""
    pytest.importorskip("playwright")
    if find_chromium() is None:
        absent("browser", "no chromium on the path")
    with chromium() as running:
        yield running


@pytest.fixture
def page(browser):
    """A fresh page without a network; `page.watch` holds what went wrong on it."""
    context = browser.new_context(viewport=VIEWPORT)
    context.set_default_timeout(PATIENCE_MS)
    opened = context.new_page()
    opened.watch = Watch(opened)
    yield opened
    context.close()


@pytest.fixture(scope="session")
def notebooks(tmp_path_factory):
    """A copy of the notebooks that servers may write to."""
    return Path(shutil.copytree(NOTEBOOKS, tmp_path_factory.mktemp("served") / "notebooks"))


@pytest.fixture(scope="session")
def lab(browser, notebooks):
    """JupyterLab on the notebooks."""
    with harness.server("lab", notebooks) as running:
        yield running


@pytest.fixture(scope="session")
def notebook7(browser, notebooks):
    """Notebook 7 on the notebooks."""
    with harness.server("notebook", notebooks) as running:
        yield running


@pytest.fixture(scope="session")
def voila(browser, notebooks):
    """Voila on the notebooks."""
    pytest.importorskip("voila")
    with harness.server("voila", notebooks) as running:
        yield running


@pytest.fixture
def run_notebook(page, request):
    """`run_notebook("lab", name)` opens a notebook, runs all of it, and ends its kernel after the test."""
    used = []

    def run(kind, name):
        on = request.getfixturevalue(kind)
        used.append(on)
        harness.open_notebook(page, on, name)
        harness.run_all(page)
        return page

    yield run
    for on in used:
        harness.close_kernels(on)
