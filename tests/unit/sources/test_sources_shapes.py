"""Each shape of response becomes a trace, and what is no such shape is refused by what it holds."""

from __future__ import annotations

import json
import math

import pytest
from made_records import chat, completion, entry, llamacpp, ollama, read, tgi, write

import divexplore as dx
from divexplore.errors import FormatError, Refusal


def test_a_chat_completion_is_known_by_bytes(tmp_path):
    [trace] = read(tmp_path, chat([entry("a", -0.5, [("a", -0.5), ("b", -1.0)]), entry("ñ", -0.25, [("ñ", -0.25)])]))
    assert trace.record["shape"] == "OpenAI chat completions"
    assert trace.record["identity"] == "bytes"
    assert trace.text == "añ"
    assert trace.table["logprob"].to_list() == [-0.5, -0.25]
    assert trace.table["margin"].to_list() == [0.5, None]
    assert all(token < -1 for token in trace.token_ids), "an id made of bytes is in no vocabulary"
    assert trace.finish_reason == "length"


def test_legacy_arrays_with_ids_beside_them(tmp_path):
    lists = [{"a": -0.5, " b": -1.0}, {" b": -0.75, "c": -0.75}]
    [trace] = read(tmp_path, completion(["a", " b"], [-0.5, -0.75], lists, token_ids=[7, 9], prompt_token_ids=[1, 2]))
    assert trace.token_ids == [7, 9]
    assert trace.prompt_ids == [1, 2]
    assert trace.record["identity"] == "ids"
    assert trace.top_ids[:, 0].tolist() == [7, 9], "the token's own key has its id, and comes first among equals"
    assert trace.finish_reason == "eos"


def test_llama_cpp_has_ids_in_its_lists(tmp_path):
    rows = [entry("a", -0.1, id=5) | {"top_logprobs": [{"id": 5, "token": "a", "bytes": [97], "logprob": -0.1}]}]
    [trace] = read(tmp_path, llamacpp(rows, generation_settings={"temperature": 0.0}, stop_type="limit"))
    assert trace.token_ids == [5]
    assert trace.record["greedy"] is True, "the response repeats what ran"
    assert trace.finish_reason == "length"


@pytest.mark.parametrize(
    "row",
    [
        {"content": "a", "probs": [{"tok_str": "a", "prob": 0.5}, {"tok_str": "b", "prob": 0.0}]},
        {"id": 1, "token": "a", "bytes": [97], "prob": 0.5, "top_probs": [{"id": 2, "token": "b", "prob": 0.0}]},
    ],
)
def test_probabilities_after_sampling_are_no_plain_logprobs(tmp_path, row):
    [trace] = read(tmp_path, llamacpp([row]))
    assert trace.record["values"] == "post-sampling logprobs"
    assert trace.table["logprob"][0] == math.log(0.5)
    assert trace.top_logits[0, 1] == -math.inf
    assert trace.meta["warnings"]


def test_tgi_gives_a_trace_for_each_object_of_a_list(tmp_path):
    lists = [[{"id": 3, "text": "a", "logprob": -0.5}, {"id": 4, "text": "b", "logprob": -1.5}]]
    prefill = [{"id": 11, "text": "<s>", "logprob": None}]
    traces = read(tmp_path, [tgi([(3, "a", -0.5)], lists, prefill=prefill), tgi([(3, "a", -0.75)])], name="two.json")
    assert [trace.token_ids for trace in traces] == [[3], [3]]
    assert traces[0].prompt_ids == [11]
    assert traces[0].record["prefill"][0]["logprob"] is None
    assert traces[0].top_logits.tolist() == [[-0.5, -1.5]]
    assert [trace.record["number"] for trace in traces] == [0, 1]


def test_ollama_with_and_without_logprobs(tmp_path):
    full, bare = read(tmp_path, ollama([entry("a", -0.5)]), ollama([], response="a"))
    assert full.token_ids != []
    assert len(bare) == 0, "a text is never tokenised again"
    assert bare.text == full.text == "a"


def test_an_ollama_stream_is_one_response(tmp_path):
    lines = [{"model": "m", "response": t, "done": False, "logprobs": [entry(t, -0.5)]} for t in "ab"]
    [trace] = read(tmp_path, *lines, {"model": "m", "response": "", "done": True, "done_reason": "stop"})
    assert trace.text == trace.record["text"] == "ab"
    assert not trace.partial


def stream(*chunks, done=True):
    events = [f"data:{' ' if i % 2 else ''}{json.dumps(chunk)}" for i, chunk in enumerate(chunks)]
    return "\n\n".join([": keep-alive", *events, *(["data: [DONE]"] if done else [])])


@pytest.mark.parametrize("done", [True, False])
def test_a_stream_of_events_reads_as_the_response_that_it_streams(tmp_path, done):
    """First a role alone, then several tokens a chunk, two choices by their index, and a chunk without any."""

    def chunk(index, text, entries=None, **fields):
        logprobs = None if entries is None else {"content": entries}
        return {
            "model": "made",
            "choices": [{"index": index, "delta": {"content": text}, "logprobs": logprobs} | fields],
        }

    body = stream(
        {"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}, "logprobs": None}]},
        chunk(0, "ab", [entry("a", -0.5), entry("b", -0.25)]),
        chunk(1, "x", [entry("x", -1.0)]),
        chunk(0, "c", [entry("c", -0.125)]),
        chunk(0, "", finish_reason="length"),
        {"choices": [], "usage": {"completion_tokens": 4}},
        done=done,
    )
    first, second = read(tmp_path, body, name="record.sse")
    [whole] = read(tmp_path, chat([entry("a", -0.5), entry("b", -0.25), entry("c", -0.125)]))
    assert first.table.equals(whole.table)
    assert first.finish_reason == "length"
    assert second.text == "x"


def test_an_envelope_keeps_the_request_and_its_labels(tmp_path):
    request = {"model": "made", "messages": [{"role": "user", "content": "Hello"}], "temperature": 0, "max_tokens": 9}
    [trace] = read(tmp_path, chat([entry("a", -0.5)], request) | {"arm": "solo", "path": "/v1"})
    assert trace.record["request"] == request
    assert trace.record["labels"] == {"arm": "solo", "path": "/v1"}
    assert trace.record["greedy"] is True
    assert trace.meta["prompt"] == {"text": "Hello", "ids": [], "chat": True}
    assert trace.meta["max_new_tokens"] == 9
    assert "solo" in repr(trace)


def test_rows_of_margins_tell_where_the_choice_was_not_greedy(tmp_path):
    rows = [["a", -0.5, -0.5, -2.0], ["b", -1.5, -0.25, -1.5]]
    [trace] = read(tmp_path, {"logprob_margins": {"tokens": rows}})
    assert trace.record["below_best"] == {"steps": 1, "of": 2, "most": 1.25}
    assert trace.table["margin"].to_list() == [1.5, 1.25]
    assert "not greedy under the reported logprobs" in trace.meta["warnings"][0]


@pytest.mark.parametrize(
    ("item", "named"),
    [
        ({"output": [], "object": "response"}, "output, object"),
        ({"meta_info": {"output_token_logprobs": []}, "text": ""}, "meta_info, text"),
        ({"error": {"message": "overloaded"}}, "overloaded"),
        ({"request": {"prompt": "a"}, "response": None}, "no response"),
        ("[1, 2]", "int"),
        ("{}", "nothing"),
        ("not JSON\n{}", "no JSON"),
        ('data: {"index": 1, "token": {"id": 3}}', "index, token"),
        ("", "no completion"),
    ],
)
def test_what_is_not_known_is_refused_by_what_it_holds(tmp_path, item, named):
    with pytest.raises(FormatError, match=named) as caught:
        read(tmp_path, item)
    assert caught.value.do
    assert caught.value.allowed


def test_a_place_in_the_file_is_named(tmp_path):
    with pytest.raises(FormatError, match=r"record\.jsonl, line 3"):
        read(tmp_path, chat([entry("a", -0.5)]), "", chat([entry("a", 0.9)]))


def test_no_file_a_folder_and_no_text(tmp_path):
    with pytest.raises(FileNotFoundError):
        dx.read_records(tmp_path / "none.json")
    with pytest.raises(Refusal, match="folder"):
        dx.read_records(tmp_path)
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(FormatError, match="UTF-8"):
        dx.read_records(tmp_path / "bytes")


@pytest.mark.parametrize("item", [{"choices": [5]}, {"choices": [{"text": 3, "logprobs": {"tokens": 4}}]}])
def test_a_known_shape_with_other_fields_is_no_traceback(tmp_path, item):
    with pytest.raises(FormatError):
        dx.read_records(write(tmp_path, item))


def test_half_of_a_surrogate_pair_is_no_text_and_breaks_nothing(tmp_path):
    path = tmp_path / "half.json"
    path.write_text(
        '{"model": "m\\ud83d", "response": "a\\ud83d", "done": true, "logprobs": [{"token": "a", "logprob": -0.5, "bytes": [97]},'
        ' {"token": "\\ud83d", "logprob": -0.1}]}',
        encoding="utf-8",
    )
    (trace,) = dx.read_records(path)
    assert trace.text.startswith("a")
    assert "\ud83d" not in "".join(trace.texts)
    trace.save(tmp_path / "kept.parquet")
    assert dx.compare_traces(trace, trace).verdict == "measurement", "U+FFFD identifies nothing"


@pytest.mark.parametrize("wrong", ['"text"', "[]", "1e400", '{"a": 1}'])
def test_values_of_another_kind_are_refused_and_crash_nothing(tmp_path, wrong):
    path = tmp_path / "wrong.json"
    path.write_text(
        f'{{"response": "a", "done": true, "logprobs": [{{"token": "a", "logprob": {wrong}, "bytes": [97]}}]}}'
    )
    with pytest.raises(dx.Refusal):
        dx.read_records(path)
