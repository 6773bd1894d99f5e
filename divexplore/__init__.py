"""See where, why and how far two runs of the same language model part ways."""

from __future__ import annotations

import importlib
from types import FunctionType
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOMES = {
    "PRESETS": "divexplore.config",
    "RunConfig": "divexplore.config",
    "Refusal": "divexplore.errors",
    "Trace": "divexplore.trace",
    "load_model": "divexplore.models.load",
    "run": "divexplore.engine.run",
    "force": "divexplore.engine.run",
    "score": "divexplore.engine.score",
    "read_records": "divexplore.sources.records",
    "compare": "divexplore.comparison.compare",
    "compare_traces": "divexplore.comparison.compare",
    "find_near_ties": "divexplore.comparison.scan",
    "Comparison": "divexplore.comparison.comparison",
    "Verdict": "divexplore.comparison.verdict",
    "attribute": "divexplore.comparison.attribution",
    "trace_ops": "divexplore.comparison.operations",
    "layer_drift": "divexplore.comparison.layers",
    "ComparisonView": "divexplore.view.comparison_view",
    "Explorer": "divexplore.view.explorer",
}

# written out, for type checkers read no computed list; a test keeps it equal to the table
__all__ = [
    "PRESETS",
    "Comparison",
    "ComparisonView",
    "Explorer",
    "Refusal",
    "RunConfig",
    "Trace",
    "Verdict",
    "attribute",
    "compare",
    "compare_traces",
    "find_near_ties",
    "force",
    "layer_drift",
    "load_model",
    "read_records",
    "run",
    "score",
    "trace_ops",
]

if TYPE_CHECKING:
    from divexplore.comparison.attribution import attribute
    from divexplore.comparison.compare import compare, compare_traces
    from divexplore.comparison.comparison import Comparison
    from divexplore.comparison.layers import layer_drift
    from divexplore.comparison.operations import trace_ops
    from divexplore.comparison.scan import find_near_ties
    from divexplore.comparison.verdict import Verdict
    from divexplore.config import PRESETS, RunConfig
    from divexplore.engine.run import force, run
    from divexplore.engine.score import score
    from divexplore.errors import Refusal
    from divexplore.models.load import load_model
    from divexplore.sources.records import read_records
    from divexplore.trace import Trace
    from divexplore.view.comparison_view import ComparisonView
    from divexplore.view.explorer import Explorer


def __getattr__(name: str) -> Any:
    """Import a public name from its home at its first use, so that ``import divexplore`` stays light."""
    if name not in _HOMES:
        raise AttributeError(f"module 'divexplore' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    if isinstance(value, FunctionType):
        from divexplore.errors import told_nearest

        value = told_nearest(value)
        value.__module__ = __name__  # by which it is pickled, for another process
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
