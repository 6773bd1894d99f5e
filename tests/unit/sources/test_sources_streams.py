"""A stream that ends early says so, a field of another kind is named with its place, and no line is cut inside a value."""

from __future__ import annotations

import json

import pytest
from made_records import chat, entry, llamacpp, ollama, read, tgi, write

import divexplore as dx
from divexplore.errors import FormatError


def events(*chunks, done=True):
    return "\n\n".join([*(f"data: {json.dumps(chunk)}" for chunk in chunks), *(["data: [DONE]"] if done else [])])


def chunk(text, entries=None, response=None, **fields):
    logprobs = None if entries is None else {"content": entries}
    part = {"index": 0, "delta": {"content": text}, "logprobs": logprobs} | fields
    return {"model": "made", "choices": [part]} | (response or {})


def line(text, done=False, **fields):
    entries = [entry(text, -0.5)] if text else None
    return {"model": "m", "response": text, "done": done, "logprobs": entries} | fields


ERROR = {"error": {"message": "overloaded"}}


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (events(chunk("a", [entry("a", -0.5)]), done=False), "without a finish_reason"),
        (events(chunk("a", [entry("a", -0.5)]), ERROR), "overloaded"),
        (events(chunk("a", [entry("a", -0.5)]), ERROR | {"choices": []}, done=False), "overloaded"),
        (events(chunk("a", [entry("a", -0.5)]), done=False) + "\n\nerror: overloaded\n\n", "overloaded"),
    ],
)
def test_a_stream_of_events_that_is_cut_or_fails_is_partial_and_says_why(tmp_path, body, why):
    [trace] = read(tmp_path, body, name="record.sse")
    assert trace.partial
    assert why in trace.meta["error"]
    assert trace.text == "a"
    comparison = dx.compare_traces(trace, trace)
    assert comparison.inconclusive
    assert why in str(comparison)


@pytest.mark.parametrize(
    "body",
    [
        events(chunk("a", [entry("a", -0.5)])),
        events(chunk("a", [entry("a", -0.5)]), chunk("", finish_reason="stop"), done=False),
    ],
)
def test_a_stream_that_says_its_end_in_either_way_is_whole(tmp_path, body):
    [trace] = read(tmp_path, body, name="record.sse")
    assert not trace.partial
    assert trace.meta["error"] is None


def test_a_stream_that_is_only_an_error_is_refused_with_it(tmp_path):
    with pytest.raises(FormatError, match="overloaded"):
        read(tmp_path, events(ERROR), name="record.sse")


def test_an_error_beside_a_choice_is_kept(tmp_path):
    [beside] = read(tmp_path, chat([entry("a", -0.5)], finish_reason="error", error={"message": "out of memory"}))
    assert beside.partial
    assert "out of memory" in beside.meta["error"]
    [none] = read(tmp_path, {"error": None, "choices": chat([entry("a", -0.5)])["choices"]})
    assert not none.partial


@pytest.mark.parametrize(
    ("last", "why"), [((), "before its last line"), (({"error": "runner stopped"},), "runner stopped")]
)
@pytest.mark.parametrize("first", ["a", "ab"])
def test_an_ollama_stream_that_is_cut_or_fails_is_partial_and_says_why(tmp_path, first, last, why):
    [trace] = read(tmp_path, *map(line, first), *last)
    assert trace.partial
    assert why in trace.meta["error"]
    assert trace.text == first
    assert len(trace) == len(first)


def test_a_half_read_ollama_stream_before_another_record_loses_neither(tmp_path):
    whole = ollama([entry("x", -0.5), entry("y", -0.5)])
    half, full, last = read(tmp_path, line("a"), line("b"), chat([entry("c", -0.5)]), whole)
    assert (half.text, half.partial) == ("ab", True)
    assert (full.text, full.partial) == ("c", False)
    assert (last.text, last.partial) == ("xy", False)
    other, same = read(tmp_path, line("a"), whole)
    assert (other.text, same.text) == ("a", "xy"), "a line of another model ends no stream"


def test_ollama_lines_in_an_array_are_one_response_too(tmp_path):
    lines = [line("a"), line("b"), line("", done=True, done_reason="stop")]
    [bare] = read(tmp_path, json.dumps(lines), name="record.json")
    [inside] = read(tmp_path, {"request": {"prompt": "P"}, "response": lines})
    assert bare.text == inside.text == "ab"
    assert not bare.partial
    [cut] = read(tmp_path, {"request": {"prompt": "P"}, "response": lines[0]})
    assert cut.partial


def test_two_streams_in_a_file_are_two_completions(tmp_path):
    """One after [DONE] of the other, or with another id behind its end; llama.cpp gave each chunk an id of its own."""
    one = chunk("a", [entry("a", -0.5)], {"id": "1"}), chunk("", None, {"id": "1"}, finish_reason="stop")
    two = chunk("b", [entry("b", -0.5)], {"id": "2"}), chunk("", None, {"id": "2"}, finish_reason="stop")
    for body in (events(*one) + "\n\n" + events(*two), events(*one, *two, done=False)):
        assert [trace.text for trace in read(tmp_path, body, name="record.sse")] == ["a", "b"]
    [each] = read(tmp_path, events(chunk("a", None, {"id": "1"}), chunk("b", None, {"id": "2"})), name="record.sse")
    assert each.text == "ab"


@pytest.mark.parametrize("mark", ["\u2028", "\u2029", "\x85"])
def test_no_line_is_cut_inside_a_value(tmp_path, mark):
    text = f"a{mark}b"
    whole = json.dumps(chat([entry(text, -0.5)]), ensure_ascii=False)
    assert [trace.record["text"] for trace in read(tmp_path, whole, whole)] == [text, text]
    body = "data: " + json.dumps(chunk(text, [entry(text, -0.5)]), ensure_ascii=False) + "\r\n\r\ndata: [DONE]\r\n"
    [trace] = read(tmp_path, body, name="record.sse")
    [inside] = read(tmp_path, json.dumps({"request": {"prompt": "P"}, "sse": body}, ensure_ascii=False))
    assert trace.record["text"] == inside.record["text"] == text
    assert not inside.partial


@pytest.mark.parametrize(
    ("part", "named"),
    [
        (5, "a choice"),
        ({"index": "0", "delta": {"content": "a"}}, "index"),
        ({"index": [0], "delta": {"content": "a"}}, "index"),
        ({"delta": {"content": 5}}, "content"),
        ({"delta": "a"}, "delta"),
        ({"text": 5}, "text"),
        ({"text": "a", "token_ids": 5}, "token_ids"),
        ({"text": "a", "logprobs": {"tokens": "abc"}}, "tokens"),
        ({"text": "a", "logprobs": "abc"}, "logprobs"),
    ],
)
def test_a_field_of_another_kind_in_a_stream_is_named_with_its_line(tmp_path, part, named):
    body = events({"choices": [{"index": 0, "text": "a"}]}, {"choices": [part]})
    with pytest.raises(FormatError, match=rf"record\.sse, line 3 has .* for {named}"):
        read(tmp_path, body, name="record.sse")
    with pytest.raises(FormatError, match=rf"its stream, line 3 has .* for {named}"):
        read(tmp_path, {"request": {"prompt": "P"}, "sse": body})


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"response": 5}, "response"),
        ({"logprobs": 5}, "logprobs"),
        ({"logprobs": {"a": 1}}, "logprobs"),
        ({"message": {"content": ["a"]}}, "content"),
        ({"message": "a"}, "message"),
        ({"thinking": 5}, "thinking"),
    ],
)
def test_a_field_of_another_kind_in_ollama_lines_is_named_with_its_line(tmp_path, fields, named):
    with pytest.raises(FormatError, match=rf"record\.jsonl, line 2 has .* for {named}"):
        read(tmp_path, line("a"), line("b") | fields)


@pytest.mark.parametrize("text", ["[" * 5000 + "]" * 5000, '{"a": ' * 20000 + "1" + "}" * 20000, "[" * 500 + "]" * 500])
def test_a_value_that_is_nested_too_deep_is_refused(tmp_path, text):
    for body in (text, f"{json.dumps(chat([]))}\n{text}", f"data: {text}"):
        with pytest.raises(FormatError, match="nested deeper than 100"):
            read(tmp_path, body)


def test_a_value_over_several_lines_that_is_cut_is_told_from_a_file_of_lines(tmp_path):
    whole = json.dumps(chat([entry("a", -0.5)]), indent=2)
    with pytest.raises(FormatError, match=r"record\.jsonl is no JSON \(it ends in the middle of a value"):
        read(tmp_path, whole[: len(whole) // 2])
    with pytest.raises(FormatError, match="line 2 is no JSON"):
        read(tmp_path, chat([]), "{")


@pytest.mark.parametrize("wrong", [4_000_000_000, 5, [True], [256], [-1], "YQ==", {"1": 2}])
def test_bytes_are_a_list_of_bytes(tmp_path, wrong):
    with pytest.raises(FormatError, match="for a list of bytes"):
        read(tmp_path, chat([entry("a", -0.5, bytes=wrong)]))


def test_no_bytes_of_a_text_are_none_recorded_and_no_text_is_lost(tmp_path):
    [known] = read(tmp_path, chat([entry("a", -0.5, bytes=[])]))
    assert known.record["unidentified"] == []
    assert known.record["identity"] == "text"
    [empty] = read(tmp_path, chat([entry("", -0.5)]))
    assert "has neither a text nor bytes" in dx.compare_traces(empty, empty).why


ROW = {"id": 1, "token": "a", "bytes": [97], "logprob": -0.5, "top_logprobs": []}


@pytest.mark.parametrize(
    ("item", "told"),
    [
        (llamacpp([ROW], tokens=[1, 2]), "1 log-probabilities beside 2 token ids"),
        (llamacpp([ROW], tokens=[7]), "the id 1 in its entry and 7 in the list"),
        (chat([entry("a", -0.5, id=5)], token_ids=[6]), "the id 5 in its entry and 6 in the list"),
    ],
)
def test_case_49_ids_that_do_not_fit_their_rows_are_refused(tmp_path, item, told):
    with pytest.raises(FormatError, match=told):
        read(tmp_path, item)


def test_ids_beside_rows_of_probabilities_name_them(tmp_path):
    rows = [{"content": "a", "probs": [{"tok_str": "a", "prob": 0.5}]}]
    [trace] = read(tmp_path, llamacpp(rows, tokens=[7]))
    assert trace.token_ids == [7]


@pytest.mark.parametrize("wrong", [["x"], [1.5, None], "abc", [10**30], [True], 5])
def test_prompt_ids_are_a_list_of_token_ids(tmp_path, wrong):
    with pytest.raises(FormatError, match="prompt_token_ids"):
        read(tmp_path, chat([entry("a", -0.5)], prompt_token_ids=wrong))


def test_ids_of_a_prefill_are_token_ids(tmp_path):
    with pytest.raises(FormatError, match="prefill"):
        read(tmp_path, tgi([(3, "a", -0.5)], prefill=[{"id": "a", "text": "P", "logprob": None}]))


@pytest.mark.parametrize("length", [-1, 3, "1", True])
def test_an_echoed_prompt_has_a_length_that_its_rows_allow(tmp_path, length):
    logprobs = {"tokens": ["P", "a"], "token_logprobs": [None, -0.5], "top_logprobs": None}
    body = {"choices": [{"text": "Pa", "logprobs": logprobs}], "usage": {"prompt_tokens": length}}
    with pytest.raises(FormatError, match="repeats a prompt of"):
        read(tmp_path, {"request": {"echo": True}, "response": body})


def test_every_sequence_of_tgi_is_a_completion(tmp_path):
    other = tgi([(4, "b", -0.25)])
    best = [other["details"] | {"generated_text": "b"}]
    first, second = read(tmp_path, tgi([(3, "a", -0.5)], best_of_sequences=best))
    assert (first.token_ids, first.record["index"]) == ([3], 0)
    assert (second.token_ids, second.record["index"], second.text) == ([4], 1, "b")


@pytest.mark.parametrize("wrong", [{"content": "abc"}, {"content": {}}, {"tokens": "abc"}, "abc", [-0.5]])
def test_logprobs_of_another_kind_are_not_read_as_none(tmp_path, wrong):
    with pytest.raises(FormatError, match="for logprobs"):
        dx.read_records(write(tmp_path, {"choices": [{"message": {"content": "a"}, "logprobs": wrong}]}))


@pytest.mark.parametrize("temperature", ["0", False, [0]])
def test_a_temperature_that_is_no_number_tells_nothing(tmp_path, temperature):
    [trace] = read(tmp_path, chat([entry("a", -0.5)], {"temperature": temperature}))
    assert trace.record["greedy"] is None
    assert trace.effective["decode"].startswith("unknown (temperature")


def test_what_moves_the_scores_is_read_where_the_engine_reads_it(tmp_path):
    """What the response repeats is what ran; a penalty over no token is none."""
    row = {"content": "a", "completion_probabilities": [ROW]}
    ran = {"temperature": 0.0, "repeat_penalty": 1.1, "repeat_last_n": 64, "n_predict": 9, "stop": []}
    [echoed] = read(
        tmp_path, {"request": {"prompt": "P", "repeat_penalty": 1.5}, "response": row | {"generation_settings": ran}}
    )
    assert echoed.effective["decode"] == "greedy, repeat_penalty 1.1, penalties over the last 64"
    assert echoed.meta["max_new_tokens"] == 9
    [off] = read(tmp_path, row | {"generation_settings": ran | {"repeat_last_n": 0}})
    assert off.effective["decode"] == "greedy"
    inside = {"options": {"temperature": 0, "repeat_penalty": 1.1}, "format": "json"}
    lost, heard = read(
        tmp_path,
        ollama([entry("a", -0.5)], {"prompt": "P", "repeat_penalty": 1.1}),
        ollama([entry("a", -0.5)], {"prompt": "P"} | inside),
    )
    assert lost.record["processors"] == []
    assert heard.record["processors"] == ['format "json"', "repeat_penalty 1.1"]
    [unknown] = read(tmp_path, chat([entry("a", -0.5)]))
    assert unknown.record["processors"] is None


def test_two_long_biases_are_not_told_as_one(tmp_path):
    biases = [{str(i): 1 for i in range(99)} | {"7": value} for value in (1, 2)]
    a, b = read(tmp_path, *(chat([entry("a", -0.5)], {"temperature": 0, "logit_bias": bias}) for bias in biases))
    assert a.effective["decode"] != b.effective["decode"]
    assert len(a.effective["decode"]) < 120


def test_what_is_left_out_of_a_draw_is_part_of_the_path(tmp_path):
    wide, narrow, all_of_it = read(
        tmp_path,
        *(
            chat([entry("a", -0.5)], {"temperature": 0.7, "seed": 1} | asked)
            for asked in ({"top_p": 0.9}, {"top_p": 0.5, "top_k": 40}, {"top_p": 1, "top_k": -1})
        ),
    )
    assert wide.effective["decode"] == "sample, temperature 0.7, top_p 0.9"
    assert narrow.effective["decode"] == "sample, temperature 0.7, top_k 40, top_p 0.5"
    assert all_of_it.effective["decode"] == "sample, temperature 0.7"


def test_one_chunk_alone_is_no_whole_response(tmp_path):
    with pytest.raises(FormatError, match="one chunk of a stream"):
        read(tmp_path, chunk("a", [entry("a", -0.5)]), chunk("b", [entry("b", -0.5)]))
    [goes_on] = read(tmp_path, llamacpp([ROW], stop=False))
    [ends] = read(tmp_path, llamacpp([ROW], stop=True))
    assert (goes_on.partial, ends.partial) == (True, False)
