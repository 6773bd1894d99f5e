"""What stands below the view: the questions about the cause, another token at the selected step, and its branch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from divexplore.view.comparison_view import ComparisonView
from divexplore.view.explorer_cause import CausePanel, prices
from divexplore.view.explorer_panel import BranchPanel, Hear, RunPanel, offer

if TYPE_CHECKING:
    from divexplore.comparison.comparison import Comparison

__all__ = ["Strips"]


class Strips:
    """The two strips of controls and the view of the last branch; all belong to the comparison above them.

    Parameters
    ----------
    panel
        Shows the errors, and tells when something runs.
    hear
        Takes the messages of both strips.
    """

    def __init__(self, panel: RunPanel, hear: Hear) -> None:
        self.cause, self.branch = CausePanel(), BranchPanel()
        self.branch_view: ComparisonView | None = None
        for strip in (self.cause, self.branch):
            strip.on_msg(lambda _, content, buffers: panel.take(hear, content))
        panel.observe(self._mark_busy, "state")

    @property
    def parts(self) -> tuple[Any, ...]:
        """The widgets, from top to bottom."""
        strips = (self.cause, self.branch)
        return strips if self.branch_view is None else (*strips, self.branch_view)

    def reset(self, comparison: Comparison) -> None:
        """Let go of what belongs to another comparison."""
        if self.branch_view is not None:
            self.branch_view.close()
            self.branch_view = None
        self.branch.note = ""
        self.cause.prices = prices(comparison)

    def offer(self, comparison: Comparison, column: int) -> None:
        """Offer the tokens that could be taken at a column."""
        self.branch.offer = offer(comparison, column)

    def show_branch(self, against: Comparison, note: str) -> None:
        """Show a branch (B) against the side that it left (A)."""
        if self.branch_view is None:
            self.branch_view = ComparisonView(against)
        else:
            self.branch_view.show(against)
        self.branch.note = note

    def close(self) -> None:
        """Take all of it off the page."""
        for part in self.parts:
            part.close()

    def _mark_busy(self, change: dict[str, Any]) -> None:
        for strip in (self.cause, self.branch):
            strip.busy = change["new"]["phase"] in ("running", "stopping")
        self.cause.state = change["new"]
