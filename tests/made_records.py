"""Small responses of each shape, with numbers of our own, and a way to read them from a file."""

from __future__ import annotations

import json

from divexplore.sources.records import read_records

__all__ = ["chat", "completion", "entry", "greedy_chat", "guard", "llamacpp", "ollama", "read", "tgi", "write"]


def write(folder, *items, name="record.jsonl"):
    """A file with an item a line; texts are written as they are."""
    path = folder / name
    path.write_text("\n".join(item if isinstance(item, str) else json.dumps(item) for item in items), encoding="utf-8")
    return path


def read(folder, *items, name="record.jsonl"):
    return read_records(write(folder, *items, name=name))


def entry(text, logprob, others=(), **fields):
    """A row of the chat shape; `others` are pairs of text and value."""
    listed = [{"token": t, "logprob": v, "bytes": list(t.encode())} for t, v in others]
    return {"token": text, "logprob": logprob, "bytes": list(text.encode()), "top_logprobs": listed} | fields


def chat(entries, request=None, **choice):
    """A chat completion, with its request where one is given."""
    text = "".join(e["token"] for e in entries)
    part = {"index": 0, "message": {"role": "assistant", "content": text}, "logprobs": {"content": entries}}
    body = {"model": "made", "choices": [part | {"finish_reason": "length"} | choice]}
    return body if request is None else {"request": request, "response": body}


def completion(tokens, values, lists, **choice):
    """A legacy completion: arrays of tokens, values and objects."""
    logprobs = {"tokens": tokens, "token_logprobs": values, "top_logprobs": lists, "text_offset": []}
    part = {"index": 0, "text": "".join(tokens), "logprobs": logprobs, "finish_reason": "stop"}
    return {"model": "made", "choices": [part | choice]}


def llamacpp(rows, **fields):
    return {
        "content": "".join(r.get("token", r.get("content")) for r in rows),
        "completion_probabilities": rows,
    } | fields


def tgi(tokens, lists=None, **details):
    """A TGI response of tokens as ``(id, text, logprob)``."""
    named = [{"id": i, "text": text, "logprob": value, "special": False} for i, text, value in tokens]
    facts = {"finish_reason": "length", "seed": None, "prefill": [], "tokens": named, "top_tokens": lists} | details
    return {"generated_text": "".join(text for _, text, _ in tokens), "details": facts}


def ollama(entries, request=None, **fields):
    body = {"model": "made", "response": "".join(e["token"] for e in entries), "done": True, "done_reason": "stop"}
    body |= {"logprobs": entries} if entries else {}
    return body | fields if request is None else {"request": request, "response": body | fields}


def greedy_chat(*entries, request=None, **choice):
    """A chat completion with its request, greedy unless that says otherwise."""
    part = {"index": 0, "message": {"content": "".join(e["token"] for e in entries)}, "logprobs": {"content": entries}}
    asked = {"messages": [{"role": "user", "content": "Hello"}], "temperature": 0} | (request or {})
    return {"request": asked, "response": {"model": "made", "choices": [part | {"finish_reason": "length"} | choice]}}


def guard(comparison, name):
    return next(check for check in comparison.guards if check.name == name)
