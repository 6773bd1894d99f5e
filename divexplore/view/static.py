"""The comparison as plain HTML without a script: for mail previews, nbconvert, and notebooks without a kernel."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable
from typing import Any

from divexplore.view.payload import Payload
from divexplore.visible import visible

__all__ = ["framed", "static_html"]

_AROUND = 60  # columns shown on each side of the selected one
_TOP = 5
_CELL = "padding:0 8px;text-align:right;border:0;border-bottom:1px solid #8884"
_WORD = "font-family:monospace;white-space:pre-wrap;unicode-bidi:isolate"
_LETTER = "color:#fff;padding:0 5px;border-radius:3px;background:"
_INK = {"a": "#0072B2", "b": "#A84B00"}  # white on either can be read, whatever the page's own colours are


def static_html(payload: Payload) -> str:
    """Verdict, both texts around the split, and the leading tokens there; at most about 30 KB, styles in line."""
    header = payload.header
    parts = [_verdict(header), _streams(payload)]
    if header["columns"]:
        parts.append(_top(payload))
    parts += [_configurations(header), _cause(header)]
    return framed("".join(parts))


def framed(inner: str) -> str:
    """HTML in the font and with the margins of the static view."""
    return f'<div style="font:13px/1.5 system-ui,sans-serif;padding:10px 12px">{inner}</div>'


def _verdict(header: dict[str, Any]) -> str:
    verdict, split = header["verdict"], header["split"]
    words = [f"<strong>{_text(verdict['name'].replace('_', ' '))}</strong>"]
    if verdict["inconclusive"]:
        words.append("inconclusive")
    if split is not None:
        words.append(f"split at step {split['step']}")
    elif header["first_drift"] is not None and verdict["name"] != "prompt_mismatch":
        words.append(f"first drift at step {header['first_drift']}")
    then = f"<p style='margin:0'>Next: {_text(verdict['next'], 600)}</p>" if verdict["next"] else ""
    return f"<p style='margin:0'>{' · '.join(words)}</p><p style='margin:0'>{_text(verdict['why'], 600)}</p>{then}"


def _streams(payload: Payload) -> str:
    header = payload.header
    start = max(0, header["selected"] - _AROUND)
    stop = min(header["columns"], header["selected"] + _AROUND)
    prompts = {"prompt": header["prompt"]}
    if header["prompt_b"] is not None:
        prompts = {"prompt of A": header["prompt"], "prompt of B": header["prompt_b"]}
    lines = [
        f"<p style='margin:8px 0 0'>{label}: <bdi>{_text(_asked(prompt), 300)}</bdi></p>"
        for label, prompt in prompts.items()
    ]
    for side in ("a", "b"):
        steps, tokens = payload.column(f"column_{side}"), payload.column(f"{side}_token")
        words = ["…"] if start else []
        for column in range(start, stop):
            step = int(steps[column])
            text = "" if step < 0 else _token(payload.text(int(tokens[step])))
            words.append(f"<mark><b>{text}</b></mark>" if column == header["split_column"] else text)
        words += ["…"] if stop < header["columns"] else []
        label = f"<b style='{_LETTER}{_INK[side]}'>{side.upper()}</b> {_text(header[side]['label'])}"
        lines.append(f"<p style='margin:4px 0 0'>{label}<br><span style='{_WORD}'>{''.join(words)}</span></p>")
    return "".join(lines)


def _top(payload: Payload) -> str:
    """Both top lists at the selected column, side by side."""
    header = payload.header
    lists = {side: list(_entries(payload, side)) for side in ("a", "b")}
    names = [w for side in ("a", "b") for w in (f"token {side.upper()}", header[side]["values"], "p")]
    heads = "".join(f"<th style='{_CELL}'>{name}</th>" for name in names)
    rows = []
    for rank in range(min(_TOP, max(map(len, lists.values())))):
        cells = []
        for side in ("a", "b"):
            entry = lists[side][rank] if rank < len(lists[side]) else ("", "", "")
            cells.append(f"<td style='{_CELL}'><span style='{_WORD}'>{entry[0]}</span></td>")
            cells += [f"<td style='{_CELL}'>{value}</td>" for value in entry[1:]]
        rows.append(f"<tr>{''.join(cells)}</tr>")
    margins = " · ".join(filter(None, (_margin(payload, side) for side in ("a", "b"))))
    told = "; ".join(filter(None, (_text(_where(payload)), margins)))
    caption = f"<caption style='text-align:left'>{told}</caption>"
    body = f"<thead><tr>{heads}</tr></thead><tbody>{''.join(rows)}</tbody>"
    return f"<table style='border-collapse:collapse;margin:8px 0'>{caption}{body}</table>"


def _where(payload: Payload) -> str:
    header = payload.header
    steps = [int(payload.column(f"column_{side}")[header["selected"]]) for side in ("a", "b")]
    place = f"step {max(steps)}" + (", the split" if header["selected"] == header["split_column"] else "")
    values = {header[side]["values"] for side in ("a", "b")}
    kind = "raw logits" if values == {"logit"} else "recorded log-probabilities" if values == {"logprob"} else "values"
    return f"leading tokens at {place}, {kind}"


def _entries(payload: Payload, side: str) -> Iterable[tuple[str, str, str]]:
    step = int(payload.column(f"column_{side}")[payload.header["selected"]])
    if step < 0:
        return
    partition = float(payload.column(f"{side}_logit")[step]) - float(payload.column(f"{side}_logprob")[step])
    ids, logits = payload.column(f"{side}_top_ids")[step], payload.column(f"{side}_top_logits")[step]
    for token_id, logit in zip(ids.tolist(), logits.tolist(), strict=True):
        if math.isnan(logit) and token_id < 0:
            return  # a recorded list that is shorter than the longest one
        share = logit - partition
        yield (
            _token(payload.text(token_id), spaces=True),
            f"{logit:.6g}",
            "—" if math.isnan(share) else f"{math.exp(share):.4f}",
        )


def _margin(payload: Payload, side: str) -> str:
    step = int(payload.column(f"column_{side}")[payload.header["selected"]])
    if step < 0:
        return ""
    margin, ulps = payload.column(f"{side}_margin")[step], payload.column(f"{side}_margin_ulps")[step]
    if math.isnan(ulps):  # a record tells no dtype, and its margin may be missing too
        return "" if math.isnan(margin) else f"margin {side.upper()} {margin:.4g} nats"
    return f"margin {side.upper()} {margin:.4g} logits ({ulps:.3g} ULP of {_text(payload.header[side]['dtype'])})"


def _configurations(header: dict[str, Any]) -> str:
    rows = []
    for name in header["a"]["bright"]:
        values = (header[side]["effective"].get(name, "—") for side in ("a", "b"))
        cells = "".join(f"<td style='{_CELL}'>{_text(value, 80)}</td>" for value in values)
        rows.append(f"<tr><td style='{_CELL}'>{_text(name)}</td>{cells}</tr>")
    if not rows:
        return ""
    head = f"<tr><th style='{_CELL}'>what differs</th><th style='{_CELL}'>A</th><th style='{_CELL}'>B</th></tr>"
    return f"<table style='border-collapse:collapse'><thead>{head}</thead><tbody>{''.join(rows)}</tbody></table>"


def _cause(header: dict[str, Any]) -> str:
    """What was found out about the cause, and the checks that failed."""
    cause = header["cause"] or {"sentences": [], "guards": []}
    failed = [f"Check {guard['name']} failed: {guard['why']}" for guard in cause["guards"] if guard["ok"] is False]
    items = "".join(f"<li>{_text(sentence, 400)}</li>" for sentence in [*failed, *cause["sentences"]])
    return f"<ul style='margin:8px 0 0;padding-left:20px'>{items}</ul>" if items else ""


def _asked(prompt: dict[str, Any]) -> str:
    if prompt["text"] is not None:
        return str(prompt["text"])
    return f"{len(prompt['ids'])} token ids" if prompt["ids"] else "not recorded"


def _token(text: str, *, spaces: bool = False) -> str:
    """One token, apart from its neighbours: its own writing direction reaches no further than itself."""
    return f"<bdi>{_text(visible(text, spaces=spaces), 60)}</bdi>"


def _text(text: str, limit: int = 200) -> str:
    return html.escape(text if len(text) <= limit else f"{text[: limit - 1]}…")
