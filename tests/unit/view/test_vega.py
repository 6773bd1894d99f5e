from __future__ import annotations

import gzip
import subprocess

import pytest

from divexplore.errors import Refusal
from divexplore.view import vega


def test_the_runtime_is_made_once_and_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("DIVEXPLORE_CACHE", str(tmp_path))
    first = vega.runtime()
    assert gzip.decompress(first).decode().rstrip().endswith("};") or b"as default" in gzip.decompress(first)
    monkeypatch.setattr(subprocess, "run", lambda *args, **options: pytest.fail("made a second time"))
    assert vega.runtime() == first
    (kept,) = tmp_path.iterdir()
    assert kept.suffix == ".gz", "nothing half-written is left"
    assert kept.stat().st_mode & 0o777 == 0o644, "a cache may be shared"


def test_the_runtime_lies_where_models_do_whatever_the_folder_is_called(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("DIVEXPLORE_CACHE", "~/kept")
    monkeypatch.setattr(vega, "_BUNDLE", "print('export default 1')")
    vega.runtime()
    assert len(list((tmp_path / "kept").glob("vega-*"))) == 1


def test_a_runtime_that_cannot_be_made_is_refused_with_its_reason(tmp_path, monkeypatch):
    monkeypatch.setenv("DIVEXPLORE_CACHE", str(tmp_path))
    monkeypatch.setattr(vega, "_BUNDLE", "import a_module_that_is_not_there")
    with pytest.raises(Refusal, match="a_module_that_is_not_there"):
        vega.runtime()


def test_a_folder_that_cannot_be_written_costs_only_the_next_start(tmp_path, monkeypatch):
    file = tmp_path / "file"
    file.write_text("in the way")
    monkeypatch.setenv("DIVEXPLORE_CACHE", str(file))
    monkeypatch.setattr(vega, "_BUNDLE", "print('export default 1')")
    assert gzip.decompress(vega.runtime()) == b"export default 1\n"
