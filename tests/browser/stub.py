"""The view's own module in a page of its own: on the stub model of the export, without Jupyter and without charts."""

from __future__ import annotations

import base64
import json
import sys
from pathlib import Path
from typing import Any

from divexplore.comparison.comparison import Comparison
from divexplore.view import assets
from divexplore.view.export import page as export_page
from divexplore.view.payload import Payload, summarise

sys.path.append(str(Path(__file__).parents[1] / "unit" / "view"))

import made
import made_cause

__all__ = ["made", "made_cause", "open_live", "open_page"]

# What a kernel would answer: requests land in `window.asked`, and a test answers them through the model.
_LIVE = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>live</title><style>{css}</style></head>
<body><main id="place"></main><script id="esm" type="application/json">{esm}</script>
<script id="state" type="application/json">{state}</script><script type="module">
const state = JSON.parse(document.getElementById("state").textContent);
const unpack = (text) => new DataView(Uint8Array.from(atob(text), (c) => c.charCodeAt(0)).buffer);
const values = {{ meta: state.meta, data: unpack(state.data), selected: state.meta.selected, live: true }};
const listeners = {{}};
window.asked = [];
window.saved = 0;
window.model = {{
  get: (name) => values[name],
  set(name, value) {{
    values[name] = name === "data" && typeof value === "string" ? unpack(value) : value;
    for (const listener of listeners[`change:${{name}}`] ?? []) listener();
  }},
  on: (name, listener) => (listeners[name] ??= new Set()).add(listener),
  off: (name, listener) => listeners[name]?.delete(listener),
  save_changes() {{ window.saved += 1; }},
  send: (content) => window.asked.push(content),
  answer: (content, text) => listeners["msg:custom"].forEach((listener) =>
    listener(content, text === undefined ? [] : [new DataView(new TextEncoder().encode(text).buffer)])),
  counts: () => Object.values(listeners).reduce((sum, set) => sum + set.size, 0),
}};
const esm = JSON.parse(document.getElementById("esm").textContent);
const {{ default: widget }} = await import(URL.createObjectURL(new Blob([esm], {{ type: "text/javascript" }})));
window.control = new AbortController();
window.display = () => {{
  const el = document.getElementById("place").appendChild(document.createElement("div"));
  widget.render({{ model: window.model, el, signal: window.control.signal }});
}};
window.display();
document.documentElement.dataset.ready = "true";
</script></body></html>"""


def open_page(page: Any, tmp_path: Path, comparison: Comparison, runtime: bytes = b"") -> None:
    """Open the exported page of a comparison over ``file://``; without charts unless a runtime is given."""
    _open(page, tmp_path, export_page(summarise(comparison), runtime))


def open_live(page: Any, tmp_path: Path, comparison: Comparison) -> None:
    """Open the view on a model that says it has a kernel; its requests wait in ``window.asked``."""
    payload = summarise(comparison)
    _open(page, tmp_path, _LIVE.format(css=assets.css(), esm=_inline(assets.esm()), state=_inline(state_of(payload))))


def state_of(payload: Payload) -> dict[str, Any]:
    return {"meta": payload.header, "data": base64.b64encode(payload.blob).decode()}


def _inline(value: Any) -> str:
    return json.dumps(value).replace("<", "\\u003c")


def _open(page: Any, tmp_path: Path, text: str) -> None:
    path = tmp_path / "page.html"
    path.write_text(text, encoding="utf-8")
    page.goto(path.as_uri())
    page.wait_for_selector("html[data-ready]")
