"""The Explorer's small widgets: the run panel above the view, and the strips of controls below it."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anywidget
import traitlets

from divexplore.errors import Refusal
from divexplore.view import assets
from divexplore.view.explorer_progress import idle_state

if TYPE_CHECKING:
    from divexplore.comparison.comparison import Comparison

__all__ = ["BranchPanel", "RunPanel", "Strip", "complaint", "esm", "offer"]

logger = logging.getLogger(__name__)

_FOLDER = Path(__file__).parent.parent / "static" / "explorer"
_OF_THE_VIEW = ("format.js", "dom.js")  # modules of the view that stand alone

Hear = Callable[[dict[str, Any]], None]
"""Takes a message of the browser; what it raises is shown in the panel's error line."""


@cache
def esm(*names: str) -> str:
    """Modules of the panel, joined behind those of the view that they import."""
    own = [(_FOLDER / name).read_text(encoding="utf-8") for name in names]
    used = [name for name in _OF_THE_VIEW if any(f'from "../view/{name}"' in source for source in own)]
    sources = [(assets.FOLDER / name).read_text(encoding="utf-8") for name in used]
    sources += [source.replace('from "../view/', 'from "./') for source in own]
    return assets.join(sources)


@cache
def _css() -> str:
    """The view's sheet, under the panel's root class, and what is the panel's own."""
    shared = assets.css().replace(".dx-view", ".dx-runner")
    return shared + (_FOLDER / "explorer.css").read_text(encoding="utf-8")


class RunPanel(anywidget.AnyWidget):
    """Model, prompt, steps, preset, Run, Stop, the editors of A and B, and what a run under way looks like."""

    _esm = esm("knobs.js", "progress.js", "reveal.js", "panel.js")
    _css = _css()

    choices = traitlets.Dict().tag(sync=True)
    """What can be chosen (`divexplore.view.explorer_form.choices`)."""

    request = traitlets.Dict().tag(sync=True)
    """What is chosen: ``model``, ``prompt``, ``ids``, ``steps``, ``preset``, ``chat``, ``evidence``, ``a``, ``b``."""

    state = traitlets.Dict(idle_state()).tag(sync=True)
    """What runs (`divexplore.view.explorer_progress.idle_state`)."""

    editing = traitlets.Bool(True).tag(sync=True)
    """Whether the editors are unfolded."""

    saved = traitlets.Unicode("").tag(sync=True)
    """Key of the Explorer's page (`divexplore.view.saved`), which the browser hides while the panel is on the screen."""

    def __init__(self, hear: Hear, **traits: Any) -> None:
        super().__init__(**traits)
        self._lock = threading.RLock()  # an observer of the state may press Stop
        self.on_msg(lambda _, content, buffers: self.take(hear, content))

    def tell(self, **changes: Any) -> None:
        """Change some entries of the state, from any thread."""
        with self._lock:
            self.state = {**self.state, **changes}

    def complain(self, error: BaseException) -> None:
        """Show an error, and what to do, until the next run."""
        self.tell(phase="idle", note="", error=complaint(error))

    def take(self, hear: Hear, content: dict[str, Any]) -> None:
        """Hand a message of the browser over, and show what went wrong with it."""
        try:
            hear(content)
        except Exception as error:  # Jupyter would swallow it
            logger.warning("message %r of the panel failed", content.get("do"), exc_info=True)
            self.complain(error)


class Strip(anywidget.AnyWidget):
    """A line of controls below the view."""

    _css = _css()

    busy = traitlets.Bool(False).tag(sync=True)
    """Whether something runs."""


class BranchPanel(Strip):
    """Takes another token at the selected step."""

    _esm = esm("branch.js")

    offer = traitlets.Dict({"sides": []}).tag(sync=True)
    """The selected step of each side, and the tokens that it may take (`offer`)."""

    note = traitlets.Unicode("").tag(sync=True)
    """What became of the last branch."""


def offer(comparison: Comparison, column: int) -> dict[str, Any]:
    """What may be taken instead at a column of the alignment: for each side that has a step there, its top list.

    Returns
    -------
    ``sides``: a list of ``side``, ``step`` and ``tokens`` (``id``, ``text``, ``probability``, likeliest first, without
    the token that was taken).
    """
    sides = []
    for side, trace in (("a", comparison.a), ("b", comparison.b)):
        step = comparison.columns[side][column] if column < comparison.columns.height else None
        if step is None:
            continue
        row = trace.table.row(step, named=True)
        partition = row["logit"] - row["logprob"]
        tokens = [
            {
                "id": token,
                "text": trace.meta["texts"].get(str(token), str(token)),
                "probability": math.exp(x - partition),
            }
            for token, x in zip(row["top_ids"], row["top_logits"], strict=True)
            if token != row["token_id"]
        ]
        sides.append({"side": side, "step": step, "tokens": tokens})
    return {"sides": sides}


def complaint(error: BaseException) -> dict[str, str]:
    """An error as the panel shows it: ``asked``, ``allowed``, ``do``."""
    if isinstance(error, Refusal):
        return error.to_dict()
    words = (str(error).strip() or "no message").splitlines()[0]
    do = "The log has the details: logging.getLogger('divexplore')."
    if isinstance(error, MemoryError) or "out of memory" in words.lower() or "allocate memory" in words.lower():
        do = "Choose a smaller batch, fewer steps, a 16-bit dtype, or evidence “fast” (under more…)."
    return {"asked": f"{type(error).__name__}: {words[:300]}", "allowed": "", "do": do}
