"""A stored comparison under Voila: no editor, no cells, a kernel behind the page, and the same view on it."""

from __future__ import annotations

import harness
import nbformat
import pytest
from playwright.sync_api import expect

import divexplore as dx

CELL = 'import divexplore as dx\n\ndx.Comparison.load("data/quickstart")'
# with or without us: two style sheets that Voila's template links on a CDN, and Notebook 7's extension, which it cannot load
LINKED = "cdn.jsdelivr.net/npm/@fortawesome/fontawesome-free"
SAID = ("Failed to load resource: net::ERR_FAILED", "Error: The getter for the shared module is not a function")


@pytest.fixture
def rendered(page, voila, notebooks):
    """A notebook of one cell that displays the stored comparison, as Voila renders it."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(CELL)])
    nbformat.write(notebook, notebooks / "stored.ipynb")
    harness.open_rendered(page, voila, "stored.ipynb")
    return page


def test_the_view_renders_and_a_click_on_another_token_changes_the_inspector(rendered, notebooks):
    stored = dx.Comparison.load(notebooks / "data" / "quickstart")
    view = rendered.get_by_role("region", name="Comparison of two runs")
    expect(view).to_have_count(1)
    expect(view.locator(".dx-verdict")).to_contain_text("near tie")
    title = view.locator(".dx-title")
    expect(title).to_contain_text(f"step {stored.split.step} · the split")

    view.get_by_role("row", name="Run B").get_by_role("gridcell").nth(7).click()
    expect(title).to_contain_text("step 7")
    row = view.get_by_role("table", name="of both sides").locator("tbody tr").first.locator("td")
    expect(row.nth(1)).to_have_text(f"{stored.a.top_logits[7, 0]:.6g}")

    saved = rendered.locator(".dx-saved")
    expect(saved).to_have_count(1)  # what Voila renders first, and the view hides
    expect(saved).to_be_hidden()

    expect(view.locator(".dx-bars svg")).to_be_visible()  # the chart runtime came from the kernel
    assert rendered.watch.errors == []
    assert [url for url in rendered.watch.external if LINKED not in url] == []
    assert rendered.watch.console.count(SAID[0]) == len(rendered.watch.external)  # what was refused above, no more
    assert [text for text in rendered.watch.console if not text.startswith(SAID)] == []
