"""One job at a time beside the kernel's own thread: a new one stops the one that runs, and waits for its end."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Job", "Worker"]

logger = logging.getLogger(__name__)


@dataclass(eq=False)
class Job:
    """What the worker was given, and what became of it.

    Parameters
    ----------
    work
        Called once with this job, in the worker's thread; it asks `stopped` after each step.
    """

    work: Callable[[Job], Any]
    result: Any = None
    """What `work` returned."""
    error: Exception | None = None
    """What it raised."""
    replaced: bool = False
    """Whether a later job took its place: then nothing of it may reach the screen."""
    awaited: bool = False
    """Whether a cell waits for it."""
    _stop: threading.Event = field(default_factory=threading.Event)
    _ended: threading.Event = field(default_factory=threading.Event)

    def stop(self) -> None:
        """Ask the job to end after the step that it is at."""
        self._stop.set()

    def stopped(self) -> bool:
        """Whether someone asked it to end."""
        return self._stop.is_set()

    @property
    def ended(self) -> bool:
        """Whether it is over."""
        return self._ended.is_set()

    def wait(self, seconds: float | None = None) -> bool:
        """Wait for its end; false where `seconds` went by first."""
        return self._ended.wait(seconds)


class Worker:
    """Runs jobs one after the other, each in a thread that does not keep the process alive.

    Callbacks of widgets come on changing threads, so the jobs are handed over under a lock.

    Parameters
    ----------
    failed
        Called in the worker's thread with what a job raised; this is the one place where such an error is caught.
    """

    def __init__(self, failed: Callable[[Job, Exception], None]) -> None:
        self._failed = failed
        self._lock = threading.Lock()
        self._latest: Job | None = None

    @property
    def busy(self) -> bool:
        """Whether a job is running or waits to."""
        latest = self._latest
        return latest is not None and not latest.ended

    @property
    def latest(self) -> Job | None:
        """The job that was started last."""
        return self._latest

    def start(self, work: Callable[[Job], Any], *, last: bool = False) -> Job:
        """Run `work` as soon as the job before it is over, which is asked to stop.

        Parameters
        ----------
        last
            It runs even where a later job took its place: what must be done, such as letting go of a model.
        """
        job = Job(work)
        with self._lock:
            before, self._latest = self._latest, job
        if before is not None:
            before.replaced = True
            before.stop()
        thread = threading.Thread(target=self._run, args=(job, before, last), name="divexplore-worker", daemon=True)
        thread.start()
        return job

    def when_idle(self, act: Callable[[], None]) -> None:
        """Call `act` once no job runs or waits any more, in a thread of its own; no job is stopped for it."""

        def wait() -> None:
            while (latest := self._latest) is not None and not latest.ended:
                latest.wait()
            act()

        threading.Thread(target=wait, name="divexplore-idle", daemon=True).start()

    def stop(self) -> None:
        """Ask the job that runs to end."""
        latest = self._latest
        if latest is not None:
            latest.stop()

    def _run(self, job: Job, before: Job | None, last: bool) -> None:
        try:
            if before is not None:
                before.wait()
            if last or not job.replaced:
                job.result = job.work(job)
        except Exception as error:
            logger.debug("a job of the explorer failed", exc_info=True)
            job.error = error
            self._failed(job, error)
        finally:
            job._ended.set()
