"""The Python that makes what is on the screen again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from divexplore.models.catalog import CATALOG

if TYPE_CHECKING:
    from divexplore.comparison.comparison import Comparison
    from divexplore.trace import Trace

__all__ = ["as_code"]

_QUESTIONS = {"attribution": "attribute", "operations": "trace_ops", "layers": "layer_drift"}


def as_code(comparison: Comparison) -> str:
    """A script that makes this comparison again; its last name is ``comparison``.

    What was asked for is in the records, but no path of a model or of a file: where one is needed, the script has a line
    to fill in.
    """
    a, b = comparison.a, comparison.b
    branch = b.meta.get("fork") if a.requested == b.requested and not a.meta.get("forced") else None
    if comparison.evidence_asked is None and not branch:
        return _of_traces(a, b)
    head, model = _model(a)
    chat = _chat(a)
    steps = _steps(a) if branch else max(_steps(a), _steps(b))
    given = [model, _prompt(a), f"a={_call(a.requested)}", f"b={_call(b.requested)}"]
    pair = [*given]
    given += [f"max_new_tokens={steps}", *chat]
    if branch:
        given.append("evidence='fast'")
        taken = f'"a", {branch["step"]}, {branch["token_id"]}, {_steps(b)}'
        then = f"comparison = dx.compare_traces(whole.a, whole.fork({taken}))\n"
        return f"{head}{_statement('whole', 'compare', given)}{then}"
    given.append(f"evidence={comparison.evidence_asked!r}")
    return f"{head}{_statement('comparison', 'compare', given)}{_cause(comparison, pair, chat)}"


def _of_traces(a: Trace, b: Trace) -> str:
    """Each side by itself: it may have a prompt, steps or a model of its own. Records are read again, wherever they lie now."""
    runs = [trace for trace in (a, b) if trace.record is None]
    head = _model(runs[0])[0] if runs else "import divexplore as dx\n\n"
    sides = [f"{name} = {_side(trace)}\n" for name, trace in (("a", a), ("b", b))]
    return f"{head}{''.join(sides)}comparison = dx.compare_traces(a, b)\n"


def _side(trace: Trace) -> str:
    """The call that makes one trace again."""
    if trace.record is not None:
        return f"dx.read_records({trace.record['file']!r})[{trace.record['number']}]"
    start, config, chat = [_model(trace)[1], _prompt(trace)], _call(trace.requested), _chat(trace)
    if len(trace) and trace.table["phase"][0] == "score":
        return f"dx.score({', '.join([*start, str(trace.token_ids), config, *chat])})"
    if trace.meta.get("forced", 0) >= max(len(trace), 1):
        return f"dx.force({', '.join([*start, config, str(trace.token_ids), *chat])})"
    return f"dx.run({', '.join([*start, config, str(_steps(trace)), *chat])})"


def _model(trace: Trace) -> tuple[str, str]:
    """The first lines of a script, and what it calls the model."""
    facts = trace.meta["model"]
    name, source = facts["name"], facts.get("source")  # older records do not tell the source
    if name in CATALOG or source in (None, "the hub"):
        return "import divexplore as dx\n\n", repr(name)
    return f"import divexplore as dx\n\nmodel = ...  # fill in: {name!r} came from {source}\n", "model"


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


def _steps(trace: Trace) -> int:
    """How many were asked for; of a trace that was cut short, or that does not tell, how many there are."""
    asked = None if trace.partial else trace.meta.get("max_new_tokens")
    return max(asked or len(trace), 1)


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
