"""The knobs of real pairs, and what about a batch it is."""

from __future__ import annotations

import pytest
from tiny_models import tiny

import divexplore as dx
from divexplore.comparison.attribution import attribute, expected_runs
from divexplore.comparison.neighbours import QUESTIONS
from divexplore.config import RunConfig
from divexplore.engine.probe import probe
from divexplore.errors import Refusal

PROMPT = [5, 17, 3, 200, 41]


@pytest.fixture(scope="module")
def model():
    return dx.load_model(tiny("llama"))


@pytest.fixture(scope="module")
def found(model):
    if probe(("float32",), (8,), (64,), threads=()).table["equal"].all():
        pytest.skip("this processor multiplies one row and eight to equal bits in fp32")
    b = {"dtype": "float32", "batch_size": 8, "seed": 3, "deterministic": True}
    return attribute(model, PROMPT, {"dtype": "float32"}, b, 8)


def test_the_batch_size_makes_the_drift_and_the_others_none(found):
    assert found.minimal_drift == ("batch_size",)
    drifts = dict(zip(found.table["knob"], found.table["drift"], strict=True))
    assert drifts["batch_size"] > 0
    assert drifts["seed"] == drifts["deterministic"] == 0
    assert dict(zip(found.table["knob"], found.table["verdict"], strict=True))["seed"] == "identical"


def test_every_question_about_the_batch_is_answered(found):
    answers = {row["question"]: row for row in found.neighbours.iter_rows(named=True)}
    # without a tokenizer there are no bundled prompts, which is said and does not end the search
    assert set(answers) == set(QUESTIONS)
    assert answers["solo"]["verdict"] == "identical"
    assert answers["copies"]["first_drift"] == found.table.row(0, named=True)["first_drift"]
    assert answers["other fillers"]["verdict"] is None
    assert "tokenizer" in answers["other fillers"]["why"]
    assert answers["longer fillers"]["verdict"] is not None


def test_the_result_reads_as_sentences_and_as_json(found):
    assert "batch_size" in repr(found)
    assert "batch, copies" in str(found)
    assert found.to_dict()["minimal_drift"] == ["batch_size"]
    assert (
        found.runs <= expected_runs(RunConfig(dtype="float32"), RunConfig(batch_size=8, seed=3, deterministic=True)) + 1
    )


def test_equal_sides_have_no_knob(model):
    found = attribute(model, PROMPT, {"seed": 1}, {"seed": 1}, 3)
    assert (found.fields, found.minimal_flip, found.minimal_drift) == ((), None, None)


def test_a_precision_pair_names_the_dtype(model):
    found = attribute(model, PROMPT, {"dtype": "float32"}, {"dtype": "bfloat16", "seed": 1}, 4)
    assert found.minimal_drift == ("dtype",)
    assert found.neighbours.height == 0


def test_progress_counts_the_runs_and_stop_keeps_the_table(model):
    seen = []
    found = attribute(
        model,
        PROMPT,
        {"seed": 0},
        {"seed": 1, "deterministic": True, "mkldnn": False},
        3,
        progress=lambda done, total, what: seen.append((done, total)),
        stop=lambda: len(seen) >= 6,
    )
    assert found.stopped
    assert [done for done, _ in seen] == list(range(len(seen)))
    assert found.table.height >= 1
    assert found.minimal_flip is None


def test_stop_before_anything_is_known_is_refused(model):
    with pytest.raises(Refusal, match="stopped"):
        attribute(model, PROMPT, {}, {"seed": 1}, 3, stop=lambda: True)


def test_smollm2_is_flipped_by_the_batch_size_alone(smollm2):
    prompt = "Tell me a short story about a robot who learns to paint."
    b = {"dtype": "bfloat16", "batch_size": 8, "seed": 7, "num_threads": 1, "deterministic": True}
    found = attribute(smollm2, prompt, {"dtype": "bfloat16"}, b, 16, neighbours=False)
    if found.minimal_flip is None:
        sums = (smollm2.config.hidden_size, smollm2.config.intermediate_size)
        if not probe(("bfloat16",), (8,), sums, threads=()).table["equal"].all():
            assert found.minimal_drift == ("batch_size",)
        pytest.skip("no token differs in 16 steps on this processor")
    assert found.minimal_flip == ("batch_size",)
    assert found.minimal_drift == ("batch_size",)
