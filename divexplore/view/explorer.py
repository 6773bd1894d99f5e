"""Run two configurations from a notebook page: a run panel above the view of one comparison."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import ipywidgets
import traitlets
from IPython.display import display

from divexplore.comparison.prices import price_of_processes
from divexplore.errors import Refusal, refuse_unknown
from divexplore.models.request import check_steps
from divexplore.view.comparison_view import ComparisonView
from divexplore.view.explorer_cause import QUESTIONS, UNITS, ask
from divexplore.view.explorer_form import choices, presets
from divexplore.view.explorer_models import Shelf
from divexplore.view.explorer_panel import RunPanel, complaint
from divexplore.view.explorer_progress import Progress, idle_state
from divexplore.view.explorer_request import config_of, first_request, moved_off, prompt_of
from divexplore.view.explorer_strips import Strips
from divexplore.view.saved import SavedPage
from divexplore.view.static import framed
from divexplore.view.worker import Job, Worker

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from divexplore.comparison.comparison import Comparison
    from divexplore.config import RunConfig
    from divexplore.models.model import Model

__all__ = ["Explorer"]

logger = logging.getLogger(__name__)

AWAY = 10  # seconds: a cell that is run again takes its view away for a moment


class Explorer(ipywidgets.VBox):
    """Choose a model, a prompt and two configurations, run both, and look at where they part.

    Parameters
    ----------
    model
        What `divexplore.load_model` takes; the picker offers the catalogue beside it. A loaded `Model` stays yours, one
        that is loaded here is freed by `close`, or when the Explorer has left the page and nothing runs any more. A run
        that no cell waits for is stopped when the Explorer stays off the page for `AWAY` seconds.
    prompt
        A text, or a list of token ids.
    a, b
        The two configurations, `RunConfig` or mappings of its fields; both left out, the first preset that can differ.
    max_new_tokens
        Steps at most, of each side.
    layout
        An ``ipywidgets.Layout``, as every widget takes it.

    Raises
    ------
    Refusal
        On an unknown argument, or a configuration that makes no sense.
    """

    comparison = traitlets.Any(None, allow_none=True, read_only=True)
    """The last `Comparison`, or ``None`` before the first run; can be observed."""

    def __init__(
        self,
        model: Model | PreTrainedModel | str | None = None,
        prompt: str | Sequence[int] | None = None,
        *,
        a: RunConfig | Mapping[str, Any] | None = None,
        b: RunConfig | Mapping[str, Any] | None = None,
        max_new_tokens: int = 128,
        layout: Any = None,
        **unknown: Any,
    ) -> None:
        refuse_unknown(unknown, ("model", "prompt", "a", "b", "max_new_tokens", "layout"))
        self._shelf = Shelf(model)
        self._untouched = request = first_request(self._shelf, prompt, a, b, max_new_tokens)
        self._judged = False
        self._worker = Worker(self._failed)
        self._turn = threading.RLock()  # held while a run is shown, started or stopped: none falls into another
        self._closed = False
        self._left = object()  # another one at each time that the last view leaves the page
        self._saved_page = SavedPage()
        self.panel = RunPanel(
            self._hear, choices=choices(self._shelf.listed), request=request, saved=self._saved_page.key
        )
        self.view: ComparisonView | None = None
        self.strips: Strips | None = None
        options = {} if layout is None else {"layout": layout}
        super().__init__(children=(self.panel,), _view_count=0, **options)  # 0: the browser counts its views from here
        self.add_class("dx-explorer")
        self.observe(self._seen, "_view_count")

    @property
    def busy(self) -> bool:
        """Whether a run is under way."""
        return self._worker.busy

    def run(self) -> Comparison:
        """Run what the panel shows and wait for it; an interrupt stops it and keeps what was recorded.

        Raises
        ------
        Refusal
            On a request that cannot be served, as the panel's error line shows it too.
        """
        return _result(self._start(), "run")

    def start(self) -> None:
        """Run what the panel shows, and return at once. A run under way is stopped first, and leaves no trace."""
        self._start()

    def stop(self) -> None:
        """End the run after the step that it is at; what was recorded is shown."""
        with self._turn:
            if self._worker.busy and self.panel.state["phase"] == "running":
                self.panel.tell(phase="stopping")
                self._worker.stop()

    def fork(self, side: str, step: int, token: int) -> Comparison:
        """Take another token at one step, go on in that side's configuration, and show that branch below.

        Parameters
        ----------
        side, step, token
            As `Comparison.fork` takes them.

        Returns
        -------
        Comparison
            That side as it was (A) against its branch (B).

        Raises
        ------
        Refusal
            Before the first run, or on a side, step or token that is not there.
        """
        return _result(self._start_fork(side, step, token), "fork")

    def close(self) -> None:
        """Stop, leave the page, and free the model if it was loaded here."""
        self._closed = True
        if (worker := getattr(self, "_worker", None)) is not None:
            if worker.busy:
                worker.start(lambda _: self._shelf.release(), last=True)  # once the step under way is over
            else:
                self._shelf.release()
            for part in (self.panel, self.view, self.strips):
                if part is not None:
                    part.close()
        super().close()

    def __repr__(self) -> str:
        ran = "nothing run yet" if self.comparison is None else repr(self.comparison)
        return f"<Explorer {self.panel.request['model']}, {ran}>"

    def _ipython_display_(self) -> None:
        """Display the panel and what is below it and, for when they are gone, a page of the last comparison."""
        if self.comm is None:  # closed
            display({"text/plain": repr(self)}, raw=True)
        else:
            self._saved_page.display(self._repr_mimebundle_(), {}, self._page())

    def _page(self) -> str:
        if self.view is None:
            return framed("The Explorer: nothing was run before the notebook was saved.")
        return self.view.to_static_html()

    def _start(self) -> Job:
        self._refuse_what_cannot_start()
        request = dict(self.panel.request)  # what the panel shows now, whatever is typed later
        return self._begin(lambda job: self._compare(job, request), note="starting …", spoken="running")

    def _start_fork(self, side: str, step: int, token: int) -> Job:
        self._refuse_what_cannot_start()
        comparison = self._live("a branch")
        if side not in ("a", "b"):
            raise Refusal(f"side={side!r}", "'a' or 'b'", "Choose one of the two sides.")
        return self._begin(
            lambda job: self._continue(job, comparison, side, step, token),
            note=f"continuing {side.upper()} from step {step} …",
        )

    def _start_cause(self, name: str) -> Job:
        if name not in QUESTIONS or self.comparison is None:
            raise Refusal(f"the cause {name!r}", ", ".join(QUESTIONS), "Run first, then ask one of these.")
        self._refuse_what_cannot_start()
        comparison = self._live("a question")
        return self._begin(lambda job: self._find_cause(job, comparison, name), unit=UNITS[name], note=QUESTIONS[name])

    def _begin(self, work: Callable[[Job], Any], **shown: Any) -> Job:
        """Start a job; one that is under way is stopped, and shows nothing from here on."""
        with self._turn:
            if self._worker.busy:
                shown["note"] = "waiting for the step under way …"
            self.panel.tell(**{**idle_state(), "phase": "running", **shown})
            return self._worker.start(work)

    def _live(self, what: str) -> Comparison:
        """The comparison on the screen, where its model is still at hand."""
        if self.comparison is None:
            raise Refusal(f"{what} before the first run", "a comparison", "Press Run first.")
        if self.comparison.pair is not None and self.comparison.pair.model.closed:
            raise Refusal(f"{what} about a comparison whose model was freed", "a fresh run", "Press Run again first.")
        return self.comparison

    def _refuse_what_cannot_start(self) -> None:
        if self._closed:
            raise Refusal("a run of an Explorer that was closed", "an open one", "Make another: dx.Explorer(…).")
        if threading.current_thread().name == "divexplore-worker":
            raise Refusal(
                "a run from within a run", "a run from the notebook", "Observe `comparison`, and run afterwards."
            )

    def _hear(self, content: dict[str, Any]) -> None:
        """Do what a button of the browser asks."""
        if content.get("do") == "run":
            self.panel.request = {**self.panel.request, **content["request"]}
            self._start()
        elif content.get("do") == "stop":
            self.stop()
        elif content.get("do") == "cause":
            self._start_cause(str(content["name"]))
        elif content.get("do") == "fork":
            self._start_fork(str(content["side"]), int(content["step"]), int(content["token"]))

    def _compare(self, job: Job, request: dict[str, Any]) -> Comparison | None:
        a, b = config_of(request["a"]), config_of(request["b"])
        prompt = prompt_of(request)
        check_steps(request["steps"])
        self.panel.tell(note=f"loading {request['model']} …")
        model = self._shelf.get(request["model"])
        if job.stopped():
            self._tell(job, **{**idle_state(), "note": "stopped before the first step"})
            return None
        from divexplore.comparison.compare import compare

        self._tell(job, note=price_of_processes(a, b) or "starting …")
        started = time.perf_counter()
        comparison = compare(
            model,
            prompt,
            a,
            b,
            request["steps"],
            chat=request["chat"],
            evidence=request["evidence"],
            progress=Progress(lambda changes: self._tell(job, **changes)),
            stop=job.stopped,
        )
        seconds = time.perf_counter() - started
        with self._turn:
            if not job.replaced:
                self._show(comparison, seconds)
        return comparison

    def _continue(self, job: Job, comparison: Comparison, side: str, step: int, token: int) -> Comparison:
        from divexplore.comparison.compare import compare_traces

        progress = Progress(lambda changes: self._tell(job, **changes))
        branch = comparison.fork(
            side,
            step,
            token,
            progress=lambda done, total, text: progress(side.upper(), done, total, text),
            stop=job.stopped,
        )
        against = compare_traces(comparison.a if side == "a" else comparison.b, branch)
        with self._turn:
            if not job.replaced and self.strips is not None:
                self.strips.show_branch(
                    against, f"below: {side.upper()} as it was, and with another token at step {step} (B)"
                )
                self._arrange()
                self.panel.tell(**{**idle_state(), "phase": "done", "spoken": "the branch is below"})
        return against

    def _find_cause(self, job: Job, comparison: Comparison, name: str) -> None:
        progress = Progress(lambda changes: self._tell(job, **changes))

        def tell(done: int, total: int, text: str) -> None:
            progress(QUESTIONS[name] if name == "knob" else text, done, total, "")

        found = ask(name, comparison, tell, job.stopped)
        with self._turn:
            if not job.replaced and self.view is not None:
                self.set_trait("comparison", found)
                self.view.show(found, selected=self.view.selected, tab="Cause")
                self._saved_page.update(self._page())
                told = f"{QUESTIONS[name]} The tab Cause says it."
                self.panel.tell(**{**idle_state(), "phase": "done", "spoken": told})

    def _tell(self, job: Job, **changes: Any) -> None:
        if not job.replaced:
            self.panel.tell(**changes)

    def _show(self, comparison: Comparison, seconds: float) -> None:
        if self.view is None or self.strips is None:
            self.view, self.strips = ComparisonView(comparison), Strips(self.panel, self._hear)
            self.view.observe(lambda _: self._offer(), "selected")
        else:
            self.view.show(comparison)
        self.set_trait("comparison", comparison)
        self.strips.reset(comparison)
        self._offer()
        self._arrange()
        self.panel.editing = False
        steps = f"{len(comparison.a)} + {len(comparison.b)} steps in {seconds:.1f} s"
        split = "" if comparison.split is None else f", split at step {comparison.split.step}"
        verdict = str(comparison.verdict).replace("_", " ")
        failed = next((e for trace in (comparison.a, comparison.b) if (e := trace.meta["error"])), None)
        error = None if failed is None else complaint(RuntimeError(failed))
        self.panel.tell(
            **{**idle_state(), "phase": "done", "note": steps, "error": error, "spoken": f"finished: {verdict}{split}"}
        )
        self._saved_page.update(self._page())

    def _offer(self) -> None:
        if self.strips is not None and self.view is not None:
            self.strips.offer(self.comparison, self.view.selected)

    def _arrange(self) -> None:
        """Panel and view, and below them what is asked about the comparison."""
        if self.strips is not None:
            self.children = (self.panel, self.view, *self.strips.parts)

    def _failed(self, job: Job, error: Exception) -> None:
        if not isinstance(error, Refusal):
            logger.warning("the run failed", exc_info=error)
        if not job.replaced:
            self.panel.complain(error)

    def _seen(self, change: dict[str, Any]) -> None:
        """On the page for the first time, or off it everywhere, so that nobody can press Run any more."""
        if change["new"] and not self._judged:
            self._judged = True
            threading.Thread(target=self._judge_presets, name="divexplore-presets", daemon=True).start()
        elif change["new"] == 0 and change["old"]:
            self._left = left = object()
            if (job := self._worker.latest) is None or job.ended:
                self._release_off_the_page()
            else:
                self._worker.when_idle(self._release_off_the_page)
                timer = threading.Timer(AWAY, self._stop_off_the_page, (job, left))
                timer.name, timer.daemon = "divexplore-away", True
                timer.start()

    def _stop_off_the_page(self, job: Job, left: object) -> None:
        """Stop a run that nobody looks at or waits for; `left` is the time that its last view left the page."""
        with self._turn:
            if self._left is left and self._view_count == 0 and self._worker.latest is job and not job.awaited:
                self.stop()

    def _release_off_the_page(self) -> None:
        """Free the model that was loaded here, unless a view is back or something runs again."""
        with self._turn:  # a start between the look and the release would lose its model
            if self._view_count == 0 and not self.busy:
                self._shelf.release()

    def _judge_presets(self) -> None:
        """Grey the presets that this machine cannot make differ; beside the screen, for it loads torch and multiplies."""
        try:
            from divexplore.engine.probe import can_differ

            judged = presets(can_differ)
        except Exception:  # without a judgement every preset stays open
            logger.warning("the presets could not be judged", exc_info=True)
            return
        self.panel.choices = {**self.panel.choices, "presets": judged}
        if self.panel.request == self._untouched and not self.busy:
            self.panel.request = moved_off(self.panel.request, judged)


def _result(job: Job, what: str) -> Comparison:
    """What a job made, once it is over."""
    job.awaited = True
    try:
        job.wait()
    except KeyboardInterrupt:
        job.stop()
        job.wait()
        raise
    if job.error is not None:
        raise job.error
    if job.result is None:
        raise Refusal(f"a {what} that was stopped before its first step", "one that may start", "Start it again.")
    return job.result
