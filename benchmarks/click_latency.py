"""How long from a click on a token to the painted inspector: p50 and p95 over real clicks on an exported page.

Run with ``python benchmarks/click_latency.py [--steps 4000] [--clicks 60]``; needs Chromium. The time runs from the
browser's own stamp of the mouse event to the end of the frame in which cells, table, cursor and bars are all new.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests" / "browser"), str(ROOT / "tests" / "unit" / "view")]

import made  # noqa: E402 - made-up comparisons live beside the tests
from chromium import chromium  # noqa: E402

from divexplore.view.export import to_html  # noqa: E402

# The bars are drawn asynchronously: the last frame is the one after the chart's own change of the page.
WATCH = """() => {
  window.times = [];
  const bars = document.querySelector(".dx-bars");
  const frame = () => new Promise((done) => requestAnimationFrame(() => {
    const channel = new MessageChannel();
    channel.port1.onmessage = () => done();
    channel.port2.postMessage(0);
  }));
  addEventListener("click", async (event) => {  // before the view's own listener
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
    options = parser.parse_args()
    comparison = made.comparison(n_steps=options.steps, split=options.steps // 2, evidence=True)
    rng = np.random.default_rng(1)
    columns = rng.choice(len(comparison.columns), options.clicks, replace=False).tolist()
    with tempfile.TemporaryDirectory() as folder, chromium() as browser:
        path = Path(folder) / "comparison.html"
        to_html(comparison, path)
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        page.goto(path.as_uri())
        page.wait_for_selector(".dx-bars svg .mark-rect path", state="attached")
        page.evaluate(WATCH)
        for count, column in enumerate(columns, start=1):
            page.evaluate(PLACE, column)  # the blocks that come near change their heights at the next frame
            page.mouse.click(*page.evaluate(PLACE, column))
            page.wait_for_function("(n) => window.times.length === n", arg=count)
        times = page.evaluate("window.times")
    print(f"{options.clicks} clicks among {options.steps} steps of two runs, exported page, ms from the mouse event")
    for name in ("table", "bars"):
        p50, p95 = np.percentile([one[name] for one in times], [50, 95])
        print(f"  {name:<6} painted  p50 {p50:5.1f}  p95 {p95:5.1f}")


if __name__ == "__main__":
    main()
