"""How `divexplore lab` finds the notebooks, keeps what a person made, and what it asks of Jupyter."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import divexplore.lab
from divexplore.cli import main
from divexplore.errors import Refusal
from divexplore.lab import QUICKSTART, copy_notebooks, find_notebooks, jupyter_arguments


@pytest.fixture
def packaged(tmp_path):
    folder = tmp_path / "package" / "notebooks"
    (folder / "data" / ".ipynb_checkpoints").mkdir(parents=True)
    (folder / QUICKSTART).write_text("the quickstart")
    (folder / "data" / "kept.parquet").write_bytes(b"\x00\xff")
    (folder / "data" / ".ipynb_checkpoints" / "kept.parquet").write_bytes(b"")
    return folder


def test_the_packaged_files_are_copied_with_their_folders(packaged, tmp_path):
    assert copy_notebooks(packaged, tmp_path / "mine") == []
    copied = {
        path.relative_to(tmp_path / "mine").as_posix() for path in (tmp_path / "mine").rglob("*.*") if path.is_file()
    }
    assert copied == {QUICKSTART, "data/kept.parquet"}
    assert (tmp_path / "mine" / "data" / "kept.parquet").read_bytes() == b"\x00\xff"


def test_an_edited_file_is_kept_and_named_and_a_lost_one_comes_back(packaged, tmp_path):
    mine = tmp_path / "mine"
    copy_notebooks(packaged, mine)
    (mine / QUICKSTART).write_text("my notes")
    (mine / "data" / "kept.parquet").unlink()
    assert copy_notebooks(packaged, mine) == [QUICKSTART]
    assert (mine / QUICKSTART).read_text() == "my notes"
    assert (mine / "data" / "kept.parquet").exists()


def test_a_second_copy_changes_nothing(packaged, tmp_path):
    mine = tmp_path / "mine"
    copy_notebooks(packaged, mine)
    before = {path: path.stat().st_mtime_ns for path in mine.rglob("*")}
    assert copy_notebooks(packaged, mine) == []
    assert {path: path.stat().st_mtime_ns for path in mine.rglob("*")} == before


def test_from_a_wheel_the_notebooks_land_in_the_users_folder(packaged, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(divexplore.lab, "_PACKAGE", packaged.parent)
    assert find_notebooks(tmp_path) == tmp_path / "divexplore-notebooks"
    (tmp_path / "divexplore-notebooks" / QUICKSTART).write_text("my notes")
    find_notebooks(tmp_path)
    assert f"kept your divexplore-notebooks/{QUICKSTART}" in capsys.readouterr().err


def test_a_file_in_the_way_is_refused(packaged, tmp_path, monkeypatch):
    monkeypatch.setattr(divexplore.lab, "_PACKAGE", packaged.parent)
    (tmp_path / "divexplore-notebooks").write_text("a file")
    with pytest.raises(Refusal, match="divexplore-notebooks"):
        find_notebooks(tmp_path)


def test_from_a_checkout_its_own_notebooks_open(tmp_path):
    folder = find_notebooks(tmp_path)
    assert folder == Path(divexplore.__file__).parent.parent / "notebooks"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("root", [True, False])
def test_root_gets_what_jupyter_asks_for_once(root):
    given = jupyter_arguments(Path("n.ipynb"), browser=False, port=8899, root=root, extra=["--ServerApp.token=x"])
    expected = ["n.ipynb", "--no-browser", "--port=8899", *(["--allow-root"] if root else []), "--ServerApp.token=x"]
    assert given == expected
    assert jupyter_arguments(Path("n"), browser=True, port=None, root=root, extra=["--allow-root"]) == [
        "n",
        "--allow-root",
    ]


def test_the_command_passes_jupyters_own_arguments_on_and_says_what_it_added(monkeypatch, capsys):
    started = []
    monkeypatch.setattr("jupyterlab.labapp.LabApp.launch_instance", lambda argv: started.append(argv))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert main(["lab", "--no-browser", "--port", "8899", "--", "--ServerApp.token=x", "--debug"]) == 0
    assert started[0][1:] == ["--no-browser", "--port=8899", "--allow-root", "--ServerApp.token=x", "--debug"]
    assert Path(started[0][0]).name == QUICKSTART
    assert "--allow-root" in capsys.readouterr().err
