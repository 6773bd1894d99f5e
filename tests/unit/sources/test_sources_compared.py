"""Two records are compared by what their texts, their ends and their requests say, not by their common rows alone."""

from __future__ import annotations

import json
import math

import pytest
from made_records import entry as row
from made_records import greedy_chat as chat
from made_records import guard, ollama, read

import divexplore as dx


def entry(text, logprob, *others):
    """A row that lists the token taken and `others`."""
    return row(text, logprob, [(text, logprob), *others])


def differs(comparison):
    return next(line for line in str(comparison).splitlines() if line.startswith("differs"))


HELLO = entry("he", -0.5, ("we", -1.0)), entry("y", -0.25, ("r", -1.5))


@pytest.mark.parametrize(
    ("entries", "beside"),
    [
        ((*HELLO, entry("<end>", -0.1)), "'<end>'"),
        ((entry("hmm", -0.1), entry("</think>", -0.1), *HELLO), "'hmm</think>'"),
        ((entry(" he", -0.5), HELLO[1]), "' '"),
    ],
)
def test_case_50_equal_texts_are_no_other_run_whatever_the_tokens_hold_beside_them(tmp_path, entries, beside):
    told = {"message": {"content": "hey"}}
    measured, bare = read(
        tmp_path, chat(*entries, request={"logprobs": True}, **told), chat(request={}, logprobs=None, **told)
    )
    for a, b in ((measured, bare), (bare, measured)):
        comparison = dx.compare_traces(a, b)
        assert comparison.verdict == "measurement"
        assert comparison.inconclusive
        assert "The texts are the same over 3 characters" in comparison.why
        assert f"tokens hold {beside} beside its text" in comparison.why


def test_case_50_what_did_not_differ_in_measuring_or_was_cut_short_is_not_blamed_on_it(tmp_path):
    request = {"prompt": "P", "options": {"temperature": 0}, "logprobs": True}
    measured, unheard, cut = read(
        tmp_path,
        ollama(HELLO, request),
        ollama([], request, response="hello"),
        ollama([], request | {"logprobs": False}, response="h"),
    )
    assert "changes the run" not in dx.compare_traces(measured, unheard).why, "both asked for log-probabilities"
    assert "changes the run" in dx.compare_traces(measured, cut).why
    cut.meta["partial"] = True
    comparison = dx.compare_traces(measured, cut)
    assert "changes the run" not in comparison.why
    assert "B ended early" in comparison.why


MORE = (*HELLO, entry("!", -0.1, ("?", -3.0)))


@pytest.mark.parametrize("finish", ["stop", "length"])
def test_a_stream_that_ends_where_the_other_goes_on_is_a_divergence_without_a_row(tmp_path, finish):
    ended, went_on = read(tmp_path, chat(*HELLO, finish_reason="stop"), chat(*MORE, finish_reason=finish))
    for a, b, name in ((ended, went_on, "A"), (went_on, ended, "B")):
        comparison = dx.compare_traces(a, b)
        assert comparison.verdict == "measurement"
        assert comparison.inconclusive
        assert f"{name} ended where" in comparison.why
        assert "went on with '!'" in comparison.why
        assert "end-of-sequence token has no row" in comparison.why


def test_other_stop_rules_or_limits_by_request_are_policy_where_a_stream_is_longer(tmp_path):
    plain, word, short, same = read(
        tmp_path,
        chat(*MORE, finish_reason="stop"),
        chat(*HELLO, finish_reason="stop", request={"stop": ["!"]}),
        chat(*HELLO, request={"max_tokens": 2}),
        chat(*HELLO, finish_reason="stop", request={"max_tokens": 99}),
    )
    comparison = dx.compare_traces(plain, word)
    assert comparison.verdict == "policy"
    assert """A none asked for; B stop ["!"]""" in comparison.why
    assert """stop ["!"]""" in differs(comparison)
    limited = dx.compare_traces(plain, short)
    assert limited.verdict == "policy"
    assert "B at most 2 tokens" in limited.why
    assert dx.compare_traces(plain, same).verdict == "measurement", "a limit that nobody reached ended nothing"


def test_other_ends_of_equal_tokens_are_no_proof_of_other_stop_rules(tmp_path):
    eos, length, limited = read(
        tmp_path,
        chat(*HELLO, finish_reason="stop"),
        chat(*HELLO),
        chat(*HELLO, request={"max_tokens": 2}),
    )
    untold, asked = dx.compare_traces(eos, length), dx.compare_traces(eos, limited)
    assert untold.verdict == asked.verdict == "policy"
    assert (untold.inconclusive, asked.inconclusive) == (True, False)
    assert "not in the requests" in untold.why
    assert "B at most 2 tokens" in asked.why


def test_one_limit_and_fewer_rows_is_a_record_that_lacks_some(tmp_path):
    a, b = read(tmp_path, *(chat(*rows, request={"max_tokens": 3}) for rows in (MORE, HELLO)))
    comparison = dx.compare_traces(a, b)
    assert comparison.verdict == "measurement"
    assert "B's record lacks some" in comparison.why


def test_a_longer_stream_is_never_conclusively_identical(tmp_path):
    longer, unknown, filtered, cut = read(
        tmp_path,
        chat(*MORE),
        chat(*HELLO, finish_reason=None),
        chat(*HELLO, finish_reason="content_filter"),
        chat(*HELLO, finish_reason=None, error={"message": "overloaded"}),
    )
    for other, how in ((unknown, "why is not recorded"), (filtered, "by content_filter"), (cut, "overloaded")):
        comparison = dx.compare_traces(longer, other)
        assert comparison.verdict == "identical"
        assert comparison.inconclusive
        assert "B ends after 2 of 3 tokens" in comparison.why
        assert how in comparison.why
        assert "goes on with '!'" in comparison.why


def test_an_end_that_has_a_row_on_one_side_alone_is_no_divergence_and_not_conclusive(tmp_path):
    bare, with_end = read(
        tmp_path,
        chat(*HELLO, finish_reason="stop"),
        chat(*HELLO, entry("<end>", -0.1), finish_reason="stop", message={"content": "hey"}),
    )
    comparison = dx.compare_traces(bare, with_end)
    assert comparison.verdict == "identical"
    assert comparison.inconclusive
    assert "B has a row for its end, '<end>', and A has none" in comparison.why


PENALTIES = [
    {"repetition_penalty": 1.3},
    {"frequency_penalty": 0.5},
    {"presence_penalty": 0.5},
    {"repeat_penalty": 1.1},
    {"logit_bias": {"5": -100}},
]


@pytest.mark.parametrize("asked", PENALTIES)
def test_cases_40_and_41_what_moves_the_scores_by_request_is_policy_and_named(tmp_path, asked):
    """The values may be from after the penalty: then each side took its own best, and only the requests tell."""
    first = entry("a", -0.5, ("b", -0.75))
    plain, moved = read(
        tmp_path,
        chat(first, entry("b", -0.25, ("a", -1.5))),
        chat(first, entry("c", -0.25, ("d", -1.5)), request=asked),
    )
    [(name, value)] = asked.items()
    comparison = dx.compare_traces(plain, moved)
    assert comparison.verdict == "policy"
    assert comparison.inconclusive
    assert f"A none; B {name} {json.dumps(value)}" in comparison.why
    assert name in differs(comparison)
    assert moved.record["greedy"] is True
    assert dx.compare_traces(moved, moved).verdict == "identical"


def test_case_40_a_penalty_that_chose_below_the_best_raw_value_is_certain(tmp_path):
    plain, moved = read(
        tmp_path,
        chat(entry("a", -0.25, ("b", -1.5))),
        chat(entry("b", -1.5, ("a", -0.25)), request={"repetition_penalty": 1.3}),
    )
    comparison = dx.compare_traces(plain, moved)
    assert comparison.verdict == "policy"
    assert not comparison.inconclusive
    assert "greedy, repetition_penalty 1.3" in comparison.why


def test_what_changes_nothing_or_is_not_known_is_no_other_choice(tmp_path):
    neutral = {"repetition_penalty": 1.0, "frequency_penalty": 0, "logit_bias": {}, "response_format": {"type": "text"}}
    rows = entry("a", -0.25, ("b", -0.5)), entry("b", -0.25, ("a", -0.5))
    plain, same, unknown = read(tmp_path, chat(rows[0]), chat(rows[1], request=neutral), chat(rows[1])["response"])
    for other in (same, unknown):
        assert dx.compare_traces(plain, other).verdict == "near_tie"


def test_case_35_the_best_of_one_candidate_is_another_path_than_temperature_zero(tmp_path):
    zero, one = read(tmp_path, chat(*HELLO), chat(*HELLO, request={"top_k": 1, "temperature": 1}))
    assert (zero.record["greedy"], one.record["greedy"]) == (True, True)
    comparison = dx.compare_traces(zero, one)
    assert "the decode paths differ: A greedy; B greedy by top_k 1 at temperature 1" in str(comparison)
    assert not comparison.inconclusive, "both take the best token"


@pytest.mark.parametrize("swap", [False, True])
def test_nan_and_an_infinity_of_one_list_alone_are_invalid(tmp_path, swap):
    whole, nan, infinite = read(
        tmp_path, *(chat(entry("a", -0.5, ("b", value)), entry("c", -0.25)) for value in (-0.75, math.nan, -math.inf))
    )
    pairs = [(nan, whole), (infinite, whole)] if swap else [(whole, nan), (whole, infinite)]
    side = "A" if swap else "B"
    of_nan, of_infinity = (dx.compare_traces(*pair) for pair in pairs)
    assert of_nan.verdict == of_infinity.verdict == "invalid"
    assert "NaN" in of_nan.why
    assert of_infinity.why == f"At step 0 the log-probability of 'b' is minus infinity on {side} only."
    assert "inf nats" not in str(of_infinity)
    assert of_nan.why.startswith(f"{side}'s log-probabilities at step 0 hold")
    assert guard(of_infinity, "finite").ok is False
    assert dx.compare_traces(infinite, infinite).verdict == "identical"
