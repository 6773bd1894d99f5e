"""What this machine's products depend on, and the presets that cannot differ."""

from __future__ import annotations

import json

import pytest
import torch

from divexplore.config import PRESETS, Preset, RunConfig
from divexplore.engine import probe as module
from divexplore.engine.probe import can_differ, probe

SMALL = {"dtypes": ("float32", "bfloat16"), "rows": (2, 8), "lengths": (32, 64)}


def test_the_probe_agrees_with_a_bare_product():
    found = probe(("float32",), (8,), (64,), threads=()).table
    x, weight = module._numbers(16, 64, "float32")
    step = x[:, 0]
    alone = torch.cat([torch.nn.functional.linear(row[None], weight) for row in step])
    eight = torch.cat([torch.nn.functional.linear(rows, weight) for rows in step.split(8)])
    assert found.filter(found["phase"] == "step")["equal"].to_list() == [torch.equal(alone, eight)]


def test_every_question_has_a_row_and_every_dtype_a_sentence():
    found = probe(**SMALL, threads=(2,))
    rows = found.table.filter(found.table["varies"] == "rows")
    assert rows.height == 2 * 2 * 2 * 2  # dtypes, lengths, phases, rows
    assert found.table.height == rows.height + 2 * 2 * 2
    assert (found.table["equal"] == (found.table["max_abs"] == 0)).all()
    assert [line.partition(":")[0] for line in found.explain()] == ["float32", "bfloat16"]


def test_threads_are_put_back():
    before = torch.get_num_threads()
    probe(**SMALL, threads=(1, 2, 3))
    assert torch.get_num_threads() == before


def test_a_batch_preset_is_greyed_where_rows_never_matter(monkeypatch):
    monkeypatch.setattr(module, "_rows_never_matter", lambda *asked: True)
    assert "bfloat16" in can_differ("batch")
    monkeypatch.setattr(module, "_rows_never_matter", lambda *asked: False)
    assert can_differ("batch") is None


def test_threads_are_greyed_on_one_core(monkeypatch):
    monkeypatch.setattr(module.os, "sched_getaffinity", lambda pid: {0}, raising=False)
    assert "one core" in can_differ("threads")


@pytest.mark.parametrize("name", ["bf16-fp32", "cache", "attention", "left-pad"])
def test_what_can_always_differ_is_not_greyed(name):
    assert can_differ(name) is None


def test_a_seed_and_an_absent_device_are_greyed():
    assert "does not read" in can_differ(Preset("x", "x", RunConfig(seed=0), RunConfig(seed=1)))
    assert "not possible here" in can_differ(Preset("x", "x", RunConfig(device="cuda:77"), RunConfig(device="cpu")))


def test_the_command_prints_sentences_and_json(capsys, monkeypatch):
    from divexplore.cli import main

    monkeypatch.setattr(module, "probe", lambda: probe(**SMALL))
    monkeypatch.setattr(module, "can_differ", lambda name: "too equal" if name == next(iter(PRESETS)) else None)
    assert main(["probe"]) == 0
    assert "float32: " in (text := capsys.readouterr().out)
    assert "cannot differ here: too equal" in text
    assert main(["probe", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["format"] == "divexplore.probe/1"
    assert len(told["products"]) == probe(**SMALL).table.height
