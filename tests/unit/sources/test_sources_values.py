"""Missing, floor, infinity and zero are four things; lists keep their order, their length and what they lost."""

from __future__ import annotations

import math

import pytest
from made_records import chat, completion, entry, read, tgi

from divexplore.errors import FormatError
from divexplore.trace import Trace, strict_json


@pytest.mark.parametrize("floor", [-9999.0, -100.0, -1e30, -3.4028234663852886e38])
def test_a_floor_is_no_value(tmp_path, floor):
    [trace] = read(tmp_path, chat([entry("a", floor, [("b", -0.5), ("c", floor)])]))
    assert trace.table["logprob"].to_list() == [None]
    assert trace.record["chosen_without_value"] == {"floor": [0]}
    assert trace.record["floors"] == 2
    assert [v for v in trace.top_logits[0] if not math.isnan(v)] == [-0.5]


def test_missing_infinite_and_zero_are_kept_apart(tmp_path):
    body = '{"choices": [{"text": "abc", "logprobs": {"tokens": ["a", "b", "c"], "token_logprobs": [null, -Infinity, 0.0]}}]}'
    [trace] = read(tmp_path, body)
    assert trace.table["logprob"].to_list() == [None, -math.inf, 0.0]
    assert trace.record["chosen_without_value"] == {"missing": [0], "-inf": [1]}


def test_nan_is_invalid(tmp_path):
    [trace] = read(tmp_path, '{"choices": [{"text": "a", "logprobs": {"tokens": ["a"], "token_logprobs": [NaN]}}]}')
    assert trace.table["logprob"].to_list() == [None]
    assert trace.meta["invalid"] == {"step": 0, "nan": 1, "positive_infinite": 0}


@pytest.mark.parametrize("value", [0.3067, 1.0, math.inf])
def test_a_positive_value_is_refused_aloud(tmp_path, value):
    with pytest.raises(FormatError, match="above 0"):
        read(tmp_path, chat([entry("a", value)]))


@pytest.mark.parametrize("value", ["-0.5", True, [1]])
def test_what_is_no_number_is_refused(tmp_path, value):
    with pytest.raises(FormatError, match="for a log-probability"):
        read(tmp_path, chat([entry("a", value)]))


def test_zero_everywhere_without_alternatives_is_a_placeholder(tmp_path):
    [empty] = read(tmp_path, chat([entry("a", 0), entry("b", 0)]))
    [certain] = read(tmp_path, chat([entry("a", 0, [("a", 0), ("c", -40.0)]), entry("b", 0)]))
    assert empty.table["logprob"].null_count() == 2
    assert empty.record["values"] == "none"
    assert certain.table["logprob"].to_list() == [0, 0]


def test_alternatives_are_sorted_and_the_token_taken_is_added_where_it_is_outside(tmp_path):
    """vLLM lists the sampled token first, others leave it out."""
    [trace] = read(tmp_path, chat([entry("z", -3.0, [("z", -3.0), ("a", -0.5)]), entry("y", -4.0, [("a", -0.25)])]))
    assert trace.top_logits.tolist() == [[-0.5, -3.0], [-0.25, -4.0]]
    assert trace.record["outside_list"] == [1]
    assert "outside its top list" in trace.meta["warnings"][0]


def test_ties_with_known_ids_are_in_the_order_of_the_ids(tmp_path):
    lists = [[{"id": 9, "text": "b", "logprob": -1.0}, {"id": 4, "text": "a", "logprob": -1.0}]]
    [trace] = read(tmp_path, tgi([(9, "b", -1.0)], lists))
    assert trace.top_ids.tolist() == [[4, 9]]
    assert trace.table["exact_tie"].to_list() == [None], "a tie of log-probabilities is not known to be one of logits"


def test_a_list_that_is_shorter_than_another_ends_in_nulls(tmp_path):
    rows = [entry("a", -0.5, [("a", -0.5), ("b", -1.0), ("c", -2.0)]), entry("b", -0.25), entry("c", None)]
    [trace] = read(tmp_path, chat(rows))
    assert trace.top_ids.shape == trace.top_logits.shape == (3, 3)
    assert trace.top_ids.dtype == "int32"
    assert trace.top_ids[1].tolist()[1:] == [-1, -1]
    assert [math.isnan(v) for v in trace.top_logits[1]] == [False, True, True]
    assert trace.table["top_ids"].to_list()[2] == [None, None, None]
    assert Trace.load(trace.save(tmp_path / "trace.parquet")) == trace
    assert "NaN" not in strict_json(trace.meta)


def test_the_token_and_its_own_entry_are_told_apart_where_they_differ(tmp_path):
    [trace] = read(tmp_path, chat([entry("a", -0.5, [("a", -0.75)])]))
    assert trace.table["logprob"].to_list() == [-0.5]
    assert "differ, by up to 0.25 nats" in trace.meta["warnings"][0]


def test_keys_that_stand_for_two_tokens_are_counted(tmp_path):
    body = (
        '{"choices": [{"text": "a", "token_ids": [1], "logprobs": {"tokens": ["a"], "token_logprobs": [-0.5], '
        '"top_logprobs": [{"a": -0.5, "b": -1.5, "b": -2.5}]}}]}'
    )
    [trace] = read(tmp_path, body)
    assert trace.record["lossy"] == [0]
    assert trace.top_logits.tolist() == [[-0.5, -2.5]]


def test_one_id_for_all_alternatives_is_a_list_that_lost_them(tmp_path):
    entries = [entry("token_id:7", -0.5, [("token_id:7", -0.5), ("token_id:7", -1.5)], bytes=None)]
    [trace] = read(tmp_path, chat(entries, message={"content": "a"}))
    assert trace.token_ids == [7]
    assert trace.record["lossy"] == [0]


def test_lost_bytes_are_no_identity(tmp_path):
    """Ollama makes bytes of the text: half a character becomes U+FFFD, whichever half it was."""
    [trace] = read(tmp_path, chat([entry("�", -0.5, [("�", -0.5), ("�", -0.75), ("a", -1.0)])]))
    assert trace.record["unidentified"] == [0]
    assert trace.top_logits[0].tolist() == [-0.5, -1.0]
    assert "lost their bytes" in " ".join(trace.meta["warnings"])


def test_the_same_bytes_have_one_id_in_every_record(tmp_path):
    [a] = read(tmp_path, chat([entry(" the", -0.5)]))
    [b] = read(tmp_path, completion([" the"], [-0.25], [{" the": -0.25, " a": -1.0}]))
    assert a.token_ids == b.token_ids
    assert b.record["identity"] == "text"


def test_rows_and_ids_that_do_not_fit_are_an_error_and_never_padded(tmp_path):
    with pytest.raises(FormatError, match="2 log-probabilities beside 1 token ids"):
        read(tmp_path, completion(["a", "b"], [-0.5, -0.5], None, token_ids=[1]))
    with pytest.raises(FormatError, match="3 token_logprobs beside 2 tokens"):
        read(tmp_path, completion(["a", "b"], [-0.5, -0.5, -0.5], None))
    with pytest.raises(FormatError, match="top lists beside"):
        read(tmp_path, tgi([(1, "a", -0.5), (2, "b", -0.5)], [[]]))


def test_an_echoed_prompt_is_cut_off_where_its_length_is_known(tmp_path):
    body = completion(["P", "a"], [None, -0.5], [None, {"a": -0.5}])
    [trace] = read(tmp_path, {"request": {"echo": True}, "response": body | {"usage": {"prompt_tokens": 1}}})
    assert trace.table["text"].to_list() == ["a"]
    with pytest.raises(FormatError, match="repeats the prompt"):
        read(tmp_path, {"request": {"echo": True}, "response": body})


def test_tokens_that_are_not_the_text_are_told(tmp_path):
    [more] = read(tmp_path, chat([entry("a", -0.5), entry("<end>", -0.1)], message={"content": "a"}))
    [other] = read(tmp_path, chat([entry("Ġa", -0.5)], message={"content": " a"}))
    assert "5 bytes beside the text" in more.meta["warnings"][0]
    assert "are not the text" in other.meta["warnings"][0]


@pytest.mark.parametrize(
    ("request_", "shape", "known"),
    [
        (None, chat, None),
        ({"temperature": 0}, chat, True),
        ({"temperature": 0.7}, chat, False),
        ({}, chat, False),
        ({"top_k": 1}, chat, True),
    ],
)
def test_greedy_is_known_from_the_request_alone(tmp_path, request_, shape, known):
    [trace] = read(tmp_path, shape([entry("a", -0.5)], request_))
    assert trace.record["greedy"] is known


@pytest.mark.parametrize(
    ("parameters", "known"), [({}, True), ({"do_sample": True}, False), ({"temperature": 0.5}, False)]
)
def test_tgi_is_greedy_unless_it_is_told_to_sample(tmp_path, parameters, known):
    [trace] = read(tmp_path, {"request": {"inputs": "P", "parameters": parameters}, "response": tgi([(1, "a", -0.5)])})
    assert trace.record["greedy"] is known
