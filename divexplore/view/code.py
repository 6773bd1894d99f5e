"""The Python that makes what is on the screen again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from divexplore.comparison.comparison import Comparison
    from divexplore.trace import Trace

__all__ = ["as_code"]

_QUESTIONS = {"attribution": "attribute", "operations": "trace_ops", "layers": "layer_drift"}


def as_code(comparison: Comparison) -> str:
    """A script that makes this comparison again; its last name is ``comparison``.

    What was asked for is in the records. Of traces that were recorded elsewhere it is not known: then as many steps are
    asked for as the longer run has, for a run that met its end earlier will meet it again.
    """
    a, b = comparison.a, comparison.b
    if a.record is not None or b.record is not None:
        return _of_records(a, b)
    branch = b.meta.get("fork") if a.requested == b.requested else None
    steps = max(_asked(a), 1) if branch else max(_asked(a), _asked(b), 1)
    chat = _chat(a)
    given = [repr(a.meta["model"]["name"]), _prompt(a), f"a={_call(a.requested)}"]
    given += [f"b={_call(b.requested)}", f"max_new_tokens={steps}", *chat]
    if branch:
        given.append("evidence='fast'")
        taken = f'"a", {branch["step"]}, {branch["token_id"]}, {_asked(b)}'
        then = f"comparison = dx.compare_traces(whole.a, whole.fork({taken}))\n"
        return f"import divexplore as dx\n\n{_statement('whole', 'compare', given)}{then}"
    if comparison.evidence_asked is not None:
        given.append(f"evidence={comparison.evidence_asked!r}")
    return (
        f"import divexplore as dx\n\n{_statement('comparison', 'compare', given)}{_cause(comparison, given[:4], chat)}"
    )


def _of_records(a: Trace, b: Trace) -> str:
    """Records are read again; where their files lie now is for the reader to say."""
    sides = [
        f"{name} = dx.read_records({trace.record['file']!r})[{trace.record['number']}]"
        if trace.record is not None
        else f"{name} = dx.run({trace.meta['model']['name']!r}, {_prompt(trace)}, {_call(trace.requested)}, {_asked(trace)})"
        for name, trace in (("a", a), ("b", b))
    ]
    return "\n".join(["import divexplore as dx", "", *sides, "comparison = dx.compare_traces(a, b)", ""])


def _cause(comparison: Comparison, pair: list[str], chat: list[str]) -> str:
    """The questions about the cause that the screen has answers to."""
    found = comparison.cause
    if found is None:
        return ""
    asked = {
        "attribution": None if found.attribution is None else f"max_new_tokens={found.attribution.steps}",
        "operations": None if found.operations is None else f"step={found.operations.step}",
        "layers": None if found.layers is None else f"max_new_tokens={found.layers.logits.height}",
    }
    lines = []
    for part, how in asked.items():
        if how is not None:
            call = _statement("found", _QUESTIONS[part], [*pair, how, *chat])
            lines.append(f"\n{call}comparison = comparison.with_cause({part}=found)\n")
    return "".join(lines)


def _asked(trace: Trace) -> int:
    return trace.meta.get("max_new_tokens") or len(trace)


def _prompt(trace: Trace) -> str:
    prompt = trace.meta["prompt"]
    return repr(prompt["text"] if prompt.get("text") is not None else prompt["ids"])


def _chat(trace: Trace) -> list[str]:
    prompt = trace.meta["prompt"]
    known = prompt.get("text") is not None and prompt.get("chat") is not None
    return [f"chat={bool(prompt['chat'])}"] if known else []


def _statement(name: str, function: str, arguments: list[str]) -> str:
    return f"{name} = dx.{function}(\n{''.join(f'    {argument},{chr(10)}' for argument in arguments)})\n"


def _call(fields: Mapping[str, Any]) -> str:
    return f"dx.RunConfig({', '.join(f'{name}={value!r}' for name, value in fields.items())})"
