"""What the tests of the Explorer share: a stand-in for a run, and what a browser would send."""

from __future__ import annotations

import threading

import made

__all__ = ["PATIENCE", "Stand", "ask", "settle", "states"]

PATIENCE = 60  # seconds, against a hang only


class Stand:
    """Stands in for `dx.compare`: each call waits until it is let go, or stopped."""

    def __init__(self):
        self.entered = threading.Semaphore(0)
        self.go = threading.Event()
        self.requests, self.active, self.most = [], 0, 0

    def __call__(self, model, prompt, a, b, steps, *, stop, progress, **_):
        self.active += 1
        self.most = max(self.most, self.active)
        self.requests.append(prompt)
        self.entered.release()
        while not self.go.wait(0.01) and not stop():
            pass
        self.active -= 1
        progress("A", 1, steps, prompt)
        return made.comparison(n_steps=len(prompt), split=None)


def states(explorer):
    """Every state that the panel goes through from now on."""
    seen = []
    explorer.panel.observe(lambda change: seen.append(change["new"]), "state")
    return seen


def ask(explorer, **changes):
    """What the browser sends when Run is pressed."""
    explorer.panel._handle_custom_msg({"do": "run", "request": {**explorer.panel.request, **changes}}, [])


def settle(explorer):
    assert explorer._worker._latest.wait(PATIENCE)
