"""What is left of a displayed comparison where no kernel and no widget state is: a readable page in the notebook file."""

from __future__ import annotations

import html
import shutil
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from nbconvert import HTMLExporter

import divexplore as dx

STORED = Path(__file__).parents[2] / "notebooks" / "data" / "quickstart"
CELL = 'import divexplore as dx\n\ndx.Comparison.load("quickstart")'
MOST_BYTES = 50_000


@pytest.fixture(scope="module", params=[False, True], ids=["without-widget-state", "with-widget-state"])
def displayed(request, tmp_path_factory):
    """A notebook that displayed the stored comparison, executed, saved without widget state or with it, and read again."""
    folder = tmp_path_factory.mktemp("static")
    shutil.copytree(STORED, folder / "quickstart")
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(CELL)])
    where = {"metadata": {"path": folder}}
    NotebookClient(
        notebook, timeout=120, kernel_name="python3", resources=where, store_widget_state=request.param
    ).execute()
    nbformat.write(notebook, folder / "displayed.ipynb")
    return nbformat.read(folder / "displayed.ipynb", as_version=4)


def assert_readable(page):
    """The verdict, its reason, and around the split the text of both sides."""
    stored, page = dx.Comparison.load(STORED), html.unescape(page)  # nbconvert writes other escapes than we do
    page = page.replace("<bdi>", "").replace("</bdi>", "")  # each token stands in one
    for words in ("near tie", f"split at step {stored.split.step}", stored.why):
        assert words in page
    for trace in (stored.a, stored.b):
        texts = [text.replace("\n", "⏎") for text in trace.table["text"]]
        before, after = "".join(texts[: stored.split.step]), "".join(texts[stored.split.step + 1 :])
        assert f"{before}<mark><b>{texts[stored.split.step]}</b></mark>{after}" in page


def test_the_output_has_a_readable_page_of_at_most_fifty_kilobytes(displayed):
    widget, page = (output.data for output in displayed.cells[0].outputs)
    assert "application/vnd.jupyter.widget-view+json" in widget
    assert list(page) == ["text/html"]
    assert len(page["text/html"].encode()) <= MOST_BYTES
    assert_readable(page["text/html"])


def test_nbconvert_shows_that_page_once_and_the_widget_where_its_state_is_stored(displayed):
    page, _ = HTMLExporter().from_notebook_node(displayed)
    assert_readable(page)
    assert page.count("A saved view") == 1
    stored = "widgets" in displayed.metadata
    assert ("application/vnd.jupyter.widget-view+json" in page) is stored
