"""Debian's Chromium through Playwright, cut off from the network, and a watch on what a page does wrong."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from typing import Any

__all__ = ["FLAGS", "Watch", "chromium", "find_chromium"]

FLAGS = (
    "--no-sandbox",  # CI runs as root
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",  # any access to a CDN fails at once and is seen
)
LOCAL = ("http://127.0.0.1", "ws://127.0.0.1", "file:", "data:", "blob:", "about:")


def find_chromium() -> str | None:
    """Path of the browser: ``CHROMIUM``, or the one on the path; ``None`` where there is none."""
    return os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")


@contextlib.contextmanager
def chromium() -> Iterator[Any]:
    """A headless browser; a Playwright `Browser`."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_chromium(), headless=True, args=list(FLAGS))
        try:
            yield browser
        finally:
            browser.close()


class Watch:
    """Collects page errors, console errors and every request that leaves this machine, which it refuses.

    Attributes
    ----------
    errors
        Exceptions that no script caught.
    console
        Messages of level ``error``.
    external
        Addresses that were asked for and refused.
    """

    def __init__(self, page: Any) -> None:
        self.errors: list[str] = []
        self.console: list[str] = []
        self.external: list[str] = []
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("console", lambda message: self.console.append(message.text) if message.type == "error" else None)
        page.context.route(lambda url: not url.startswith(LOCAL), self._refuse)

    def _refuse(self, route: Any) -> None:
        self.external.append(route.request.url[:200])
        route.abort()
