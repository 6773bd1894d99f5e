"""What can be told of two runs when one of them is only a record: the same ids, values step by step, and what is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from divexplore.comparison.decode_paths import samples
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
    "prompts_differ",
    "same_ids",
    "sentences_of_records",
    "values_at",
]

_REPLACED = "\N{REPLACEMENT CHARACTER}"


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
        known = before.drop_nulls(name) if name in before.columns else before.clear()
        if known.height:
            step, value = known.select("step", name).sort(name, descending=True, maintain_order=True).row(0)
            where = f" at step {step}" if value else ""
            when = "" if split is None else " before the split"
            found.append(f"largest |Δlogprob| {what}: {value:.4g} nats{where}, of {known.height} steps{when}")
    for name, trace in (("A", a), ("B", b)):
        found += [f"{name}: {warning}" for warning in trace.meta["warnings"]] if trace.record is not None else []
    return found


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
