"""The Python that makes what is on the screen again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from divexplore.models.catalog import find_entry

if TYPE_CHECKING:
    from divexplore.comparison.comparison import Comparison
    from divexplore.trace import Trace

__all__ = ["as_code"]

_QUESTIONS = {"attribution": "attribute", "operations": "trace_ops", "layers": "layer_drift"}
_UNNAMED = ("a folder", "a GGUF file", "memory")  # sources that a name does not lead back to


def as_code(comparison: Comparison) -> str:
    """A script that makes this comparison again; its last name is ``comparison``.

    What was asked for is in the records, but no path of a model or of a file: where one is needed, the script has a line
    to fill in. What cannot be made again as it was is told in a comment.
    """
    a, b = comparison.a, comparison.b
    model_a, model_b, head = _models(a, b)
    pair = [model_a, _prompt(a), f"a={_call(a.requested)}", f"b={_call(b.requested)}"]
    chat, cause = _chat(a), ""
    if comparison.evidence_asked is not None:
        given = [f"max_new_tokens={max(_steps(a), _steps(b))}", *chat, f"evidence={comparison.evidence_asked!r}"]
        body = _cut_short("A", a) + _cut_short("B", b) + _statement("comparison", "compare", [*pair, *given])
        cause = _cause(comparison, pair, chat)
    elif (taken := _branch_of(a, b)) is not None:
        body = _statement("whole", "compare", [*pair, f"max_new_tokens={_steps(a)}", *chat, "evidence='fast'"])
        body += f"comparison = dx.compare_traces(whole.a, whole.fork({taken}))\n"
    else:
        body = f"{_side('a', a, model_a)}{_side('b', b, model_b)}comparison = dx.compare_traces(a, b)\n"
        cause = _cause(comparison, pair, chat)
    return f"import divexplore as dx\n\n{head}{body}{cause}"


def _side(name: str, trace: Trace, model: str) -> str:
    """One trace by itself, which may have a prompt, steps or a model of its own: read, branched off, scored, forced or run."""
    if trace.record is not None:
        file, number = trace.record["file"], trace.record["number"]
        return f"{name} = dx.read_records({file!r})[{number}]  # fill in where that file lies: paths are not recorded\n"
    given, config, chat = [model, _prompt(trace)], _call(trace.requested), _chat(trace)
    forced, taken, letter = trace.meta.get("forced") or 0, trace.meta.get("fork"), name.upper()
    note = _cut_short(letter, trace)
    if taken:
        steps = max(_steps(trace), taken["step"] + 1)
        pair = [*given, f"a={config}", f"b={config}", f"max_new_tokens={steps}", *chat, "evidence='fast'"]
        branch = f'"a", {taken["step"]}, {taken["token_id"]}, {_steps(trace)}'
        return f"{note}{_statement(f'parent_{name}', 'compare', pair)}{name} = parent_{name}.fork({branch})\n"
    if not forced or not len(trace):
        if not len(trace) and trace.finish_reason != "invalid":
            note = f"# {letter} has no step ({trace.finish_reason}): a call makes one at least\n"
        return note + _statement(name, "run", [*given, config, str(_steps(trace)), *chat])
    if trace.finish_reason == "invalid":
        note += f"# {letter} ended at NaN or infinity in step {len(trace)}; the token that was given there is not recorded\n"
    if trace.table["phase"][0] == "score":
        return note + _statement(name, "score", [*given, str(trace.token_ids), config, *chat])
    if len(trace.meta["rows"]) > 1 and trace.requested.get("fill", "copies") != "copies":
        note += f"# {letter}'s other rows choose for themselves here; if they were replayed from another run is not recorded\n"
    return note + _statement(name, "force", [*given, config, str(trace.token_ids), *chat])


def _cut_short(letter: str, trace: Trace) -> str:
    return f"# {letter} was cut short after {len(trace)} steps; nobody cuts it short here\n" if trace.partial else ""


def _branch_of(a: Trace, b: Trace) -> str | None:
    """How B was forked from A, where A is the free run that it left."""
    taken = b.meta.get("fork")
    own = a.record is None and not a.meta.get("forced") and a.requested == b.requested
    if not taken or not own or a.prompt_ids != b.prompt_ids or not _same_model(a, b):
        return None
    step = taken["step"]
    if step >= len(a) or a.token_ids[:step] != b.token_ids[:step]:
        return None
    return f'"a", {step}, {taken["token_id"]}, {_steps(b)}'


def _models(a: Trace, b: Trace) -> tuple[str, str, str]:
    """What calls name A's and B's model, and the lines before them that fill in what a name does not lead back to."""
    sides = {"a": a, "b": b}
    words = {name: repr(trace.meta["model"]["name"]) for name, trace in sides.items()}
    missing = [name for name, trace in sides.items() if trace.record is None and not _named(trace)]
    one = len(missing) == 1 or _same_model(a, b)
    words |= {name: "model" if one else f"model_{name}" for name in missing}
    lines = []
    for name in missing[:1] if one else missing:
        facts = sides[name].meta["model"]
        whence = f"came from {facts['source']}" if facts.get("source") else "came from a place that was not recorded"
        lines.append(f"{words[name]} = ...  # fill in: {facts['name']!r} {whence}; paths are not recorded\n")
    return words["a"], words["b"], "".join([*lines, "\n"]) if lines else ""


def _named(trace: Trace) -> bool:
    """Whether `divexplore.load_model` finds the model by its name; older traces tell no source."""
    facts = trace.meta["model"]
    source = facts.get("source")
    return find_entry(facts["name"]) is not None if source is None else source not in _UNNAMED


def _same_model(a: Trace, b: Trace) -> bool:
    facts = [[trace.meta["model"].get(name) for name in ("name", "source", "fingerprint")] for trace in (a, b)]
    return facts[0] == facts[1]


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
