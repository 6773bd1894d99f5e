"""The reference records beside the checkout give what was worked out of them by hand."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest
from needs import absent

import divexplore as dx
from divexplore.errors import FormatError

RECORDS = Path(__file__).parents[4] / "shared" / "data" / "records"

VLLM, CHAT, LLAMA = "vllm_v1_completions", "vllm_v1_chat_completions", "llamacpp_v1_completions"
STORY, RAIN, LIST = "Tell me a short story", "Explain how rain", "Write a list of five"
# file, prompt, arm beside solo-1, first drift, first divergence, max |Δlogprob| before it, gaps, tokens
TABLE = [
    (VLLM, STORY, "solo-2", None, None, 0, None, None),
    (VLLM, STORY, "copies-8/0", 1, 22, 0.08526, (0.0625, 0.0625), (" AI", " robotics")),
    (VLLM, STORY, "mixed-8/0", 1, 22, 0.08526, (0.0625, 0.0625), (" AI", " robotics")),
    (VLLM, RAIN, "solo-2", None, None, 0, None, None),
    (VLLM, RAIN, "copies-8/0", 3, 8, 0.03366, (0.125, 0.0), (" (", ",")),
    (VLLM, RAIN, "mixed-8/2", 3, 8, 0.03366, (0.125, 0.0), (" (", ",")),
    (VLLM, LIST, "solo-2", None, None, 0, None, None),
    (VLLM, LIST, "copies-8/0", 1, None, 0.1424, None, None),
    (VLLM, LIST, "mixed-8/3", 1, None, 0.1424, None, None),
    (CHAT, STORY, "solo-2", None, None, 0, None, None),
    (CHAT, STORY, "copies-8/0", 1, 19, 0.1069, (0.03125, 0.046875), (" K", ' "')),
    (CHAT, STORY, "mixed-8/0", 1, 19, 0.1069, (0.03125, 0.046875), (" K", ' "')),
    (CHAT, LIST, "solo-2", None, None, 0, None, None),
    (CHAT, LIST, "copies-8/0", 1, None, 0.109, None, None),
    (CHAT, LIST, "mixed-8/3", 1, None, 0.109, None, None),
    *((LLAMA, STORY, arm, None, None, 0, None, None) for arm in ("solo-2", "copies-8/0", "mixed-8/0")),
    *((LLAMA, LIST, arm, None, None, 0, None, None) for arm in ("solo-2", "copies-8/0", "mixed-8/3")),
]


@functools.cache
def records(name):
    if not RECORDS.is_dir():
        absent("shared", "no folder of reference records beside the checkout")
    return dx.read_records(RECORDS / name)


def of(name, prompt, arm):
    found = [
        trace
        for trace in records(f"{name}.jsonl")
        if prompt in trace.meta["prompt"]["text"] and trace.record["labels"]["arm"] == arm
    ]
    assert len(found) == 1
    return found[0]


def moved(comparison):
    """Largest |Δlogprob| of the token taken, nats."""
    return max(comparison.steps["delta_logprob"].drop_nulls())


@pytest.mark.parametrize(("name", "prompt", "arm", "drift", "split", "largest", "gaps", "tokens"), TABLE)
def test_pairs_of_one_engine(name, prompt, arm, drift, split, largest, gaps, tokens):
    comparison = dx.compare_traces(of(name, prompt, "solo-1"), of(name, prompt, arm))
    assert comparison.first_drift == drift
    assert comparison.first_divergence == split
    assert moved(comparison) == pytest.approx(largest, rel=1e-3)
    if split is None:
        assert comparison.verdict == ("identical" if drift is None else "drift_only")
        return
    sides = comparison.split.a, comparison.split.b
    assert tuple(side.text for side in sides) == tokens
    assert [side.gap for side in sides] == pytest.approx(gaps, abs=1e-6)
    assert comparison.verdict == "near_tie"
    assert comparison.inconclusive, "a record has no rung above it"


@pytest.mark.parametrize("name", [VLLM, CHAT, LLAMA])
def test_a_streamed_body_is_the_response_that_it_streams(name):
    comparison = dx.compare_traces(of(name, STORY, "solo-1"), of(name, STORY, "stream"))
    assert comparison.verdict == "identical"
    assert comparison.a.text == comparison.b.text


@pytest.mark.parametrize("name", [VLLM, CHAT, LLAMA])
def test_every_request_was_greedy_and_known_by_ids(name):
    facts = {(trace.record["greedy"], trace.record["identity"], len(trace)) for trace in records(f"{name}.jsonl")}
    assert facts == {(True, "ids", 64)}


def test_tgi_alone_against_load_drifts_without_a_divergence():
    [alone] = records("tgi_generate-1.json")
    load = records("tgi_generate-2-load4.json")
    found = [dx.compare_traces(alone, trace) for trace in load]
    assert [comparison.first_divergence for comparison in found] == [None] * 4
    assert min(map(moved, found)) == pytest.approx(0.0337, abs=1e-4)
    assert max(map(moved, found)) == pytest.approx(0.0400, abs=1e-4)
    assert len({tuple(trace.table["logprob"]) for trace in load}) == 2
    assert len(alone) == 10


def test_tgi_alone_against_load_diverges_and_how_near_it_was_is_not_recorded():
    [alone] = records("tgi_generate-3.json")
    load = records("tgi_generate-4-load4.json")
    comparison = dx.compare_traces(alone, load[0])
    assert (comparison.first_drift, comparison.first_divergence) == (2, 5)
    assert comparison.steps["delta_logprob"][2] == 0.046875
    assert [(s.text, s.logit) for s in (comparison.split.a, comparison.split.b)] == [
        (" a", -1.578125),
        (" the", -1.515625),
    ]
    assert all((value * 256).is_integer() for value in alone.table["logprob"])
    assert len({tuple(trace.table["logprob"]) for trace in load}) == 1
    assert comparison.verdict == "measurement"


def test_a_seq2seq_prefill_has_a_pad_without_a_value():
    [trace] = records("tgi_generate-9-seq2seq.json")
    assert [(e["text"], e["logprob"]) for e in trace.record["prefill"]] == [("<pad>", None)]


def test_four_rows_of_a_speculating_engine_agree_in_their_tokens():
    rows = records("tgi_generate-10-medusa-load4.json")
    found = [dx.compare_traces(rows[0], row) for row in rows[1:]]
    assert [comparison.first_divergence for comparison in found] == [None] * 3
    assert max(map(moved, found)) == pytest.approx(0.0059, abs=1e-4)


def test_rows_of_margins_are_not_greedy_under_their_own_values():
    found = [trace.record["below_best"] for trace in records("ollama_margins-1.jsonl")]
    assert [(row["steps"], row["of"]) for row in found] == [(8, 136), (100, 667)]
    assert max(row["most"] for row in found) == pytest.approx(2.29, abs=0.005)


def test_a_chat_stream_without_its_end_mark_is_read():
    [trace] = records("openai_chat_stream-1-tgi144.sse")
    assert len(trace) == 100
    assert any("are not the text" in warning for warning in trace.meta["warnings"]), "two tokens are escaped twice"


@pytest.mark.parametrize(
    "name", ["openai_responses-1.json", "openai_responses_stream-1-lmstudio.jsonl", "tgi_generate_stream-1.sse"]
)
def test_shapes_that_are_not_read_are_refused(name):
    with pytest.raises(FormatError, match="shape"):
        records(name)
