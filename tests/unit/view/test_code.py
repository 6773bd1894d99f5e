from __future__ import annotations

import dataclasses

import made
import pytest

import divexplore as dx
from divexplore.trace import Trace
from divexplore.view.code import as_code

PAIR = {"a": {"dtype": "bfloat16", "batch_size": 1}, "b": {"dtype": "bfloat16", "batch_size": 8}}


@pytest.fixture
def asked(monkeypatch):
    """What the code asks `dx.compare` for."""
    seen = {}

    def compare(model, prompt, **options):
        seen.update(model=model, prompt=prompt, **options)
        return "compared"

    monkeypatch.setattr(dx, "compare", compare, raising=False)
    return seen


def test_the_code_calls_compare_with_what_was_asked(asked):
    names: dict[str, object] = {}
    comparison = made.comparison(n_steps=60)
    traces = {side: getattr(comparison, side) for side in ("a", "b")}
    traces = {side: Trace(t.table, {**t.meta, "max_new_tokens": 200}) for side, t in traces.items()}
    exec(as_code(dataclasses.replace(comparison, **traces, evidence_asked="full")), names)
    assert names["comparison"] == "compared"
    assert asked == {
        "model": "made-up",
        "prompt": "The giant",
        "chat": False,
        "max_new_tokens": 200,  # both runs met their end earlier
        "evidence": "full",
        "a": dx.RunConfig.of(comparison.a.requested),
        "b": dx.RunConfig.of(comparison.b.requested),
    }


def test_of_records_that_do_not_tell_the_longer_run_counts(asked):
    comparison = made.comparison(n_steps=60, split=40, b_steps=44)
    exec(as_code(comparison), {})
    assert asked["max_new_tokens"] == 60
    assert "evidence" not in asked


@pytest.mark.parametrize(("steps", "evidence"), [(12, "default"), (3, "fast")])
def test_a_real_comparison_comes_out_the_same_again(fairy_tales, steps, evidence):
    first = dx.compare(fairy_tales, "The giant", **PAIR, max_new_tokens=steps, evidence=evidence)
    names: dict[str, object] = {}
    exec(as_code(first), names)
    again = names["comparison"]
    assert again.a.token_ids == first.a.token_ids
    assert again.b.table["row_hash"].to_list() == first.b.table["row_hash"].to_list()
    assert again.a.meta["max_new_tokens"] == first.a.meta["max_new_tokens"] == steps
    assert again.evidence_asked == first.evidence_asked == evidence
    assert (again.evidence is None) == (first.evidence is None)
    assert again.verdict == first.verdict


def test_the_cause_is_asked_for_again_too(fairy_tales):
    pair = {"a": {"dtype": "float32"}, "b": {"dtype": "float32", "batch_size": 3}}
    comparison = dx.compare(fairy_tales, "The giant", **pair, max_new_tokens=3, evidence="fast")
    operations = dx.trace_ops(fairy_tales, "The giant", **pair, step=1)
    layers = dx.layer_drift(fairy_tales, "The giant", **pair, max_new_tokens=3)
    names: dict[str, object] = {}
    exec(as_code(comparison.with_cause(operations=operations, layers=layers)), names)
    cause = names["comparison"].cause
    assert cause.attribution is None
    assert cause.operations.first_difference == operations.first_difference
    assert cause.layers.drift.equals(layers.drift)


def test_a_branch_is_taken_again(fairy_tales):
    comparison = dx.compare(fairy_tales, "The giant", **PAIR, max_new_tokens=4, evidence="fast")
    token = int(comparison.b.top_ids[2, 1])
    branch = dx.compare_traces(comparison.b, comparison.fork("b", 2, token))
    names: dict[str, object] = {}
    exec(as_code(branch), names)
    assert names["comparison"].a.token_ids == branch.a.token_ids
    assert names["comparison"].b.token_ids == branch.b.token_ids
    assert names["comparison"].first_divergence == branch.first_divergence == 2
