"""What was found out about the cause belongs to its comparison: on disk, in words, and never to another pair."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import divexplore as dx
from divexplore.trace import strict_json

PAIR = {"dtype": "float32"}, {"dtype": "float32", "batch_size": 3}
STEPS = 5
QUICKSTART = Path(__file__).parents[3] / "notebooks" / "data" / "quickstart"


@pytest.fixture(scope="module")
def asked(fairy_tales):
    request = (fairy_tales, "The giant", *PAIR)
    return {
        "attribution": dx.attribute(*request, STEPS, neighbours=False),
        "operations": dx.trace_ops(*request, 1),
        "layers": dx.layer_drift(*request, STEPS),
    }


@pytest.fixture(scope="module")
def comparison(fairy_tales):
    return dx.compare(fairy_tales, "The giant", *PAIR, STEPS, evidence="fast")


def test_parts_come_together_one_by_one(comparison, asked):
    one = comparison.with_cause(operations=asked["operations"])
    assert comparison.cause is None
    assert one.cause.operations is asked["operations"]
    both = one.with_cause(attribution=asked["attribution"])
    assert both.cause.operations is asked["operations"]
    assert both.cause.attribution is asked["attribution"]
    assert both.cause.layers is None
    assert both.pair is comparison.pair


def test_saved_and_loaded_the_cause_is_the_same(comparison, asked, tmp_path):
    whole = comparison.with_cause(**asked)
    loaded = dx.Comparison.load(whole.save(tmp_path))
    assert strict_json(loaded.to_dict()) == strict_json(whole.to_dict())
    assert {name: table.to_dicts() for name, table in loaded.cause.tables().items()} == {
        name: table.to_dicts() for name, table in whole.cause.tables().items()
    }
    assert loaded.cause.operations.first_difference == asked["operations"].first_difference
    assert loaded.cause.layers.candidates == asked["layers"].candidates
    assert loaded.cause.attribution.minimal_drift == asked["attribution"].minimal_drift
    assert loaded.cause.operations.b == asked["operations"].b
    assert loaded.evidence_asked == "fast"


def test_saving_over_a_cause_leaves_none_of_it(comparison, asked, tmp_path):
    comparison.with_cause(**asked).save(tmp_path)
    comparison.with_cause(layers=asked["layers"]).save(tmp_path)
    assert dx.Comparison.load(tmp_path).cause.operations is None
    assert not (tmp_path / "cause_operations.parquet").exists()
    comparison.save(tmp_path)
    assert dx.Comparison.load(tmp_path).cause is None
    assert not list(tmp_path.glob("cause_*"))


def test_a_folder_from_before_there_was_a_cause_opens(comparison, tmp_path):
    file = comparison.save(tmp_path) / "comparison.json"
    facts = json.loads(file.read_text(encoding="utf-8"))
    del facts["cause"], facts["evidence"]["asked"]
    file.write_text(json.dumps(facts), encoding="utf-8")
    loaded = dx.Comparison.load(tmp_path)
    assert loaded.cause is None
    assert loaded.evidence_asked is None
    assert dx.Comparison.load(QUICKSTART).split is not None


def test_a_table_that_is_gone_is_told_with_a_way_out(comparison, asked, tmp_path):
    comparison.with_cause(**asked).save(tmp_path)
    (tmp_path / "cause_lens.parquet").unlink()
    with pytest.raises(dx.Refusal, match=r"cause_lens\.parquet"):
        dx.Comparison.load(tmp_path)


def test_reports_say_what_was_found(comparison, asked):
    whole = comparison.with_cause(**asked)
    for report in (str(whole), whole.to_markdown()):
        for sentence in whole.cause.sentences:
            assert sentence in report
    assert "batch_size is enough for the logits to drift." in str(whole)
    assert asked["operations"].first_difference.module in str(whole)
    assert "cause" not in str(comparison)


@pytest.mark.parametrize("part", ["attribution", "operations", "layers"])
def test_the_cause_of_another_pair_is_refused(fairy_tales, asked, part):
    other = dx.compare(fairy_tales, "The giant", PAIR[0], {**PAIR[1], "left_pad": 1}, 2, evidence="fast")
    with pytest.raises(dx.Refusal, match=part):
        other.with_cause(**{part: asked[part]})
