"""Take the README's picture: ``python tests/browser/picture.py docs/explorer.png`` runs the panel in JupyterLab."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import harness
import nbformat
from chromium import chromium

CELL = """import divexplore as dx

explorer = dx.Explorer("fairy-tales", "The giant")
explorer.run()
explorer"""
KERNEL = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
VIEWPORT = {"width": 1320, "height": 1800}
PATIENCE_MS = 300_000


def take(target: Path) -> None:
    """Run the panel on the preset pair and keep what JupyterLab shows of it."""
    folder = Path(tempfile.mkdtemp())
    notebook = nbformat.v4.new_notebook(metadata=KERNEL, cells=[nbformat.v4.new_code_cell(CELL)])
    nbformat.write(notebook, folder / "explorer.ipynb")
    with chromium() as browser, harness.server("lab", folder) as lab:
        page = browser.new_page(viewport=VIEWPORT, device_scale_factor=1.25)
        page.set_default_timeout(PATIENCE_MS)
        harness.open_notebook(page, lab, "explorer.ipynb")
        harness.run_all(page)
        view = page.get_by_role("region", name="Comparison of two runs")
        view.locator(".dx-timeline svg").wait_for()
        view.locator(".dx-bars svg").wait_for()
        target.parent.mkdir(parents=True, exist_ok=True)
        page.locator(".jp-OutputArea-output:visible").last.screenshot(path=target)


if __name__ == "__main__":
    take(Path(sys.argv[1]))
