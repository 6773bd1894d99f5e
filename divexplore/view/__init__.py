"""What a person sees: the view of a comparison, and the explorer around it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from divexplore.comparison.comparison import Comparison

__all__ = ["display", "mimebundle", "to_html"]


def display(comparison: Comparison) -> None:
    """Display the one view of a comparison and, below it, the page that stays in the notebook when the view is gone."""
    from divexplore.view.comparison_view import view_of

    view_of(comparison)._ipython_display_(repr(comparison))


def mimebundle(comparison: Comparison, **options: Any) -> Any:
    """What Jupyter shows for a comparison: its one view, a static page beside it, and its line of text."""
    from divexplore.view.comparison_view import view_of

    bundle = view_of(comparison)._repr_mimebundle_(**options)
    if bundle is None:
        return None
    data, metadata = bundle
    return {**data, "text/plain": repr(comparison)}, metadata


def to_html(comparison: Comparison, path: str | Path | None = None) -> str | Path:
    """See `Comparison.to_html`."""
    from divexplore.view import export

    return export.to_html(comparison, path)
