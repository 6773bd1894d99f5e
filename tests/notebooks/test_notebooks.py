"""Every notebook runs from top to bottom in a fresh kernel, and is committed without outputs."""

from __future__ import annotations

import shutil
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

FOLDER = Path(__file__).parents[2] / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


CELL_SECONDS = 300  # against a hang; how long a notebook takes is printed, not tested


@pytest.fixture(scope="module")
def executed(tmp_path_factory):
    """`executed(name, old, new)` runs a copy of a notebook, once, and returns it with its outputs."""
    done = {}

    def run(name, old="", new=""):
        if (name, old, new) not in done:
            folder = Path(shutil.copytree(FOLDER, tmp_path_factory.mktemp("run") / "notebooks"))
            text = (folder / name).read_text(encoding="utf-8")
            notebook = nbformat.reads(text.replace(old, new) if old else text, as_version=4)
            where = {"metadata": {"path": folder}}
            NotebookClient(notebook, timeout=CELL_SECONDS, kernel_name="python3", resources=where).execute()
            done[name, old, new] = notebook
        return done[name, old, new]

    return run


def texts(notebook):
    """What a reader sees without widgets: the streams and the plain text of every result, by cell id."""
    return {
        cell.id: "".join(
            output.get("text", "") or output.get("data", {}).get("text/plain", "") for output in cell.outputs
        )
        for cell in notebook.cells
        if cell.cell_type == "code"
    }


def test_there_are_notebooks():
    assert [path.name for path in NOTEBOOKS] != []


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_committed_clean(path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    assert "widgets" not in notebook.metadata
    for cell in notebook.cells:
        if cell.cell_type == "code":
            assert (cell.outputs, cell.execution_count) == ([], None)
            assert not any(line.lstrip().startswith(("%", "!")) for line in cell.source.splitlines()), "a magic"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_without_errors(executed, path):
    notebook = executed(path.name)  # raises on the first error of a cell
    assert all(cell.execution_count for cell in notebook.cells if cell.cell_type == "code")


def test_the_quickstart_shows_a_split_and_a_finer_dtype(executed):
    shown = texts(executed("01_quickstart.ipynb"))
    assert "pair swing" in shown["check"]
    coarse, fine = (float(line.rpartition(" ")[2]) for line in shown["fp32"].splitlines()[:2])
    assert 0 <= fine < coarse


def test_the_quickstart_displays_the_view_and_the_panel(executed):
    outputs = {cell.id: cell.outputs for cell in executed("01_quickstart.ipynb").cells if cell.cell_type == "code"}
    for cell in ("view", "explorer"):
        widget, page = (output["data"] for output in outputs[cell])  # and what stays when the widget is gone
        assert "application/vnd.jupyter.widget-view+json" in widget
        assert 'class="dx-saved"' in page["text/html"]


def test_where_both_sides_agree_the_quickstart_opens_the_stored_comparison(executed):
    """The same notebook, with the pair replaced by one that cannot differ."""
    assert (FOLDER / "01_quickstart.ipynb").read_text(encoding="utf-8").count("batch_size=8") == 2
    shown = texts(executed("01_quickstart.ipynb", "batch_size=8", "batch_size=1"))
    assert "IDENTICAL" in shown["compare"]
    assert "pair swing" in shown["check"]
