"""Cases that come as records: what they do not support is said, and nothing is claimed that they do not hold."""

from __future__ import annotations

import functools
import json
import math

import numpy as np
import pytest
from made_records import greedy_chat as chat
from made_records import guard
from small_models import PROMPT, small

import divexplore as dx
from divexplore.comparison.comparison import Comparison
from divexplore.comparison.record_limits import joins, temperature_ratio
from divexplore.errors import FormatError
from divexplore.trace import strict_json
from divexplore.view.comparison_view import ComparisonView
from divexplore.view.static import static_html


def read(folder, *items):
    path = folder / "record.jsonl"
    path.write_text("\n".join(map(json.dumps, items)), encoding="utf-8")
    return dx.read_records(path)


def entry(text, logprob, *others):
    listed = [(text, logprob), *others]
    return {
        "token": text,
        "bytes": list(text.encode()),
        "logprob": logprob,
        "top_logprobs": [{"token": t, "bytes": list(t.encode()), "logprob": v} for t, v in listed],
    }


def ollama(text, request, entries=None):
    response = {"model": "made", "response": text, "done": True, "done_reason": "stop"}
    return {"request": request, "response": response | ({"logprobs": entries} if entries else {})}


HELLO = entry("he", -0.5, ("we", -1.0)), entry("y", -0.25, ("r", -1.5))


def test_case_44_settings_at_the_wrong_level_are_requested_but_not_echoed_and_not_greedy(tmp_path):
    at_the_top = ollama("hey", {"prompt": "P", "seed": 1, "temperature": 0, "logprobs": True}, HELLO)
    inside = ollama("hey", {"prompt": "P", "options": {"seed": 1, "temperature": 0}, "logprobs": True}, HELLO)
    lost, kept = read(tmp_path, at_the_top, inside)
    assert set(lost.record["not_echoed"]) == {"seed", "temperature"}
    assert lost.record["greedy"] is False
    assert kept.record["not_echoed"] == {}
    assert kept.record["greedy"] is True
    comparison = dx.compare_traces(lost, kept)
    assert comparison.inconclusive
    assert guard(comparison, "greedy").ok is False
    assert "temperature was requested but not echoed" in str(comparison)
    assert not dx.compare_traces(kept, kept).inconclusive


def test_case_44_a_response_that_repeats_another_value_says_what_ran(tmp_path):
    row = {"id": 1, "token": "a", "bytes": [97], "logprob": -0.5, "top_logprobs": []}
    body = {"content": "a", "completion_probabilities": [row], "generation_settings": {"temperature": 0.8}}
    [trace] = read(tmp_path, {"request": {"prompt": "P", "temperature": 0}, "response": body})
    assert trace.record["greedy"] is False
    assert "0.8" in trace.record["not_echoed"]["temperature"]


def test_case_49_a_text_is_never_tokenised_again(tmp_path):
    with_tokens, text_only = read(
        tmp_path,
        ollama("hey", {"prompt": "P", "options": {"temperature": 0}}, HELLO),
        ollama("hey", {"prompt": "P", "options": {"temperature": 0}}),
    )
    comparison = dx.compare_traces(with_tokens, text_only)
    assert text_only.token_ids == []
    assert comparison.verdict == "measurement"
    assert comparison.inconclusive
    assert comparison.steps.height == 0


def test_case_49_the_same_bytes_cut_otherwise_are_shown_as_joins(tmp_path):
    cut, whole = read(
        tmp_path,
        chat(entry("oh", -0.5), entry("he", -1.0), entry("llo", -0.1), entry("!", -0.2)),
        chat(entry("oh", -0.5), entry("hello", -1.5), entry("!", -0.2)),
    )
    comparison = dx.compare_traces(cut, whole)
    assert comparison.first_divergence == 1
    assert comparison.verdict == "measurement"
    assert "'he'+'llo' = 'hello'" in comparison.why
    assert joins(whole, cut, 1) == "'hello' = 'he'+'llo'"


def test_case_49_other_bytes_are_no_other_cut(tmp_path):
    a, b = read(tmp_path, chat(entry("he", -1.0), entry("llo", -0.1)), chat(entry("help", -1.5), entry("!", -0.2)))
    assert joins(a, b, 0) is None


def test_case_49_a_list_of_logprobs_one_longer_than_the_ids_is_an_error(tmp_path):
    with pytest.raises(FormatError, match="2 log-probabilities beside 1 token ids"):
        read(tmp_path, chat(*HELLO, token_ids=[3]))


def test_case_50_measuring_that_changes_the_text_is_told_with_a_third_stream_to_keep(tmp_path):
    request = {"prompt": "P", "options": {"temperature": 0}}
    measured, bare, same = read(
        tmp_path,
        ollama("hey", request | {"logprobs": True, "top_logprobs": 2}, HELLO),
        ollama("hello", request),
        ollama("hey", request),
    )
    comparison = dx.compare_traces(measured, bare)
    assert comparison.verdict == "measurement"
    assert "The measurement changes the run" in comparison.why
    assert "third stream" in comparison.next
    assert not comparison.inconclusive
    assert "hello" in str(comparison), "the text that users see is in the report"
    equal = dx.compare_traces(measured, same)
    assert "changes the run" not in equal.why
    assert "third stream" not in equal.next


def test_case_50_another_request_is_not_blamed_on_the_measurement(tmp_path):
    measured, bare = read(
        tmp_path,
        ollama("hey", {"prompt": "P", "options": {"temperature": 0}, "logprobs": True}, HELLO),
        ollama("hello", {"prompt": "P", "options": {"temperature": 0, "num_ctx": 64}}),
    )
    assert "changes the run" not in dx.compare_traces(measured, bare).why


@functools.cache
def run_of(dtype="float32"):
    return dx.run(small(hidden=256), PROMPT, {"dtype": dtype}, 12)


def recorded(trace, temperature=1.0, k=5):
    """A record of a run as an engine would write it: log-probabilities of the logits over a temperature.

    The random model's vocabulary is small, and its top list covers nearly all of the mass: the list is normalised anew,
    which moves each step by a constant and no gap.
    """
    entries = []
    for token, ids, logits in zip(trace.token_ids, trace.top_ids, trace.top_logits, strict=True):
        scaled = logits / temperature
        values = dict(zip(map(str, ids), (scaled - np.logaddexp.reduce(scaled)).tolist(), strict=True))
        entries.append(entry(str(token), values[str(token)], *list(values.items())[1:k]))
    return chat(*entries, token_ids=trace.token_ids)


def test_case_51_the_same_logits_at_another_temperature_are_recognised(tmp_path):
    raw, cool = read(tmp_path, recorded(run_of()), recorded(run_of(), 0.5))
    assert raw.token_ids == cool.token_ids
    for a, b, ratio in ((raw, cool, 2.0), (cool, raw, 0.5)):
        comparison = dx.compare_traces(a, b)
        assert temperature_ratio(a, b, 12) == pytest.approx(ratio, rel=1e-6)
        assert comparison.verdict == "measurement"
        assert "another temperature" in comparison.why
        assert "T about 0.5" in comparison.why


def test_case_51_two_dtypes_are_not_called_another_temperature(tmp_path):
    a, b = read(tmp_path, recorded(run_of()), recorded(run_of("bfloat16")))
    common = dx.compare_traces(a, b).steps.height
    assert a.table["logprob"].to_list() != b.table["logprob"].to_list()
    assert temperature_ratio(a, b, common) is None
    assert temperature_ratio(a, a, 12) is None


def test_case_51_another_model_is_no_temperature(tmp_path):
    other = dx.run(small(hidden=256, seed=5), PROMPT, {"dtype": "float32"}, 12)
    a, b = read(tmp_path, recorded(run_of()), recorded(other))
    assert temperature_ratio(a, b, 12) is None


def test_case_38_where_only_logprobs_are_available_it_is_said_and_no_tie_is_exact(tmp_path):
    a, b = read(tmp_path, chat(entry("a", -1.0, ("b", -1.0))), chat(entry("b", -1.0, ("a", -1.0))))
    comparison = dx.compare_traces(a, b)
    assert (comparison.split.a.gap, comparison.split.b.gap) == (0, 0)
    assert comparison.verdict == "near_tie"
    assert comparison.inconclusive
    assert "only log-probabilities were recorded" in str(comparison)


def test_case_29_records_of_prompts_that_only_share_a_prefix_are_not_compared(tmp_path):
    one, other = read(
        tmp_path, chat(*HELLO, prompt_token_ids=[5, 6, 7], token_ids=[1, 2]), chat(*HELLO, prompt_token_ids=[5, 6, 8])
    )
    comparison = dx.compare_traces(one, other)
    assert comparison.verdict == "prompt_mismatch"
    assert "position 2" in comparison.why


def test_prompts_of_which_nothing_is_known_are_no_mismatch(tmp_path):
    known, other, unknown = read(
        tmp_path,
        chat(*HELLO, prompt_token_ids=[5, 6]),
        chat(*HELLO, request={"messages": [{"role": "user", "content": "Bye"}]}),
        chat(*HELLO)["response"],
    )
    comparison = dx.compare_traces(known, unknown)
    assert comparison.verdict == "identical"
    assert guard(comparison, "prompt_ids").ok is None
    assert dx.compare_traces(known, other).verdict == "prompt_mismatch"


def test_ids_of_one_side_and_bytes_of_the_other_are_one_token(tmp_path):
    by_id, by_bytes = read(tmp_path, chat(*HELLO, token_ids=[31, 32]), chat(*HELLO))
    assert by_id.token_ids != by_bytes.token_ids
    comparison = dx.compare_traces(by_id, by_bytes)
    assert comparison.b.token_ids == [31, 32]
    assert comparison.verdict == "identical"


def test_a_text_that_two_ids_share_stands_for_neither(tmp_path):
    twice, by_bytes = read(
        tmp_path, chat(entry("a", -0.5), entry("a", -0.25), token_ids=[31, 32]), chat(entry("a", -0.5))
    )
    assert dx.compare_traces(twice, by_bytes).b.token_ids == by_bytes.token_ids


def test_drift_and_gaps_are_those_of_the_recorded_values(tmp_path):
    a, b = read(
        tmp_path,
        chat(entry("x", -0.5, ("y", -1.0)), entry("a", -0.5, ("b", -0.75))),
        chat(entry("x", -0.5, ("y", -1.25)), entry("b", -0.5, ("a", -0.625))),
    )
    comparison = dx.compare_traces(a, b)
    assert comparison.first_drift == 0, "an alternative moved, the token taken did not"
    assert comparison.steps["delta_logprob"].to_list() == [0, None]
    assert comparison.steps["delta_listed"].to_list() == [0.25, 0.25]
    assert comparison.steps["epsilon"].null_count() == 2
    assert (comparison.split.a.gap, comparison.split.b.gap) == (0.25, 0.125)
    assert comparison.split.pair_swing == 0.375
    assert comparison.verdict == "near_tie"
    assert comparison.inconclusive


def test_a_token_outside_the_other_list_leaves_how_near_it_was_unknown(tmp_path):
    a, b = read(tmp_path, chat(entry("a", -0.5, ("b", -0.75))), chat(entry("c", -0.5, ("a", -0.75))))
    comparison = dx.compare_traces(a, b)
    assert comparison.verdict == "measurement"
    assert "'c' is not in A's list of 2" in comparison.why
    assert comparison.split.a.gap is None


def test_a_list_that_leaves_out_what_belongs_there_is_drift(tmp_path):
    a, b = read(
        tmp_path, chat(entry("a", -0.5, ("b", -1.0), ("c", -2.0))), chat(entry("a", -0.5, ("c", -2.0), ("d", -3.0)))
    )
    assert dx.compare_traces(a, b).first_drift == 0


def test_equal_lists_of_one_value_tied_at_the_end_are_no_drift(tmp_path):
    a, b = read(
        tmp_path, chat(entry("a", -0.5, ("b", -1.0), ("c", -2.0))), chat(entry("a", -0.5, ("b", -1.0), ("d", -2.0)))
    )
    assert dx.compare_traces(a, b).first_drift is None


def test_uniform_values_are_invalid(tmp_path):
    flat = -math.log(4096)
    a, b = read(tmp_path, chat(*(entry(c, flat) for c in "abc")), chat(*(entry(c, flat) for c in "abc")))
    assert dx.compare_traces(a, b).verdict == "invalid"


def test_tokens_without_any_value_are_no_identical_rows(tmp_path):
    a, b = read(tmp_path, chat(entry("a", None), entry("b", None)), chat(entry("a", None), entry("b", None)))
    comparison = dx.compare_traces(a, b)
    assert comparison.verdict == "measurement"
    assert "no log-probability" in comparison.why


def test_probabilities_after_sampling_support_no_claim(tmp_path):
    row = {"content": "a", "probs": [{"tok_str": "a", "prob": 0.5}]}
    a, b = read(tmp_path, *[{"content": "a", "completion_probabilities": [row]}] * 2)
    assert "after temperature" in dx.compare_traces(a, b).why


def test_tokens_known_by_text_alone_are_not_called_equal(tmp_path):
    logprobs = {"tokens": ["a"], "token_logprobs": [-0.5], "top_logprobs": [{"a": -0.5}]}
    a, b = read(tmp_path, *[{"choices": [{"index": 0, "text": "a", "logprobs": logprobs}]}] * 2)
    comparison = dx.compare_traces(a, b)
    assert comparison.verdict == "measurement"
    assert "text alone" in comparison.why


def test_a_token_below_the_best_of_its_list_is_not_greedy(tmp_path):
    [a] = read(tmp_path, chat(entry("a", -2.0, ("b", -0.5))))
    comparison = dx.compare_traces(a, a)
    assert guard(comparison, "greedy").ok is False
    assert "not greedy under the reported logprobs" in str(comparison)


PAIRS = {
    "split": (chat(*HELLO), chat(HELLO[0], entry("r", -0.5, ("y", -0.75)))),
    "ragged": (chat(HELLO[0], entry("y", -0.25)), chat(HELLO[0], entry("y", None))),
    "text only": (chat(*HELLO), {"generated_text": "hello", "details": None}),
    "no list, no value": (
        {"generated_text": "ab", "details": {"tokens": [{"id": 3, "text": "ab", "logprob": None}]}},
        {"generated_text": "cd", "details": {"tokens": [{"id": 4, "text": "cd", "logprob": -0.5}]}},
    ),
    "infinite": (chat(entry("a", -0.5, ("b", -math.inf))), chat(entry("a", -0.5, ("b", -0.75)))),
}


@pytest.mark.parametrize("name", PAIRS)
def test_a_comparison_of_records_is_shown_saved_and_read_back(name, tmp_path):
    """Nothing that is unknown is made up, and nothing breaks for want of it."""
    [a], [b] = (read(tmp_path, item) for item in PAIRS[name])
    comparison = dx.compare_traces(a, b)
    told = json.loads(strict_json(comparison.to_dict()))
    assert told["a"]["effective"]["dtype"] == "unknown"
    assert "hardware unknown" in str(comparison)
    assert "nan" not in comparison.to_markdown()
    again = Comparison.load(comparison.save(tmp_path / "kept"))
    assert str(again) == str(comparison)
    assert again.a == comparison.a
    view = ComparisonView(comparison)
    page = static_html(view._payload)
    assert "nan" not in page
    assert "read_records('record.jsonl')[0]" in view.meta["code"]
    assert comparison.to_html(tmp_path / "page.html").is_file()


def test_a_record_is_compared_with_a_run_of_our_own(tmp_path):
    """The run's logits are log-probabilities but for a constant a step."""
    run = run_of()
    entries = [
        entry(
            f"t{token}", value, *((f"t{i}", x - logit + value) for i, x in zip(ids, logits, strict=True) if i != token)
        )
        for token, value, logit, ids, logits in run.table.select(
            "token_id", "logprob", "logit", "top_ids", "top_logits"
        ).iter_rows()
    ]
    [record] = read(tmp_path, chat(*entries, token_ids=run.token_ids, prompt_token_ids=PROMPT))
    comparison = dx.compare_traces(run, record)
    assert comparison.first_divergence is None
    assert max(comparison.steps["delta_logprob"]) == 0
    assert guard(comparison, "weights").ok is None
