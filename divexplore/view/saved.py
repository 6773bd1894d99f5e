"""What a notebook file keeps of a widget: a page without scripts, in an output of its own below the widget's."""

from __future__ import annotations

import uuid
from typing import Any

from IPython.display import display

from divexplore.view.static import framed

__all__ = ["SavedPage"]

_HINT = framed("<em>A saved view: in a notebook, run the cell for the one that can be clicked on.</em>")
# JupyterLab writes "Error displaying widget: model not found" where a widget was, in the output before this page; the
# page says it better. A widget that is there has no such class on that element.
_STYLE = (
    ".jp-OutputArea-child:has(+ .jp-OutputArea-child > .jp-OutputArea-output > .dx-saved)"
    " > .lm-Panel.jupyter-widgets { display: none }"
)


class SavedPage:
    """The page that stands for a widget in a notebook that is opened again.

    It is not one more format in the widget's own output: a notebook that its reader trusts takes the widget's format
    there, found or not. While the widget is on the screen its JavaScript hides the page, by `key` (`dom.js: hideSaved`).
    """

    def __init__(self) -> None:
        self.key = uuid.uuid4().hex
        """Names the page to the widget's JavaScript, and its output to Jupyter."""
        self._displayed = False

    def display(self, data: dict[str, Any], metadata: dict[str, Any], page: str) -> None:
        """Two outputs: the widget, and the page.

        Parameters
        ----------
        data, metadata
            The widget's mimebundle.
        page
            HTML without scripts.
        """
        # Nothing, rather than a line of text, where widgets cannot be shown: the page follows.
        display({**data, "text/html": ""}, metadata=metadata, raw=True)
        display(self._bundle(page), raw=True, display_id=self.key)
        self._displayed = True

    def update(self, page: str) -> None:
        """Replace the page wherever it was displayed; may be called from any thread."""
        if self._displayed:
            display(self._bundle(page), raw=True, display_id=self.key, update=True)

    def _bundle(self, page: str) -> dict[str, str]:
        inner = f"<style>{_STYLE}</style>{_HINT}{page}"
        return {"text/html": f'<div class="dx-saved" data-for="{self.key}">{inner}</div>'}
