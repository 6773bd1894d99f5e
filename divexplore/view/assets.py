"""The browser's half of the view: ES modules joined into one, because a widget's module cannot import relatives."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

__all__ = ["MODULES", "css", "esm", "join", "standalone", "top_level_names"]

FOLDER = Path(__file__).parent.parent / "static" / "view"

MODULES = (
    "payload.js",
    "format.js",
    "columns.js",
    "dom.js",
    "host.js",
    "vega.js",
    "keys.js",
    "verdict.js",
    "streams.js",
    "timeline.js",
    "tab_logits.js",
    "tab_cascade.js",
    "tab_cause.js",
    "tab_snapshot.js",
    "tabs.js",
    "toolbar.js",
    "view.js",
)
"""In the order of their imports: a module comes after those that it imports. The last one exports ``{ render }``."""

STYLES = ("frame.css", "streams.css", "panels.css", "cause.css")

_IMPORT = re.compile(r"^import\s[^;]*?from\s+\"\./[\w./]+\";\n", re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?function|const|let|class)", re.MULTILINE)
_NAME = re.compile(r"^(?:export )?(?:async )?(?:function\*?|const|let|class) +(\w+)", re.MULTILINE)


@cache
def esm() -> str:
    """The joined module; its one export is the default of the last."""
    return join([(FOLDER / name).read_text(encoding="utf-8") for name in MODULES])


@cache
def css() -> str:
    """The style sheets as one."""
    return "\n".join((FOLDER / name).read_text(encoding="utf-8") for name in STYLES)


@cache
def standalone() -> str:
    """The script of an exported page: a model without a kernel, on which the same module runs."""
    return (FOLDER / "standalone.js").read_text(encoding="utf-8")


def join(sources: list[str]) -> str:
    """Sources without their relative imports, and without exports but the last one's default."""
    return "\n".join(_EXPORT.sub("", _IMPORT.sub("", source)) for source in sources)


def top_level_names(source: str) -> list[str]:
    """Names that a module declares at its top level; joined, they share one scope."""
    return _NAME.findall(source)
