"""A comparison in words: plain JSON values, a report of some 20 lines to paste, and the same as Markdown."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

from divexplore.comparison.decode_paths import decode_path
from divexplore.comparison.ladder import differing_knobs
from divexplore.comparison.records import is_record
from divexplore.environment import summary
from divexplore.visible import visible

if TYPE_CHECKING:
    from divexplore.comparison.comparison import Comparison, Side
    from divexplore.trace import Trace

__all__ = ["FORMAT", "one_line", "to_dict", "to_markdown", "to_text"]

FORMAT = "divexplore.comparison/1"

_BEFORE, _AFTER = 24, 12  # tokens of context around the split


def to_dict(comparison: Comparison) -> dict[str, Any]:
    """Plain JSON values; non-finite numbers are left in, `strict_json` turns them into null and lists them."""
    a, b, split = comparison.a, comparison.b, comparison.split
    model = a.meta["model"]
    judgement = comparison.judgement
    return {
        "format": FORMAT,
        "model": {key: model[key] for key in ("name", "fingerprint", "architecture")},
        "prompt": {key: a.meta["prompt"][key] for key in ("text", "ids")},
        "a": _run_dict(a),
        "b": _run_dict(b),
        "first_drift": comparison.first_drift,
        "first_divergence": comparison.first_divergence,
        "verdict": str(judgement.verdict),
        "inconclusive": judgement.inconclusive,
        "also": [str(verdict) for verdict in judgement.also],
        "why": judgement.why,
        "next": judgement.next,
        "split": None
        if split is None
        else {
            "step": split.step,
            "epsilon": split.epsilon,
            "pair_swing": split.pair_swing,
            "a": _side_dict(split.a, a, split.step),
            "b": _side_dict(split.b, b, split.step),
        },
        **_evidence_dict(comparison),
        "cause": None if comparison.cause is None else comparison.cause.to_dict(),
    }


def one_line(comparison: Comparison) -> str:
    """The comparison as its ``repr``: verdict, split or drift, and the two configurations."""
    a, b = comparison.a, comparison.b
    where = "no divergence" if comparison.split is None else f"split at step {comparison.split.step}"
    drift = "no drift" if comparison.first_drift is None else f"drift from step {comparison.first_drift}"
    doubt = ", inconclusive" if comparison.inconclusive else ""
    return (
        f"<Comparison of {a.meta['model']['name']}: {comparison.verdict}{doubt}, {where}, {drift}, {differences(a, b)}>"
    )


def differences(a: Trace, b: Trace) -> str:
    """What differs between two effective configurations, as ``batch_size 1 / 8``."""
    knobs = differing_knobs(a, b)
    if is_record(a, b):
        knobs &= b.effective.keys()  # what one side does not tell is no difference
    words = [f"{key} {a.effective[key]} / {b.effective.get(key)}" for key in a.effective if key in knobs - {"decode"}]
    if "decode" in knobs:
        words.append(f"decode {decode_path(a)} / {decode_path(b)}")
    return ", ".join(words) or ("nothing that is recorded" if is_record(a, b) else "same effective configuration")


def to_text(comparison: Comparison) -> str:
    """The report: verdict, what differs, both texts around the split, top-3 of both, snapshot, what to try next."""
    a, b, judgement = comparison.a, comparison.b, comparison.judgement
    lines = [
        f"{_words(comparison)}",
        f"  {judgement.why}",
        "",
        f"model   {a.meta['model']['name']} ({a.meta['model']['architecture']}), prompt {_prompt(a)}",
        f"differs {differences(a, b)}",
        f"drift   {_drift(comparison)}",
        f"A       {_around(a, comparison)}",
        f"B       {_around(b, comparison)}",
    ]
    if comparison.split is not None:
        step = comparison.split.step
        units = "log-probability; margin in nats" if is_record(a, b) else "logit; margin in logits and ULP"
        lines += ["", f"top-3 at step {step}   ({units})"]
        lines += [_top3("A", a, step, comparison.split.a), _top3("B", b, step, comparison.split.b)]
        lines += [_swing(comparison)]
    lines += [f"  {sentence}" for sentence in judgement.evidence]
    if comparison.cause is not None:
        lines += ["", *(f"cause   {sentence}" for sentence in comparison.cause.sentences)]
    software, hardware = summary(a.meta["snapshot"])
    lines += ["", software, hardware, f"next    {judgement.next}"]
    return "\n".join(lines)


def to_markdown(comparison: Comparison) -> str:
    """The report as Markdown, to paste into an issue."""
    a, b, judgement = comparison.a, comparison.b, comparison.judgement
    lines = [
        f"**{_words(comparison)}**",
        "",
        _escaped(judgement.why),
        "",
        f"- model: `{a.meta['model']['name']}` ({a.meta['model']['architecture']}), prompt {_code(_prompt(a))}",
        f"- differs: {differences(a, b)}",
        f"- drift: {_drift(comparison)}",
        *(f"- {_escaped(sentence)}" for sentence in judgement.evidence),
        *(f"- cause: {_escaped(sentence)}" for sentence in (comparison.cause.sentences if comparison.cause else ())),
        "",
        "| side | text around the split |",
        "| --- | --- |",
        f"| A | {_code(_around(a, comparison))} |",
        f"| B | {_code(_around(b, comparison))} |",
    ]
    if comparison.split is not None:
        step = comparison.split.step
        value = "log-probability" if is_record(a, b) else "logit"
        lines += [
            "",
            f"Step {step}, {_swing(comparison).strip()}",
            "",
            f"| side | rank | token | {value} | probability |",
        ]
        lines += ["| --- | --- | --- | --- | --- |"]
        for name, trace in (("A", a), ("B", b)):
            for rank, token in enumerate(top_list(trace, step)[:3], 1):
                lines.append(
                    f"| {name} | {rank} | {_code(token['text'])} | {token['logit']:.6g} | {token['probability']:.4f} |"
                )
    software, hardware = summary(a.meta["snapshot"])
    lines += ["", f"{software}  ", f"{hardware}", "", f"Next: {judgement.next}"]
    return "\n".join(lines)


def _escaped(sentence: str) -> str:
    """A sentence whose token texts mean nothing to Markdown."""
    return re.sub(r"([\\`*<|])", r"\\\1", sentence)


def top_list(trace: Trace, step: int) -> list[dict[str, Any]]:
    """The alternatives of a step: ``id``, ``text``, ``logit`` and ``probability`` each, best first."""
    row = trace.table.row(step, named=True)
    known = row["logprob"] is not None and trace.record is None  # a record holds log-probabilities in place of logits
    logsumexp = row["logit"] - row["logprob"] if known else 0.0
    texts = trace.meta["texts"]
    return [
        {"id": token, "text": texts[str(token)], "logit": logit, "probability": math.exp(logit - logsumexp)}
        for token, logit in zip(row["top_ids"] or (), row["top_logits"] or (), strict=True)
        if token is not None and logit is not None
    ]


def _run_dict(trace: Trace) -> dict[str, Any]:
    return {
        "requested": trace.requested,
        "effective": trace.effective,
        "token_ids": trace.token_ids,
        "texts": trace.texts,
        "text": trace.text,
        "finish_reason": trace.finish_reason,
    }


def _evidence_dict(comparison: Comparison) -> dict[str, Any]:
    evidence = comparison.evidence
    facts = {} if evidence is None else evidence.to_dict()
    return {
        "ladder": facts.pop("ladder", []),
        "noise_floor": None if evidence is None else evidence.floor_at(comparison.first_divergence),
        "referee": facts.pop("referee", None),
        "cascade": facts.pop("cascade", None),
        "guards": [guard.to_dict() for guard in comparison.guards],
        "evidence": {
            "sentences": list(comparison.judgement.evidence),
            "measured": facts or None,
            "asked": comparison.evidence_asked,
        },
    }


def _side_dict(side: Side, trace: Trace, step: int) -> dict[str, Any]:
    return {
        "token_id": side.token_id,
        "text": side.text,
        "logit": side.logit,
        "probability": side.probability,
        "margin": side.margin,
        "margin_ulps": side.margin_ulps,
        "gap": side.gap,
        "exact_tie": side.exact_tie,
        "top": top_list(trace, step),
    }


def _words(comparison: Comparison) -> str:
    verdict = str(comparison.verdict).replace("_", " ").upper()
    doubt = " (inconclusive)" if comparison.inconclusive else ""
    also = "".join(f", also {str(verdict).replace('_', ' ')}" for verdict in comparison.judgement.also)
    return f"{verdict}{doubt}{also}"


def _prompt(trace: Trace) -> str:
    prompt = trace.meta["prompt"]
    text = prompt["text"]
    if text is None and not prompt["ids"]:
        return "not recorded"
    shown = f"{len(prompt['ids'])} ids" if text is None else repr(text if len(text) <= 60 else text[:59] + "…")
    return f"{shown}{' (chat)' if prompt['chat'] else ''}"


def _drift(comparison: Comparison) -> str:
    common = comparison.steps.height
    if comparison.first_drift is None:
        return f"none over {common} common steps"
    largest = max(comparison.steps["epsilon"].drop_nulls().to_list(), default=None)
    size = "" if largest is None else f", epsilon at most {largest:.3g} logits over {common} common steps"
    return f"from step {comparison.first_drift}{size}"


def _around(trace: Trace, comparison: Comparison) -> str:
    at = comparison.first_divergence
    if at is None:
        at = len(trace)
    texts = [_plain(text) for text in trace.texts or [trace.text]]  # a record may be a text without tokens
    before, after = "".join(texts[max(0, at - _BEFORE) : at]), "".join(texts[at + 1 : at + 1 + _AFTER])
    taken = f"[{texts[at]}]" if at < len(texts) else ""
    return f"{'…' if at > _BEFORE else ''}{before}{taken}{after}"


def _plain(text: str) -> str:
    """A token's text as it reads on, without what would steer a terminal or turn the line round."""
    return text if text.strip(" ") == "" else visible(text)


def _top3(name: str, trace: Trace, step: int, side: Side) -> str:
    tokens = "  ".join(f"{token['text']!r} {token['logit']:.6g}" for token in top_list(trace, step)[:3])
    tie = ", exact tie" if side.exact_tie else ""
    if side.margin is None or side.margin_ulps is None:
        return f"  {name}  {tokens}   margin {'unknown' if side.margin is None else f'{side.margin:.4g} nats'}"
    return f"  {name}  {tokens}   margin {side.margin:.4g} = {side.margin_ulps:.3g} ULP of {trace.dtype}{tie}"


def _swing(comparison: Comparison) -> str:
    split = comparison.split
    if split is None or split.pair_swing is None or split.a.gap is None or split.b.gap is None:
        return "  the records hold no logits of the other side's token: no gap"
    bound = "" if split.epsilon is None else f" ≤ 2·epsilon = {2 * split.epsilon:.4g}"
    return f"  gap A {split.a.gap:.4g} + gap B {split.b.gap:.4g} = pair swing {split.pair_swing:.4g}{bound}"


def _code(text: str) -> str:
    """Text as a Markdown code span that backticks and table bars cannot break."""
    text = _plain(text)
    ticks = "`" * (max((len(run) for run in _runs_of_ticks(text)), default=0) + 1)
    padded = f" {text} " if "`" in text or text.strip() != text or not text else text
    return f"{ticks}{padded}{ticks}".replace("|", "\\|")


def _runs_of_ticks(text: str) -> list[str]:
    return [run for run in "".join(c if c == "`" else " " for c in text).split(" ") if run]
