"""A comparison on disk and in words: opened elsewhere it is the same, and what is damaged is refused by name."""

from __future__ import annotations

import dataclasses
import json
import re

import polars as pl
import pytest
from tiny_models import tiny

from divexplore.comparison.compare import compare, compare_traces
from divexplore.comparison.comparison import Comparison
from divexplore.config import PRESETS
from divexplore.errors import FormatError, Refusal
from divexplore.models import load_model
from divexplore.trace import Trace, strict_json

PROMPT = [17, 4, 201, 96, 33, 150, 8, 77, 240, 5]


@pytest.fixture(scope="module")
def split(fairy_tales):
    """A pair that parts on every processor: fp16 and bf16 of one text, tried until it does."""
    for prompt in ("The giant", "Once upon a time", "The king said", "In a dark forest", "The wolf"):
        comparison = compare(fairy_tales, prompt, {"dtype": "float16"}, {"dtype": "bfloat16"}, 48, evidence="fast")
        if comparison.split is not None:
            return comparison
    return pytest.fail("fp16 and bf16 agree on five texts: what is compared?")


@pytest.fixture(scope="module")
def agreed():
    return compare(load_model(tiny("llama")), PROMPT, {}, {}, 4, evidence="fast")


@pytest.mark.parametrize("which", ["split", "agreed"])
def test_saved_and_loaded_it_is_the_same_comparison(request, tmp_path, which):
    comparison = request.getfixturevalue(which)
    loaded = Comparison.load(comparison.save(tmp_path / "new" / "folder"))
    assert loaded.a == comparison.a
    assert loaded.b == comparison.b
    assert loaded.split == comparison.split
    assert loaded.judgement == comparison.judgement
    assert loaded.steps.equals(comparison.steps)
    assert loaded.columns.equals(comparison.columns)
    assert strict_json(loaded.to_dict()) == strict_json(comparison.to_dict())
    assert str(loaded) == str(comparison)
    assert loaded.to_markdown() == comparison.to_markdown()
    assert repr(loaded) == repr(comparison)


def test_the_default_evidence_survives_the_disk(fairy_tales, tmp_path):
    preset = PRESETS["batch"]
    comparison = compare(fairy_tales, "The giant", preset.a, preset.b, 8)
    loaded = Comparison.load(comparison.save(tmp_path))
    assert strict_json(loaded.to_dict()) == strict_json(comparison.to_dict())
    assert str(loaded) == str(comparison)


def test_saving_again_replaces_what_was_there(split, agreed, tmp_path):
    split.save(tmp_path)
    agreed.save(tmp_path)
    assert Comparison.load(tmp_path).verdict is agreed.verdict
    assert Comparison.load(tmp_path).split is None


def test_a_folder_without_a_comparison_is_not_found(tmp_path):
    with pytest.raises(FileNotFoundError):
        Comparison.load(tmp_path)


@pytest.mark.parametrize("folder", [7, None, [], "", b"x"], ids=repr)
def test_what_is_no_path_is_refused(folder, agreed):
    for refused in (Comparison.load, agreed.save):
        with pytest.raises(Refusal, match="path") as caught:
            refused(folder)
        assert all(caught.value.to_dict().values())


def test_a_file_is_no_comparison(agreed, tmp_path):
    with pytest.raises(Refusal, match=r"Trace\.load"):
        Comparison.load(agreed.a.save(tmp_path / "a.parquet"))


def edit(folder, **changes):
    file = folder / "comparison.json"
    facts = json.loads(file.read_text(encoding="utf-8"))
    file.write_text(json.dumps(facts | changes), encoding="utf-8")


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: (folder / "comparison.json").write_text("{", encoding="utf-8"),
        lambda folder: (folder / "comparison.json").write_text("[]", encoding="utf-8"),
        lambda folder: (folder / "comparison.json").write_bytes(b"\xff\xfe\x00"),
        lambda folder: edit(folder, format="divexplore.trace/1"),
        lambda folder: edit(folder, format="divexplore.comparison/2"),
        lambda folder: edit(folder, verdict="rounding"),
        lambda folder: edit(folder, split={"step": 3}),
        lambda folder: (folder / "a.parquet").write_bytes(b"PAR1"),
        lambda folder: (folder / "steps.parquet").write_bytes(b""),
        lambda folder: (folder / "columns.parquet").unlink(),
    ],
    ids=["cut", "list", "bytes", "trace", "newer", "verdict", "split", "side", "steps", "columns"],
)
def test_what_is_damaged_is_refused_with_a_way_out(split, tmp_path, damage):
    damage(split.save(tmp_path / "comparison"))
    with pytest.raises(FormatError) as caught:
        Comparison.load(tmp_path / "comparison")
    assert caught.value.asked
    assert caught.value.allowed
    assert caught.value.do


@pytest.mark.parametrize("side", ["a", "b"])
def test_a_side_that_is_gone_is_told(split, tmp_path, side):
    (split.save(tmp_path) / f"{side}.parquet").unlink()
    with pytest.raises((FileNotFoundError, FormatError), match=rf"{side}\.parquet"):
        Comparison.load(tmp_path)


def test_the_json_has_what_issue_trackers_and_scripts_read(split):
    facts = json.loads(strict_json(split.to_dict()), parse_constant=pytest.fail)
    assert facts["format"].startswith("divexplore.comparison/")
    assert facts["prompt"]["ids"] == split.a.prompt_ids
    assert facts["verdict"] == str(split.verdict)
    assert facts["first_divergence"] == facts["split"]["step"] == split.first_divergence
    for name, trace in (("a", split.a), ("b", split.b)):
        assert facts[name]["token_ids"] == trace.token_ids
        assert facts[name]["requested"] == trace.requested
        side = facts["split"][name]
        assert side["token_id"] == trace.token_ids[split.first_divergence]
        assert [token["logit"] for token in side["top"]] == sorted(
            (token["logit"] for token in side["top"]), reverse=True
        )
        assert side["top"][0]["id"] == side["token_id"]
        assert side["top"][0]["probability"] == pytest.approx(side["probability"])
        assert sum(token["probability"] for token in side["top"]) <= 1 + 1e-9


def test_the_report_fits_a_comment_and_holds_the_numbers(split):
    report = str(split)
    assert len(report.splitlines()) <= 25
    for words in (split.why, split.next, f"step {split.first_divergence}", "float16", "bfloat16", "torch", "ULP"):
        assert words in report
    assert len(repr(split).splitlines()) == 1


def test_a_report_of_tokens_that_look_like_markdown_is_still_one_table(split):
    """A model may say bars, backticks and line ends; the rows of the table stay rows."""
    nasty = ["|", "``", "\n", "` |", "<b>"]
    traces = []
    for trace in (split.a, split.b):
        texts = [nasty[step % len(nasty)] for step in range(len(trace))]
        traces.append(Trace(trace.table.with_columns(text=pl.Series(texts)), trace.meta))
    broken = dataclasses.replace(split, a=traces[0], b=traces[1])
    lines = [line for line in broken.to_markdown().splitlines() if line.startswith("|")]
    plain = [line for line in split.to_markdown().splitlines() if line.startswith("|")]
    assert len(lines) == len(plain)
    bars = [len(re.findall(r"(?<!\\)\|", line)) for line in lines]
    assert bars == [len(re.findall(r"(?<!\\)\|", line)) for line in plain]


def test_token_texts_mean_nothing_to_markdown(split):
    judged = dataclasses.replace(split.judgement, why="A took '<b>' and B `*`", evidence=("x | <img>",))
    text = dataclasses.replace(split, judgement=judged).to_markdown()
    assert r"A took '\<b>' and B \`\*\`" in text
    assert r"- x \| \<img>" in text


def test_a_report_steers_no_terminal_and_turns_no_line_round(split):
    """Token texts of a foreign record are as their bytes say."""
    odd, at = list(split.a.texts), split.first_divergence
    odd[at - 2 : at] = "\x1b]0;pwned\x07", "\u202eevil"
    table = split.a.table.with_columns(text=pl.Series(odd))
    report = compare_traces(Trace(table, split.a.meta), split.b)
    for text in (str(report), report.to_markdown()):
        assert not {"\x1b", "\x07", "\u202e"} & set(text)
        assert "⟨001B⟩]0;pwned⟨0007⟩⟨202E⟩evil" in text
