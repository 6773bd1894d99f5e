"""What can be told of two runs when one of them is only a record: the same ids, values step by step, and what is known."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from divexplore.comparison.decode_paths import decode_path, samples
from divexplore.trace import synthetic_id

if TYPE_CHECKING:
    import polars as pl

    from divexplore.trace import Trace

__all__ = [
    "changes",
    "constant_values",
    "greedy_by_request",
    "guards_of_records",
    "is_record",
    "one_sided_infinity",
    "only_the_end",
    "other_processors",
    "pieces_of",
    "prompts_differ",
    "same_ids",
    "sentences_of_records",
    "shorter_first",
    "uneven_ends",
    "values_at",
]

_REPLACED = "\N{REPLACEMENT CHARACTER}"
_MOVES_SCORES = ("repetition_penalty", "suppress_tokens")  # of a run of our own, as its decode path names them


def is_record(*traces: Trace) -> bool:
    """Whether any of the traces was read from a serving engine's record."""
    return any(trace.record is not None for trace in traces)


def same_ids(a: Trace, b: Trace) -> tuple[Trace, Trace]:
    """Both traces with one id a token, where one of the two knows the engine's id of what the other knows by bytes.

    Engines give ids for the tokens taken and only texts for the alternatives; an id that a text stands for on either side
    serves both. A text that two ids share stands for none of them.
    """
    known: dict[int, set[int]] = {}
    for trace in (a, b):
        for token_id, raw, text in trace.table.select("token_id", "bytes", "text").unique().iter_rows():
            if token_id >= 0 and (key := raw if raw is not None else _key(text)):
                known.setdefault(synthetic_id(key), set()).add(token_id)
        for token_id, text in trace.meta["texts"].items():
            if int(token_id) >= 0 and (key := _key(text)):
                known.setdefault(synthetic_id(key), set()).add(int(token_id))
    names = {synthetic: ids.pop() for synthetic, ids in known.items() if len(ids) == 1}
    return _renamed(a, names), _renamed(b, names)


def prompts_differ(a: Trace, b: Trace) -> bool:
    """Whether the prompts are known to be others: by their ids, else by their texts; what was not recorded is no difference."""
    if a.prompt_ids and b.prompt_ids:
        return a.prompt_ids != b.prompt_ids
    texts = a.meta["prompt"]["text"], b.meta["prompt"]["text"]
    kinds = a.meta["prompt"]["chat"], b.meta["prompt"]["chat"]
    return None not in texts and kinds[0] == kinds[1] and texts[0] != texts[1]


def values_at(trace: Trace, step: int) -> dict[int, float]:
    """Log-probabilities (nats) by id that are known at a step: the top list, and the token taken."""
    row = trace.table.row(step, named=True)
    value = row["logprob"]
    shift = 0.0 if trace.record is not None or value is None else value - row["logit"]
    listed = zip(row["top_ids"] or (), row["top_logits"] or (), strict=True)
    found = {token_id: logit + shift for token_id, logit in listed if token_id is not None and logit is not None}
    return found if value is None else {row["token_id"]: value} | found


def changes(a: Trace, b: Trace, steps: int) -> pl.DataFrame:
    """How far the recorded values of each common step are apart, nats.

    Returns
    -------
    polars.DataFrame
        ``step``; ``epsilon``, null, for it is of a vocabulary; ``differs``, whether the rows differ in value;
        ``delta_logprob``, |Δlogprob| of the token taken, null at the split; ``delta_listed``, the largest over the ids that
        both sides list. A row also differs where one side lists a token that the other's list leaves out although its value
        would belong there; equal lists may hide a difference below them.
    """
    import polars as pl

    taken: list[float | None] = []
    deltas: list[float | None] = []
    differs: list[bool | None] = []
    tokens, values = (a.token_ids, b.token_ids), (a.table["logprob"], b.table["logprob"])
    for step in range(steps):
        pair = values[0][step], values[1][step]
        same = tokens[0][step] == tokens[1][step] and None not in pair
        taken.append(_apart(*pair) if same else None)
        of_a, of_b = values_at(a, step), values_at(b, step)
        gaps = [_apart(of_a[i], of_b[i]) for i in of_a.keys() & of_b.keys()]
        deltas.append(max(gaps, default=None))
        if any(gaps) or _misses(b, step, of_a, of_b) or _misses(a, step, of_b, of_a):
            differs.append(True)
        else:
            differs.append(False if gaps else None)
    return pl.DataFrame(
        {
            "step": range(steps),
            "epsilon": [None] * steps,
            "differs": differs,
            "delta_logprob": taken,
            "delta_listed": deltas,
        },
        schema={
            "step": pl.Int32,
            "epsilon": pl.Float64,
            "differs": pl.Boolean,
            "delta_logprob": pl.Float64,
            "delta_listed": pl.Float64,
        },
    )


def constant_values(trace: Trace) -> bool:
    """Whether a record has one log-probability at every step, other than 0: every token is as likely as any other."""
    values = trace.table["logprob"].drop_nulls()
    return len(values) > 2 and values.n_unique() == 1 and values[0] != 0


def greedy_by_request(trace: Trace) -> str | bool | None:
    """Why a side is not greedy, ``True`` where it is, ``None`` where its record does not tell."""
    record = trace.record or {"greedy": not samples(trace)}
    lost = record.get("not_echoed") or {}
    reasons = [f"{name} was requested but not echoed: {what}" for name, what in lost.items()]
    if record.get("greedy") is False:
        return "; ".join([*reasons, f"the tokens are not known to be greedy ({trace.effective.get('decode')})"])
    below = [
        step
        for step, row in enumerate(trace.table.select("logit", "top_logits").iter_rows())
        if step >= trace.meta["forced"] and None not in (row[0], row[1], (row[1] or [None])[0]) and row[0] < row[1][0]
    ]
    if (named := record.get("below_best")) and named["steps"]:
        return f"not greedy under the reported logprobs at {named['steps']} of {named['of']} steps"
    if below:
        return f"not greedy under the reported logprobs at {len(below)} of {len(trace)} steps, first at {below[0]}"
    return "; ".join(reasons) or record.get("greedy")


def other_processors(a: Trace, b: Trace) -> str | None:
    """How what moves the scores before the choice differs, in words; ``None`` where it does not, or nobody knows."""
    found = _processors(a), _processors(b)
    if None in found or found[0] == found[1]:
        return None
    return "; ".join(f"{name} {', '.join(words or ()) or 'none'}" for name, words in zip("AB", found, strict=True))


def _processors(trace: Trace) -> list[str] | None:
    if trace.record is not None:
        return trace.record.get("processors")
    return [word for word in decode_path(trace).split(", ") if word.startswith(_MOVES_SCORES)]


def one_sided_infinity(a: Trace, b: Trace, steps: int) -> tuple[int, str, int] | None:
    """The first step at which a token's log-probability is minus infinity on one side only: step, that side, and the id."""
    for step in range(steps):
        of_a, of_b = values_at(a, step), values_at(b, step)
        for token_id in sorted(of_a.keys() & of_b.keys()):
            infinite = math.isinf(of_a[token_id]), math.isinf(of_b[token_id])
            if infinite[0] != infinite[1]:
                return step, "A" if infinite[0] else "B", token_id
    return None


def guards_of_records(a: Trace, b: Trace) -> dict[str, tuple[bool | None, str]]:
    """The checks that a record answers otherwise than a run, or not at all."""
    if not is_record(a, b):
        return {}
    silent = ("inputs", "weights", "buffers", "batch", "cache", "kernel", "dtype", "threads")
    checks: dict[str, tuple[bool | None, str]] = dict.fromkeys(
        silent, (None, "A record of a serving engine does not tell.")
    )
    if not (a.prompt_ids and b.prompt_ids):
        differ = prompts_differ(a, b)
        words = "The prompts' texts differ." if differ else "The records do not hold the ids of both prompts."
        checks["prompt_ids"] = (False if differ else None, words)
    if not prompts_differ(a, b) and (infinite := one_sided_infinity(a, b, _common(a, b))) is not None:
        checks["finite"] = (False, f"A log-probability of step {infinite[0]} is infinite on {infinite[1]} only.")
    said = {name: greedy_by_request(trace) for name, trace in (("A", a), ("B", b))}
    wrong = [f"{name}: {what}" for name, what in said.items() if isinstance(what, str)]
    if wrong:
        checks["greedy"] = (False, "; ".join(wrong) + ".")
    elif None in said.values():
        checks["greedy"] = (None, "Without the request nobody knows whether the choice was greedy.")
    else:
        checks["greedy"] = (True, "Greedy by request, and no token is below the best of its list.")
    return checks


def sentences_of_records(a: Trace, b: Trace, steps: pl.DataFrame, split: int | None) -> list[str]:
    """What the records tell beside the verdict, a sentence each."""
    if not is_record(a, b):
        return []
    found = ["only log-probabilities were recorded: gaps of logits are the same, ties of logits cannot be told"]
    before = steps.filter(steps["step"] < (steps.height if split is None else split))
    for name, what in (
        ("delta_logprob", "of the token taken"),
        ("delta_listed", f"over ids that both sides list (lists of {_longest(a)} and {_longest(b)}: no epsilon)"),
    ):
        known = before.filter(before[name].is_finite()) if name in before.columns else before.clear()
        if known.height:
            step, value = known.select("step", name).sort(name, descending=True, maintain_order=True).row(0)
            where = f" at step {step}" if value else ""
            when = "" if split is None else " before the split"
            found.append(f"largest |Δlogprob| {what}: {value:.4g} nats{where}, of {known.height} steps{when}")
    if (uneven := uneven_ends(a, b)) is not None:
        found.append(uneven)
    for name, trace in (("A", a), ("B", b)):
        found += [f"{name}: {warning}" for warning in trace.meta["warnings"]] if trace.record is not None else []
    return found


def pieces_of(trace: Trace) -> list[bytes | None]:
    """The bytes of each token taken; ``None`` where they were lost."""
    found: list[bytes | None] = []
    for raw, text in trace.table.select("bytes", "text").iter_rows():
        lost = raw is None and (_REPLACED in text or "⟨" in text)
        found.append(None if lost else raw if raw is not None else text.encode("utf-8", errors="surrogatepass"))
    return found


def shorter_first(a: Trace, b: Trace) -> tuple[tuple[str, Trace], tuple[str, Trace]] | None:
    """Both sides by name, where all tokens of one are the first tokens of the other, which has more."""
    if len(a) == len(b) or not min(len(a), len(b)):
        return None  # a record may be a text without tokens
    sides = ("A", a), ("B", b)
    short, long = sides if len(a) < len(b) else sides[::-1]
    return (short, long) if long[1].token_ids[: len(short[1])] == short[1].token_ids else None


def only_the_end(short: Trace, long: Trace) -> bool:
    """Whether what the longer side has more is only its end, which some engines give a row and others do not."""
    if long.finish_reason != "eos" or short.finish_reason != "eos":
        return False
    if long.record is None:
        return len(long) == len(short) + 1
    before = pieces_of(long)[: len(short)]
    told = long.record["text"]
    known = [piece for piece in before if piece is not None]
    return told is not None and len(known) == len(before) and _stripped(known) == told.strip()


def uneven_ends(a: Trace, b: Trace) -> str | None:
    """What is open where one of two equal streams is longer, in words; ``None`` where they part, or end together."""
    ends = shorter_first(a, b) if is_record(a, b) else None
    if ends is None:
        return None
    (name, short), (other, long) = ends
    following = long.texts[len(short)]
    if only_the_end(short, long):
        return f"{other} has a row for its end, {following!r}, and {name} has none"
    how = f"by {short.finish_reason}" if short.finish_reason != "unknown" else "why is not recorded"
    if short.partial:
        how = f"cut short: {short.meta['error'] or 'stopped'}"
    return f"{name} ends after {len(short)} of {len(long)} tokens ({how}), where {other} goes on with {following!r}"


def _common(a: Trace, b: Trace) -> int:
    """Steps of the common prefix, the split included."""
    pairs = enumerate(zip(a.token_ids, b.token_ids, strict=False))
    return next((step + 1 for step, (x, y) in pairs if x != y), min(len(a), len(b)))


def _stripped(pieces: Sequence[bytes]) -> str:
    return b"".join(pieces).decode("utf-8", errors="replace").strip()


def _apart(a: float, b: float) -> float:
    return 0.0 if a == b else abs(a - b)  # two infinities are no distance


def _misses(trace: Trace, step: int, other: dict[int, float], own: dict[int, float]) -> bool:
    """Whether the list of `trace` lacks an id whose value on the other side is above the least that it lists."""
    row = trace.table.row(step, named=True)
    outside = trace.record is not None and step in trace.record["outside_list"]
    inside = [value for i, value in own.items() if not (outside and i == row["token_id"])]
    if len(inside) < 2:
        return False  # no list, only the token taken
    return any(value > min(inside) for i, value in other.items() if i not in own)


def _longest(trace: Trace) -> int:
    return trace.top_ids.shape[1]


def _key(text: str | None) -> bytes | None:
    """The bytes of a display text, or ``None`` where it shows what is no text."""
    if not text or _REPLACED in text or "⟨" in text:
        return None
    return text.encode("utf-8", errors="surrogatepass")


def _renamed(trace: Trace, names: dict[int, int]) -> Trace:
    import polars as pl

    def new(token_id: int | None) -> int | None:
        return None if token_id is None else names.get(token_id, token_id)

    table = trace.table
    tokens = [new(token_id) for token_id in table["token_id"]]
    lists = [None if ids is None else _each_once([new(i) for i in ids], list(ids)) for ids in table["top_ids"]]
    texts: dict[str, Any] = {str(new(int(i))): text for i, text in trace.meta["texts"].items()} | {
        i: text for i, text in trace.meta["texts"].items() if int(i) >= 0
    }
    columns = [
        pl.Series("token_id", tokens, table.schema["token_id"]),
        pl.Series("top_ids", lists, table.schema["top_ids"]),
    ]
    return replace(trace, table=table.with_columns(columns), meta=trace.meta | {"texts": texts})


def _each_once(new: Sequence[int | None], old: Sequence[int | None]) -> list[int | None]:
    """The new ids, but the old one where the new one is in the list already."""
    return [o if n is not None and n in new[:rank] else n for rank, (n, o) in enumerate(zip(new, old, strict=True))]
