"""What was found out about the cause of a difference: the knob, the operation, the layer; each part on demand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from divexplore.comparison.attribution import Attribution
from divexplore.comparison.layers import LayerDrift
from divexplore.comparison.operations import OperationTrace
from divexplore.config import RunConfig
from divexplore.errors import Refusal

if TYPE_CHECKING:
    import polars as pl

    from divexplore.comparison.comparison import Comparison

__all__ = ["TABLES", "Cause", "with_cause"]

TABLES = {
    "attribution": {"knobs": "table", "neighbours": "neighbours"},
    "operations": {"operations": "table"},
    "layers": {"drift": "drift", "logits": "logits", "lens": "lens"},
}
"""Tables of each part: their names on disk, and the attributes that hold them."""

_TUPLES = {"fields", "minimal_flip", "minimal_drift", "notes", "candidates"}


@dataclass(frozen=True, kw_only=True, eq=False)
class Cause:
    """What was found out about the cause; a part that nobody asked for is ``None``.

    Parameters
    ----------
    attribution
        Which knobs, as `divexplore.attribute` found them.
    operations
        The first differing operation, as `divexplore.trace_ops` found it.
    layers
        The drift from layer to layer, as `divexplore.layer_drift` found it.
    """

    attribution: Attribution | None = None
    operations: OperationTrace | None = None
    layers: LayerDrift | None = None

    @property
    def sentences(self) -> tuple[str, ...]:
        """What each part says, in words with numbers."""
        said: list[str] = []
        if self.attribution is not None:
            said += [*self.attribution.notes, f"Found in {self.attribution.runs} runs."]
        if self.operations is not None:
            words = str(self.operations)
            said.append(f"{words[0].upper()}{words[1:]}.")
        if self.layers is not None:
            said.append(layer_sentence(self.layers))
        return tuple(said)

    def tables(self) -> dict[str, pl.DataFrame]:
        """Every table that is there, by its name on disk."""
        parts = {part: getattr(self, part) for part in TABLES}
        return {
            name: getattr(parts[part], attribute)
            for part, names in TABLES.items()
            if parts[part] is not None
            for name, attribute in names.items()
        }

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values; the tables are kept apart, for that of the operations has a row an output."""
        return {part: None if getattr(self, part) is None else _facts(part, getattr(self, part)) for part in TABLES}

    @classmethod
    def from_dict(cls, facts: Mapping[str, Any], tables: Mapping[str, pl.DataFrame]) -> Cause:
        """The inverse of `to_dict`, with the tables."""
        makers = {"attribution": Attribution, "operations": OperationTrace, "layers": LayerDrift}
        parts: dict[str, Any] = {}
        for part, make in makers.items():
            if facts[part] is None:
                continue
            plain = {name: _plain(name, value) for name, value in facts[part].items()}
            parts[part] = make(**plain, **{attribute: tables[name] for name, attribute in TABLES[part].items()})
        return cls(**parts)


def with_cause(comparison: Comparison, **parts: Any) -> Comparison:
    """See `Comparison.with_cause`."""
    given = {name: part for name, part in parts.items() if part is not None}
    for name, part in given.items():
        _check(comparison, name, part)
    return replace(comparison, cause=replace(comparison.cause or Cause(), **given))


def layer_sentence(found: LayerDrift) -> str:
    """Where the residual stream first differs, and what becomes of it in the logits."""
    what = "where the flip is" if found.flip else "where the drift is largest, for nothing flips"
    first = "no layer differs" if found.first_layer is None else f"layer {found.first_layer} is the first to differ"
    epsilon = found.logits.row(found.step, named=True)["epsilon"]
    return f"At step {found.step}, {what}, {first}, and the logits differ by {epsilon:.3g}."


def _facts(part: str, found: Any) -> dict[str, Any]:
    apart = set(TABLES[part].values())
    facts = {field.name: getattr(found, field.name) for field in fields(found) if field.name not in apart}
    return {
        name: value.to_dict() if isinstance(value, RunConfig) else list(value) if isinstance(value, tuple) else value
        for name, value in facts.items()
    }


def _plain(name: str, value: Any) -> Any:
    if value is not None and name in _TUPLES:
        return tuple(value)
    return RunConfig.of(value) if name in ("a", "b") else value


def _check(comparison: Comparison, name: str, part: Any) -> None:
    """Refuse what was found out about another pair: a cause that is not this one's would be believed."""
    a, b = comparison.a.requested, comparison.b.requested
    if name == "attribution":
        asked: list[Any] = list(part.fields)
        allowed: list[Any] = list(RunConfig.of(a).difference(RunConfig.of(b)))
    else:
        asked, allowed = [part.a.to_dict(), part.b.to_dict()], [a, b]
    if asked != allowed:
        raise Refusal(
            f"{name} of {asked}", f"{name} of this comparison, {allowed}", "Ask for the cause of these two runs."
        )
