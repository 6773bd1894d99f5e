"""A comparison as one HTML file that runs the same view without a kernel and without a network."""

from __future__ import annotations

import base64
import gzip
import html
import json
from pathlib import Path
from typing import TYPE_CHECKING

from divexplore.errors import Refusal
from divexplore.view import assets, vega
from divexplore.view.payload import Payload, summarise
from divexplore.view.static import static_html

if TYPE_CHECKING:
    from divexplore.comparison.comparison import Comparison

__all__ = ["page", "to_html"]

_PAGE = """<!doctype html>
<html lang="en"{selected}>
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<link rel="icon" href="data:,">
<title>{title}</title>
<style>body {{ margin: 0; }}
{css}</style>
</head>
<body>
<main>
<div id="divexplore-static">{static}</div>
<div id="divexplore-view"></div>
</main>
<script type="application/json" id="divexplore-module">{module}</script>
<script type="text/plain" id="divexplore-meta">{meta}</script>
<script type="text/plain" id="divexplore-data">{data}</script>
<script type="text/plain" id="divexplore-vega">{runtime}</script>
<script type="module">{script}</script>
</body>
</html>
"""


def to_html(comparison: Comparison, path: str | Path | None = None) -> str | Path:
    """The comparison as a page; written to `path`, which is then returned in place of the text, where one is given.

    The page holds the static view first, which the script replaces: a mail preview shows the former.

    Raises
    ------
    Refusal
        Where `path` is a folder or its folder is not there.
    """
    if path is not None:
        if not isinstance(path, str | Path):
            raise Refusal(f"path={path!r}", "a file name", "Give the name of the file to write.")
        path = Path(path)
        if path.is_dir() or not path.parent.is_dir():
            raise Refusal(
                f"path={str(path)!r}",
                "a file name in a folder that is there",
                "Create the folder, or give a file name.",
            )
    text = page(summarise(comparison), vega.runtime())
    if path is None:
        return text
    path.write_text(text, encoding="utf-8")
    return path


def page(payload: Payload, runtime: bytes, selected: int | None = None) -> str:
    """The page of a payload.

    Parameters
    ----------
    runtime
        The packed chart runtime; without it (``b""``) the page has no charts.
    selected
        Column shown first; the payload's own where it is left out.
    """
    header = payload.header
    title = f"{header['model']['name']}: {header['verdict']['name'].replace('_', ' ')}"
    return _PAGE.format(
        selected="" if selected is None else f' data-selected="{int(selected)}"',
        title=html.escape(title),
        css=assets.css(),
        static=static_html(payload),
        module=json.dumps(assets.esm(), ensure_ascii=False).replace("<", "\\u003c"),
        meta=_packed(json.dumps(header, ensure_ascii=False, allow_nan=False).encode()),
        data=_packed(payload.blob),
        runtime=base64.b64encode(runtime).decode(),
        script=assets.standalone(),
    )


def _packed(content: bytes) -> str:
    return base64.b64encode(gzip.compress(content, 9, mtime=0)).decode()
