"""The Python that makes what is on the screen again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from divexplore.comparison.comparison import Comparison

__all__ = ["as_code"]


def as_code(comparison: Comparison) -> str:
    """A script that makes this comparison again; its last name is ``comparison``.

    The number of steps asked for is the longer of the two runs: a run that met its end earlier will meet it again.
    """
    a, b = comparison.a, comparison.b
    prompt = a.meta["prompt"]
    what = prompt["text"] if prompt.get("text") is not None else prompt["ids"]
    arguments = [repr(a.meta["model"]["name"]), repr(what), f"a={_call(a.requested)}", f"b={_call(b.requested)}"]
    arguments.append(f"max_new_tokens={max(len(a), len(b), 1)}")
    if prompt.get("text") is not None and prompt.get("chat") is not None:
        arguments.append(f"chat={bool(prompt['chat'])}")
    lines = "".join(f"    {argument},\n" for argument in arguments)
    return f"import divexplore as dx\n\ncomparison = dx.compare(\n{lines})\n"


def _call(fields: Mapping[str, Any]) -> str:
    return f"dx.RunConfig({', '.join(f'{name}={value!r}' for name, value in fields.items())})"
