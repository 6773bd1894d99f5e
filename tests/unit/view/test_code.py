from __future__ import annotations

import dataclasses

import made
import pytest
from tiny_models import tiny

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
    known = {"max_new_tokens": 200, "model": {**comparison.a.meta["model"], "source": "the hub"}}
    traces = {side: Trace(t.table, {**t.meta, **known}) for side, t in traces.items()}
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


def test_traces_that_were_compared_are_made_side_by_side(monkeypatch):
    calls = []
    monkeypatch.setattr(dx, "run", lambda *given, **named: calls.append((given, named)), raising=False)
    monkeypatch.setattr(dx, "compare_traces", lambda a, b: "compared", raising=False)
    names: dict[str, object] = {}
    exec(as_code(made.comparison(n_steps=60, split=40, b_steps=44)), names)
    assert names["comparison"] == "compared"
    assert [given[3] for given, _ in calls] == [60, 44]


def sides(model):
    """Pairs of traces that no `dx.compare` made, by what parts them."""
    config = {"dtype": "float32"}
    one = dx.run(model, "The giant", config, 5)
    whole = dx.compare(model, "A giant", config, config, 5, evidence="fast")
    return {
        "another prompt": (one, dx.run(model, "A giant", config, 5)),
        "more steps": (one, dx.run(model, "The giant", config, 9)),
        "forced": (one, dx.force(model, "The giant", {"dtype": "bfloat16"}, one.token_ids)),
        "scored": (one, dx.score(model, "The giant", one.token_ids, config)),
        "stopped": (stopped(model, 5), one),
        "a branch of another prompt": (one, whole.fork("b", 2, int(whole.b.top_ids[2, 1]))),
        "two branches": (
            whole.fork("a", 1, int(whole.a.top_ids[1, 1])),
            whole.fork("a", 1, int(whole.a.top_ids[1, 2])),
        ),
    }


def stopped(model, steps):
    """A run of 400 steps that was stopped."""
    seen = []
    ended = {"progress": lambda *step: seen.append(step), "stop": lambda: len(seen) >= steps}
    return dx.run(model, "The giant", {"dtype": "float32"}, 400, **ended)


PARTED = ["another prompt", "more steps", "forced", "scored", "stopped", "a branch of another prompt", "two branches"]


@pytest.mark.parametrize("what", PARTED)
def test_a_pair_of_traces_comes_out_the_same_again(fairy_tales, what):
    first = dx.compare_traces(*sides(fairy_tales)[what])
    names: dict[str, object] = {}
    exec(as_code(first), names)
    again = names["comparison"]
    assert again.verdict == first.verdict
    assert again.why == first.why.removesuffix(" Inconclusive: a run ended early.")  # Stop is not pressed again
    for side in ("a", "b"):
        assert getattr(again, side).token_ids == getattr(first, side).token_ids
        assert getattr(again, side).table["row_hash"].to_list() == getattr(first, side).table["row_hash"].to_list()


def test_a_model_that_no_name_gets_back_is_to_be_filled_in(tmp_path):
    net = tiny("llama", 64, 1)
    net.save_pretrained(tmp_path / "mine")
    for model, told in ((str(tmp_path / "mine"), "'mine' came from a folder"), (net, "came from memory")):
        first = dx.compare(model, [1, 2, 3], {}, {"batch_size": 2}, 3, evidence="fast")
        code = as_code(first)
        assert told in code
        assert str(tmp_path) not in code
        with pytest.raises(dx.Refusal, match="a model of type ellipsis"):
            exec(code, {})
        names: dict[str, object] = {"given": model}
        exec(code.replace("model = ...", "model = given"), names)
        assert names["comparison"].a.token_ids == first.a.token_ids


def test_a_name_is_written_only_where_it_leads_back_to_the_model(tmp_path, fairy_tales):
    """A folder may be called like a model of ours, and each side may have a model of its own."""
    fairy_tales.to_transformers().save_pretrained(tmp_path / "fairy-tales")
    ours = dx.run(fairy_tales, [1, 2, 3], {}, 3)
    theirs = dx.run(str(tmp_path / "fairy-tales"), [1, 2, 3], {}, 3)
    other = dx.run(tiny("llama"), [1, 2, 3], {}, 3)
    mixed = as_code(dx.compare_traces(ours, theirs))
    assert "a = dx.run(\n    'fairy-tales',\n" in mixed
    assert "b = dx.run(\n    model,\n" in mixed
    apart = as_code(dx.compare_traces(other, theirs))
    assert "'LlamaForCausalLM' came from memory" in apart.partition("model_b = ...")[0]
    assert "b = dx.run(\n    model_b,\n" in apart
    old = [
        Trace(trace.table, {**trace.meta, "model": {**trace.meta["model"], "name": name, "source": None}})
        for trace, name in ((ours, "fairy-tales"), (other, "mine"))
    ]
    told = as_code(dx.compare_traces(*old))
    assert "'mine' came from a place that was not recorded" in told
    assert "a = dx.run(\n    'fairy-tales',\n" in told


def test_of_a_stopped_run_as_many_steps_are_asked_for_as_there_are(fairy_tales):
    seen = []
    first = dx.compare(
        fairy_tales,
        "The giant",
        **PAIR,
        max_new_tokens=500,
        progress=lambda *step: seen.append(step),
        stop=lambda: len(seen) > 3,
    )
    assert first.a.partial
    assert f"max_new_tokens={len(first.a)}," in as_code(first)
    assert f"# A was cut short after {len(first.a)} steps" in as_code(first)


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
