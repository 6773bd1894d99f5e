"""Every notebook runs from top to bottom in a fresh kernel, and is committed without outputs."""

from __future__ import annotations

import shutil
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

FOLDER = Path(__file__).parents[2] / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


@pytest.fixture
def copied(tmp_path):
    """The notebooks and their data, where a run may write."""
    return Path(shutil.copytree(FOLDER, tmp_path / "notebooks"))


def run(path):
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(notebook, timeout=30, kernel_name="python3", resources={"metadata": {"path": path.parent}})
    client.execute()  # raises on the first error of a cell
    return notebook


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
def test_a_notebook_runs_without_errors(copied, path):
    run(copied / path.name)


def test_the_quickstart_shows_a_split_and_a_finer_dtype(copied):
    shown = texts(run(copied / "01_quickstart.ipynb"))
    assert "pair swing" in shown["check"]
    coarse, fine = (float(line.rpartition(" ")[2]) for line in shown["fp32"].splitlines()[:2])
    assert 0 <= fine < coarse


def test_where_both_sides_agree_the_quickstart_opens_the_stored_comparison(copied):
    """The same notebook, with the pair replaced by one that cannot differ."""
    path = copied / "01_quickstart.ipynb"
    text = path.read_text(encoding="utf-8")
    assert text.count("batch_size=8") == 2
    path.write_text(text.replace("batch_size=8", "batch_size=1"), encoding="utf-8")
    shown = texts(run(path))
    assert "IDENTICAL" in shown["compare"]
    assert "pair swing" in shown["check"]
