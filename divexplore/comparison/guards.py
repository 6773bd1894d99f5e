"""Is the comparison honest? Twelve checks that the runs did what was asked, and what the failure of each one does."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import torch

from divexplore.comparison.decode_paths import decode_path, differing_paths, samples, unrepeatable
from divexplore.comparison.records import guards_of_records
from divexplore.engine.batch import fill_batch
from divexplore.engine.choice import choice_of
from divexplore.engine.forwards import forwards
from divexplore.engine.interventions import surround
from divexplore.engine.numerics import applied, attention
from divexplore.engine.statistics import best_id

if TYPE_CHECKING:
    from divexplore.config import RunConfig
    from divexplore.models.model import Model, Prompt
    from divexplore.trace import Trace

__all__ = ["GUARDS", "Guard", "guards", "observe"]

GUARDS = {
    "prompt_ids": "prompt_mismatch",
    "greedy": "policy",
    "finite": "invalid",
    "inputs": "structural",
    "weights": "structural",
    "buffers": "structural",
    "batch": "inconclusive",
    "cache": "inconclusive",
    "kernel": "inconclusive",
    "dtype": "inconclusive",
    "threads": "inconclusive",
    "observer": "inconclusive",
}
"""The checks in order, and the outcome of a failure: a verdict, a reason attached to one, or the flag `inconclusive`."""


@dataclass(frozen=True)
class Guard:
    """One check.

    Parameters
    ----------
    name
        One of `GUARDS`.
    ok
        Whether it held; ``None`` where the records cannot tell.
    why
        One sentence.
    outcome
        What its failure does: ``prompt_mismatch``, ``policy``, ``invalid``, ``structural`` or ``inconclusive``.
    """

    name: str
    ok: bool | None
    why: str
    outcome: str

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return asdict(self)


def guards(
    a: Trace, b: Trace, epsilons: Sequence[float | None] = (), observed: Sequence[str | None] | None = None
) -> tuple[Guard, ...]:
    """Check two traces, in the order of `GUARDS`.

    Parameters
    ----------
    epsilons
        max |Δlogit| of the common steps, where they were measured.
    observed
        What `observe` said of each side; ``None`` where it was not asked.
    """
    checks: dict[str, Callable[[], tuple[bool | None, str]]] = {
        "prompt_ids": lambda: _prompt_ids(a, b),
        "greedy": lambda: _chosen(a, b),
        "finite": lambda: _finite(a, b, epsilons),
        "inputs": lambda: _each(a, b, _inputs, "mask, positions and cache length are those of the tokens"),
        "weights": lambda: _weights(a, b),
        "buffers": lambda: _tensors(a, b, "buffers"),
        "batch": lambda: _each(a, b, _batch, "each forward had the rows that were asked for"),
        "cache": lambda: _each(a, b, _cache, "the cache was used where it was asked for, and only there"),
        "kernel": lambda: _each(a, b, _named("attn_implementation"), "attention ran as asked"),
        "dtype": lambda: _each(a, b, _named("dtype"), "parameters had the dtype that was asked for"),
        "threads": lambda: _threads(a, b),
        "observer": lambda: _observer(a, b, observed),
    }
    told = guards_of_records(a, b)
    return tuple(Guard(name, *(told.get(name) or checks[name]()), outcome) for name, outcome in GUARDS.items())


def observe(
    model: Model,
    prompt: Prompt,
    config: RunConfig,
    trace: Trace,
    *,
    net: Any = None,
    stop: Callable[[], bool] | None = None,
) -> str | None:
    """Repeat a free run without recording anything; why its tokens are others, or ``None`` where they are the same.

    It costs one plain run. The loop keeps nothing of a row but the id that follows it. A run that samples without a seed
    cannot be repeated, and is not: `guards` says so.
    """
    if unrepeatable(trace):
        return None
    net = model.instance(config.dtype, config.device) if net is None else net
    batch = fill_batch(model, prompt.ids, config, chat=prompt.chat)
    eos = torch.tensor(sorted(model.eos_ids), dtype=torch.int64)
    ended = torch.zeros(len(batch.prompts), dtype=torch.bool)
    choice = choice_of(config, prompt.ids, model.vocab_size)
    with applied(config), attention(net, config.attn_implementation), surround(net, config):
        use_cache = trace.effective["use_cache"]
        stream = forwards(net, batch, use_cache=use_cache, prefill_chunk=config.prefill_chunk)
        tokens = None
        for step, recorded in enumerate(trace.token_ids):
            if stop is not None and stop():
                break
            logits = next(stream) if tokens is None else stream.send(tokens)
            tokens = logits.argmax(-1)
            row = logits[batch.row]
            chosen = best_id(row) if choice is None else choice(row, trace.token_ids[:step])
            if chosen != recorded:
                return f"step {step} chooses {model.token_text(chosen)!r} where the record has {model.token_text(recorded)!r}"
            tokens[ended.to(tokens.device)] = batch.pad_id
            tokens[batch.row] = chosen
            if choice is not None and batch.copies:
                tokens[:] = chosen
            ended |= torch.isin(tokens.cpu(), eos)
    return None


def _each(a: Trace, b: Trace, check: Callable[[Trace], str | bool | None], held: str) -> tuple[bool | None, str]:
    """A check of each side alone: it says what is wrong, ``True`` where nothing is, ``None`` where it cannot tell."""
    found = {"A": check(a), "B": check(b)}
    wrong = [f"{side}: {what}" for side, what in found.items() if isinstance(what, str)]
    if wrong:
        return False, "; ".join(wrong) + "."
    if None in found.values():
        return None, "The record does not tell."
    return True, f"{held[0].upper()}{held[1:]}."


def _prompt_ids(a: Trace, b: Trace) -> tuple[bool, str]:
    if a.prompt_ids == b.prompt_ids:
        return True, f"Both sides were given the same {len(a.prompt_ids)} ids."
    return False, f"A was given {len(a.prompt_ids)} ids, B {len(b.prompt_ids)}, and they differ."


def _chosen(a: Trace, b: Trace) -> tuple[bool | None, str]:
    ok, why = _each(a, b, _greedy, "every token is the raw argmax")
    if samples(a) and samples(b) and a.effective.get("seed") != b.effective.get("seed"):
        why += " The seeds differ."
    paths = differing_paths(a, b)
    return ok, why if paths is None else f"{why} The decode paths differ: {paths}."


def _greedy(trace: Trace) -> str | bool:
    if samples(trace):  # even where each token drawn happens to be the best one
        seed = trace.effective.get("seed")
        return f"the tokens were drawn ({decode_path(trace)}, {'no seed' if seed is None else f'seed {seed}'})"
    pairs = zip(trace.table["logit"], trace.top_logits, strict=True)
    chosen = trace.meta.get("forced", 0)  # tokens that were given before it say nothing of the choice
    below = [step for step, (logit, top) in enumerate(pairs) if step >= chosen and logit < top[0]]
    further = f", nor at {len(below) - 1} further steps" if len(below) > 1 else ""
    return not below or f"at step {below[0]} the token taken is not the raw argmax{further}"


def _finite(a: Trace, b: Trace, epsilons: Sequence[float | None]) -> tuple[bool, str]:
    for side, trace in (("A", a), ("B", b)):
        found = trace.meta["invalid"]
        if found is not None:
            return False, f"{side}: the logits of step {found['step']} hold NaN or infinity."
    for step, value in enumerate(epsilons):
        if value is not None and not math.isfinite(value):
            return False, f"A logit of step {step} is infinite on one side only."
    return True, "No NaN, and no infinity that only one side has."


def _inputs(trace: Trace) -> str | bool | None:
    seen = trace.meta.get("inputs")
    if seen is None:
        return None
    return "; ".join(seen["deviations"].values()) or True


def _weights(a: Trace, b: Trace) -> tuple[bool | None, str]:
    if a.effective["dtype"] == b.effective["dtype"]:
        return _tensors(a, b, "parameters")
    one, other = (trace.meta["model"]["fingerprint"] for trace in (a, b))
    if one is None or other is None:
        return None, "The model is large, and nobody has asked for its fingerprint."
    if one["loaded"] == other["loaded"]:
        return True, "Both dtypes were cast from the same checkpoint; the casts differ by their rounding."
    return False, "The two sides were cast from different checkpoints."


def _tensors(a: Trace, b: Trace, what: str) -> tuple[bool | None, str]:
    name = "weights" if what == "parameters" else "buffers"
    one, other = ((trace.meta.get("tensors") or {}).get(what) for trace in (a, b))
    if one is None or other is None:
        return None, f"The record has no hash of the {name} that ran."
    if one == other:
        return True, f"The same {name} ran on both sides."
    return False, f"The {name} that ran are not the same on both sides."


def _batch(trace: Trace) -> str | bool | None:
    seen = trace.meta.get("inputs")
    if seen is None:
        return None
    asked = trace.requested.get("batch_size", 1)
    had = sorted({*seen["rows"], trace.effective["batch_size"]})
    if had in ([asked], []):
        return True
    return f"{asked} rows were asked for, the forwards had {' and '.join(map(str, had))}"


def _cache(trace: Trace) -> str | bool | None:
    seen = trace.meta.get("inputs")
    if seen is None:
        return None
    asked = trace.requested.get("use_cache", trace.effective["use_cache"])
    chunks = trace.requested.get("prefill_chunk") is not None
    if seen["forwards"] > 1 and not chunks and seen["cached"] != asked:
        return f"use_cache={asked} was asked for, and {'no' if asked else 'a'} forward found a filled cache"
    if trace.effective["use_cache"] != asked:
        return f"use_cache={asked} was asked for, {trace.effective['use_cache']} ran"
    return True


def _named(name: str) -> Callable[[Trace], str | bool]:
    """A check that what ran is what was asked for, where anything was."""

    def check(trace: Trace) -> str | bool:
        asked, ran = trace.requested.get(name), trace.effective[name]
        return True if asked in (None, ran) else f"{name}={asked} was asked for, {ran} ran"

    return check


def _threads(a: Trace, b: Trace) -> tuple[bool | None, str]:
    ok, why = _each(a, b, _named("num_threads"), "the threads are as named")
    ran = a.effective["num_threads"], b.effective["num_threads"]
    if ok and ran[0] != ran[1] and "num_threads" not in {**a.requested, **b.requested}:
        return False, f"A ran with {ran[0]} threads and B with {ran[1]}, though neither side names them."
    return ok, why


def _observer(a: Trace, b: Trace, observed: Sequence[str | None] | None) -> tuple[bool | None, str]:
    if observed is None:
        return None, "Not asked: it costs one more plain run of each side."
    wrong = [f"{side}: {what}" for side, what in zip("AB", observed, strict=True) if what is not None]
    if wrong:
        return False, f"Without recording, {'; '.join(wrong)}."
    lost = [side for side, trace in (("A", a), ("B", b)) if unrepeatable(trace)]
    if lost:
        return None, f"{' and '.join(lost)} drew tokens without a seed, which no second run can repeat."
    return True, "Both sides give the same tokens without recording."
