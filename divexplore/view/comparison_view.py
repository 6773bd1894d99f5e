"""A whole comparison as one widget; once it is on the screen it needs no kernel."""

from __future__ import annotations

import logging
import weakref
from typing import TYPE_CHECKING, Any

import anywidget
import traitlets
from IPython.display import display

from divexplore.errors import Refusal, refuse_unknown
from divexplore.view import assets, vega
from divexplore.view.export import page
from divexplore.view.payload import Payload, summarise
from divexplore.view.saved import SavedPage
from divexplore.view.static import static_html

if TYPE_CHECKING:
    from divexplore.comparison.comparison import Comparison

__all__ = ["ComparisonView", "view_of"]

logger = logging.getLogger(__name__)

_VIEWS: weakref.WeakKeyDictionary[Comparison, ComparisonView] = weakref.WeakKeyDictionary()


class ComparisonView(anywidget.AnyWidget):
    """Two runs side by side: verdict, streams, timeline, logits, cascade and snapshot.

    Parameters
    ----------
    comparison
        What to show.
    selected
        Column of the alignment to show first; the split, or the first drift, where it is left out.
    live
        Whether a kernel may be asked (export, chart runtime).
    layout
        An ``ipywidgets.Layout``, as every widget takes it.

    Raises
    ------
    Refusal
        On an unknown argument, or a column that is not there.
    """

    _esm = assets.esm()
    _css = assets.css()

    meta = traitlets.Dict().tag(sync=True)
    """The header of the payload (`divexplore.view.payload`): everything but the columns of numbers."""

    data = traitlets.Bytes().tag(sync=True)
    """Every column of numbers in one block, laid out as ``meta["blob"]`` says."""

    selected = traitlets.Int(0).tag(sync=True)
    """Selected column of the alignment, from 0. The browser sets it first, and paints before Python hears of it."""

    tab = traitlets.Unicode("").tag(sync=True)
    """Name of the open tab, such as ``"Cause"``; the first one where it is empty or not there."""

    live = traitlets.Bool(True).tag(sync=True)
    """Whether the browser may ask Python; what needs it hides where this is false."""

    saved = traitlets.Unicode("").tag(sync=True)
    """Key of the page (`divexplore.view.saved`) that the browser hides while this view is on the screen."""

    def __init__(
        self,
        comparison: Comparison,
        *,
        selected: int | None = None,
        live: bool = True,
        layout: Any = None,
        **unknown: Any,
    ) -> None:
        refuse_unknown(unknown, ("selected", "live", "layout"))
        if not hasattr(comparison, "judgement"):
            raise Refusal(f"a {type(comparison).__name__} to view", "a Comparison", "Pass what dx.compare gave.")
        if not isinstance(live, bool):
            raise Refusal(f"live={live!r}", "True or False", "Write live=True or live=False.")
        self._payload = summarise(comparison)
        self._check(selected, self._payload)
        header = self._payload.header
        options = {} if layout is None else {"layout": layout}
        self._saved_page = SavedPage()
        super().__init__(
            meta=header,
            data=self._payload.blob,
            selected=header["selected"] if selected is None else selected,
            live=live,
            saved=self._saved_page.key,
            **options,
        )
        self.on_msg(self._answer)

    def show(self, comparison: Comparison, *, selected: int | None = None, tab: str = "") -> None:
        """Show another comparison in the same place, its split selected unless a column is given, a tab opened.

        Raises
        ------
        Refusal
            On a column that is not there.
        """
        payload = summarise(comparison)
        self._check(selected, payload)
        self._payload = payload
        with self.hold_sync():  # one message: the browser builds the new view once
            self.meta = payload.header
            self.selected = payload.header["selected"] if selected is None else selected
            self.tab = tab
            self.data = payload.blob
        self._saved_page.update(self.to_static_html())

    def to_html(self) -> str:
        """The view as one page that needs neither a kernel nor a network, the same column selected."""
        return page(self._payload, vega.runtime(), self.selected)

    def to_static_html(self) -> str:
        """Verdict, both texts around the split and the leading tokens, as HTML without scripts."""
        return static_html(self._payload)

    def __repr__(self) -> str:
        header = self.meta
        split = header["split"]
        where = "no split" if split is None else f"split at step {split['step']}"
        return f"<ComparisonView {header['verdict']['name']}, {where}, {header['columns']} columns>"

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        bundle = super()._repr_mimebundle_(**kwargs)
        if bundle is None:
            return None
        data, metadata = bundle
        return {**data, "text/html": self.to_static_html(), "text/plain": repr(self)}, metadata

    def _ipython_display_(self, text: str | None = None) -> None:
        """Display the view and, for when it is gone, its page; with `text` as the line of plain text."""
        if self.comm is None:  # closed
            display({"text/plain": repr(self)}, raw=True)
            return
        data, metadata = super()._repr_mimebundle_()
        self._saved_page.display({**data, "text/plain": text or repr(self)}, metadata, self.to_static_html())

    @staticmethod
    def _check(selected: int | None, payload: Payload) -> None:
        columns = payload.header["columns"]
        whole = isinstance(selected, int) and not isinstance(selected, bool)
        if selected is not None and not (whole and 0 <= selected < max(columns, 1)):
            raise Refusal(f"selected={selected!r}", f"0 to {max(columns - 1, 0)}", "Choose a column of the alignment.")

    def _answer(self, _widget: ComparisonView, content: dict[str, Any], _buffers: list[Any]) -> None:
        """Serve the two requests of the browser. An error goes back: Jupyter would swallow it here."""
        try:
            if content.get("ask") == "vega":
                self.send({"answer": content["id"]}, buffers=[vega.runtime()])
            elif content.get("ask") == "export":
                html = page(self._payload, vega.runtime(), int(content.get("selected", self.selected)))
                name = f"divexplore-{self.meta['verdict']['name'].replace('_', '-')}.html"
                self.send({"answer": content["id"], "name": name}, buffers=[html.encode()])
        except Exception as error:  # the one border where errors of callbacks are caught
            logger.warning("request %r of the view failed", content.get("ask"), exc_info=True)
            self.send({"answer": content.get("id"), "error": str(error)})


def view_of(comparison: Comparison) -> ComparisonView:
    """The one view of a comparison, however often it is displayed."""
    view = _VIEWS.get(comparison)
    if view is None or view.comm is None:  # closed by hand: a new one
        view = _VIEWS[comparison] = ComparisonView(comparison)
    return view
