"""The quickstart as a person meets it: opened in JupyterLab and Notebook 7, run from top to bottom, and clicked on."""

from __future__ import annotations

import re

import pytest
from harness import text_outputs
from playwright.sync_api import expect

NOISE = {"notebook7": "'schema'"}  # a page error of Notebook 7.6 itself, with or without us


@pytest.fixture(params=["lab", "notebook7"])
def kind(request):
    return request.param


def told_split(page):
    """Step, A's token and B's token of the split, as the printed report has them."""
    found = re.search(r"part at step (\d+): A took '(.*?)' .*?B took '(.*?)' ", text_outputs(page))
    return int(found[1]), found[2].strip(), found[3].strip()


def test_a_click_on_the_split_shows_both_top_k_tables(run_notebook, kind):
    page = run_notebook(kind, "01_quickstart.ipynb")
    step, token_a, token_b = told_split(page)
    view = page.get_by_role("region", name="Comparison of two runs").first
    title = view.locator(".dx-title")
    expect(title).to_contain_text(f"step {step} · the split")  # selected already

    view.get_by_role("row", name="Run A").get_by_role("gridcell").first.click()
    expect(title).to_contain_text("step 0")
    split = view.locator("[data-mark=split]")
    expect(split).to_be_visible()
    split.click()
    expect(split).to_have_attribute("aria-selected", "true")
    expect(title).to_contain_text(f"step {step} · the split")

    table = view.get_by_role("table", name="of both sides")
    expect(table).to_be_visible()
    for head in ("rank A", "logit A", "rank B", "logit B"):
        expect(table.get_by_role("columnheader", name=head, exact=True)).to_be_visible()
    for side, token in (("A", token_a), ("B", token_b)):
        chosen = table.get_by_role("row").filter(has=page.locator(f"[title='taken by {side}']"))
        expect(chosen).to_have_count(1)
        expect(chosen).to_contain_text(token)
        expect(chosen.get_by_role("cell").nth(1)).to_have_text(re.compile(r"^-?\d"))  # a logit of A
        expect(chosen.get_by_role("cell").nth(4)).to_have_text(re.compile(r"^-?\d"))  # and of B

    assert page.watch.external == []
    assert [error for error in page.watch.errors if NOISE.get(kind, "\0") not in error] == []
    assert page.watch.console == []
