"""What was measured to judge a difference: B forced on A's tokens, the precision ladder, the referee, the cascade."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import polars as pl

__all__ = ["Cascade", "Evidence", "Flip", "Referee", "Rung"]


@dataclass(frozen=True, kw_only=True)
class Rung:
    """One rung of the precision ladder: both configurations on A's tokens, in the same shapes, in one dtype.

    Parameters
    ----------
    dtype
        The pair's own (the coarser of two), ``float32``, or ``float64`` for clean fp64.
    epsilon_at_split
        Logits; ``None`` where no token differs.
    epsilon_max
        Logits, over the covered steps.
    vacuous
        Whether the knobs that differ do nothing on this rung, so that it shows nothing.
    """

    dtype: str
    epsilon_at_split: float | None
    epsilon_max: float
    vacuous: bool = False


@dataclass(frozen=True, kw_only=True)
class Referee:
    """The top rung's opinion of the split: which of the two tokens, by how many logits, or undecided."""

    token_id: int
    text: str
    gap: float
    undecided: bool


@dataclass(frozen=True, kw_only=True)
class Flip:
    """A step at which B, forced on A's tokens, would choose another one: the best ids of the two raw rows differ.

    `gap` is the logit of B's best id minus that of A's in B's row; `epsilon` is max |Δlogit| there.
    """

    step: int
    gap: float
    epsilon: float


@dataclass(frozen=True, kw_only=True)
class Cascade:
    """What followed the split.

    Parameters
    ----------
    differing_tokens
        Columns of the alignment, the split included, that do not hold one equal token on both sides.
    later_tokens
        Columns of the alignment from the split on.
    rejoins
        Runs of at least three equal columns after the split.
    independent_flips
        Steps at which B, forced on A's tokens, would choose another token; the split is the first of them.
    independent_tokens
        How many of the tokens that differ after the split stand at such a step; ``None`` where it was not recorded. The
        other steps flip on A's tokens only: the free runs, whose prefixes differ, agree there.
    """

    differing_tokens: int
    later_tokens: int
    rejoins: int
    independent_flips: tuple[Flip, ...]
    independent_tokens: int | None = None

    def __str__(self) -> str:
        flips, differing, later = self.independent_flips, self.differing_tokens - 1, self.later_tokens - 1
        what = f"1 flip at step {flips[0].step}" if flips else "no flip under teacher forcing"
        told, further = f"{what}; {differing} of {later} later tokens differ", max(0, len(flips) - 1)
        of_them = self.independent_tokens if further else 0
        if of_them is not None and flips:
            told += f", {of_them} of them independently"
            further = max(0, further - of_them)  # a split that a policy made is no flip of the raw rows
        return f"{told}; on A's tokens B would choose another one at {_further(further)}" if further else told


def _further(count: int) -> str:
    return "1 further step" if count == 1 else f"{count} further steps"


@dataclass(frozen=True, kw_only=True, eq=False)
class Evidence:
    """All that was measured beyond the two free runs.

    Parameters
    ----------
    forced
        B on A's tokens, a row a step: ``step``, ``epsilon`` (logits), ``kld`` (A‖B, nats, full vocabulary),
        ``top1_agree``, ``delta_p`` (of A's token, B minus A), ``rank`` (of A's token in B's row, from 0).
    floor
        The covered steps on the top rung: ``step``, ``e_a``, ``e_b`` (the rounding each side commits), ``floor``
        (their sum), ``top`` (epsilon of the top rung), all in logits; ``None`` where no rung could run.
    ladder
        The rungs, the pair's own first.
    referee, cascade
        See `Referee` and `Cascade`; ``None`` without a split.
    structural
        The part of epsilon that does not vanish up the ladder, logits; ``None`` where it vanishes or nobody can know.
    flip_survives
        Whether both sides of the top rung still prefer their own token at the split.
    weight_rounding
        Of a pair of dtypes: epsilon between both sides' rounded weights on the top rung, logits.
    missing
        Why the ladder has no rung that shows something, as a sentence; ``None`` where it has.
    notes
        Further sentences with numbers: landmarks, probes, repeats.
    state_leak, noncausal, padded, unsteady
        What the probes on demand found, as sentences; ``None`` where nothing was found or asked. `unsteady`: A does not
        repeat itself, so that nothing measured against it is certain.
    steady
        Whether A, A, B, A was asked for, and all three runs of A have equal rows.
    routed
        Whether the model sends tokens to experts: rounding that moves a router moves logits by orders of magnitude more,
        so that the size of a side's rounding says nothing about its kernels.
    """

    forced: pl.DataFrame
    floor: pl.DataFrame | None = None
    ladder: tuple[Rung, ...] = ()
    referee: Referee | None = None
    cascade: Cascade | None = None
    structural: float | None = None
    flip_survives: bool | None = None
    weight_rounding: float | None = None
    missing: str | None = None
    notes: tuple[str, ...] = ()
    state_leak: str | None = None
    noncausal: str | None = None
    padded: str | None = None
    unsteady: str | None = None
    steady: bool = False
    routed: bool = False

    @property
    def landmark(self) -> str | None:
        """What a probe found that no rounding does, whatever the ladder says; ``None`` where nothing was found or asked."""
        return self.noncausal or self.padded

    def floor_at(self, step: int | None) -> float | None:
        """The noise floor of a step, logits; ``None`` where it was not covered."""
        if self.floor is None or step is None:
            return None
        found = self.floor.filter(self.floor["step"] == step)["floor"]
        return float(found[0]) if len(found) else None

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values; the tables are kept apart."""
        return {
            "ladder": [asdict(rung) for rung in self.ladder],
            "referee": None if self.referee is None else asdict(self.referee),
            "cascade": None
            if self.cascade is None
            else {
                **asdict(self.cascade),
                "independent_flips": [asdict(flip) for flip in self.cascade.independent_flips],
            },
            **{
                name: getattr(self, name)
                for name in (
                    "structural",
                    "flip_survives",
                    "weight_rounding",
                    "missing",
                    "state_leak",
                    "noncausal",
                    "padded",
                    "unsteady",
                    "steady",
                    "routed",
                )
            },
            "notes": list(self.notes),
        }

    @classmethod
    def from_dict(cls, facts: dict[str, Any], forced: pl.DataFrame, floor: pl.DataFrame | None) -> Evidence:
        """The inverse of `to_dict`, with the two tables."""
        cascade = facts["cascade"]
        if cascade is not None:
            cascade = Cascade(
                **{**cascade, "independent_flips": tuple(Flip(**f) for f in cascade["independent_flips"])}
            )
        return cls(
            **{
                **facts,
                "forced": forced,
                "floor": floor,
                "ladder": tuple(Rung(**rung) for rung in facts["ladder"]),
                "referee": None if facts["referee"] is None else Referee(**facts["referee"]),
                "cascade": cascade,
                "notes": tuple(facts["notes"]),
            }
        )
