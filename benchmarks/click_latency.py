"""How long from a click on a token to the painted inspector: p50 and p95 over real clicks, exported and in JupyterLab.

Run with ``python benchmarks/click_latency.py [--steps 4000] [--clicks 60]``; needs Chromium. The time runs from the
browser's own stamp of the mouse event to the end of the frame in which cells, table, cursor and bars are all new.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import numpy as np

ROOT = Path(__file__).parents[1]
MADE = str(ROOT / "tests" / "unit" / "view")
sys.path[:0] = [str(ROOT / "tests" / "browser"), MADE]

import harness  # noqa: E402
import made  # noqa: E402 - made-up comparisons live beside the tests
from chromium import chromium  # noqa: E402

from divexplore.view.export import to_html  # noqa: E402

CELL = """import sys
sys.path.insert(0, {!r})
import made
steps = {}
made.comparison(n_steps=steps, split=steps // 2, evidence=True)"""
KERNEL = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
PATIENCE_MS = 120_000

# The bars are drawn asynchronously: the last frame is the one after the chart's own change of the page.
WATCH = """() => {
  window.times = [];
  const bars = document.querySelector(".dx-bars");
  const frame = () => new Promise((done) => requestAnimationFrame(() => {
    const channel = new MessageChannel();
    channel.port1.onmessage = () => done();
    channel.port2.postMessage(0);
  }));
  addEventListener("mousedown", async (event) => {  // the first event of a click, before the view hears of it
    const table = frame().then(() => performance.now());
    const drawn = new Promise((done) => {
      const observer = new MutationObserver(() => { observer.disconnect(); frame().then(() => done(performance.now())); });
      observer.observe(bars, { childList: true, subtree: true, attributes: true, characterData: true });
    });
    window.times.push({ table: (await table) - event.timeStamp, bars: (await drawn) - event.timeStamp });
  }, true);
}"""

PLACE = """async (column) => {
  const cells = [...document.querySelectorAll(".dx-row-a [role=gridcell]")];
  cells[column].scrollIntoView({ block: "center" });
  await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
  const box = cells[column].getBoundingClientRect();
  return [box.x + box.width / 2, box.y + box.height / 2];
}"""


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--clicks", type=int, default=60)
    parser.add_argument("--only", choices=["exported page", "live JupyterLab"], help="one of the two places")
    options = parser.parse_args()
    columns = np.random.default_rng(1).choice(options.steps, options.clicks, replace=False).tolist()
    places = {"exported page": exported, "live JupyterLab": live}
    print(f"{options.clicks} clicks among {options.steps} steps of two runs, ms from the mouse event")
    with tempfile.TemporaryDirectory() as folder, chromium() as browser:
        for place, opened in places.items():
            if options.only not in (None, place):
                continue
            page = browser.new_page(viewport={"width": 1280, "height": 800})
            page.set_default_timeout(PATIENCE_MS)
            with opened(page, Path(folder), options.steps):
                times = clicked(page, columns)
            for name in ("table", "bars"):
                p50, p95 = np.percentile([one[name] for one in times], [50, 95])
                print(f"  {place:<16} {name:<6} painted  p50 {p50:5.1f}  p95 {p95:5.1f}", flush=True)
            page.close()


@contextlib.contextmanager
def exported(page: Any, folder: Path, steps: int) -> Iterator[None]:
    """The page that `Comparison.to_html` writes, over ``file://``."""
    path = folder / "comparison.html"
    to_html(made.comparison(n_steps=steps, split=steps // 2, evidence=True), path)
    page.goto(path.as_uri())
    yield


@contextlib.contextmanager
def live(page: Any, folder: Path, steps: int) -> Iterator[None]:
    """A notebook in JupyterLab with a living kernel, which hears of each click."""
    notebook = nbformat.v4.new_notebook(metadata=KERNEL, cells=[nbformat.v4.new_code_cell(CELL.format(MADE, steps))])
    served = folder / "served"
    served.mkdir()
    nbformat.write(notebook, served / "view.ipynb")
    with harness.server("lab", served) as lab:
        harness.open_notebook(page, lab, "view.ipynb")
        harness.run_all(page)
        yield


def clicked(page: Any, columns: list[int]) -> list[dict[str, float]]:
    """Times of one real click a column."""
    page.wait_for_selector(".dx-bars svg .mark-rect path", state="attached")
    page.evaluate(WATCH)
    for count, column in enumerate(columns, start=1):
        page.evaluate(PLACE, column)  # the blocks that come near change their heights at the next frame
        page.mouse.click(*page.evaluate(PLACE, column))
        page.wait_for_function("(n) => window.times.length === n", arg=count)
    return page.evaluate("window.times")


if __name__ == "__main__":
    main()
