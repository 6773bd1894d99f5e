"""The Explorer in JupyterLab, with comms over subshells and without: run, stop, errors, another token, off the page."""

from __future__ import annotations

import json
import re

import harness
import pytest
from playwright.sync_api import expect

CELL = """import divexplore as dx
import divexplore.view.explorer
divexplore.view.explorer.AWAY = 1
explorer = dx.Explorer(max_new_tokens=48)
explorer.panel.request = {**explorer.panel.request, "evidence": "fast"}
explorer"""
FREED = """import time
for _ in range(100):  # with subshells, the page's message takes a way of its own
    if explorer._shelf._owned is None:
        break
    time.sleep(0.1)
print("owned:", explorer._shelf._owned)"""


@pytest.fixture(scope="module", params=["perCommTarget", "disabled"])
def served(request, browser, tmp_path_factory):
    """JupyterLab with comms over subshells, or without them, on a folder with one notebook."""
    root = tmp_path_factory.mktemp("explorer")
    cells = [
        {"cell_type": "code", "id": name, "execution_count": None, "metadata": {}, "outputs": [], "source": source}
        for name, source in (("explorer", CELL), ("freed", FREED))
    ]
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    notebook = {"cells": cells, "metadata": kernel, "nbformat": 4, "nbformat_minor": 5}
    (root / "explorer.ipynb").write_text(json.dumps(notebook), encoding="utf-8")
    settings = {"@jupyterlab/apputils-extension:kernels-settings": {"commsOverSubshells": request.param}}
    with harness.server("lab", root, settings) as running:
        yield running


@pytest.fixture(scope="module", autouse=True)
def patience():
    """A first run imports torch and loads the model: longer than Playwright waits unasked."""
    expect.set_options(timeout=60_000)
    yield
    expect.set_options(timeout=5_000)


@pytest.fixture
def opened(page, served):
    """The notebook with its first cell run: an Explorer on which nothing ran yet."""
    harness.open_notebook(page, served, "explorer.ipynb")
    page.evaluate("() => window.jupyterapp.commands.execute('notebook:run-cell-and-select-next')")
    expect(page.get_by_role("region", name="Explorer")).to_be_visible()
    yield page
    harness.close_kernels(served)
    assert page.watch.errors == []
    assert page.watch.external == []


def run(page):
    page.get_by_role("region", name="Explorer").get_by_role("button", name="Run").click()


def view(page, index=0):
    return page.get_by_role("region", name="Comparison of two runs").nth(index)


def test_run_shows_the_split_selected_and_in_view_and_leaves_the_focus(opened):
    page = opened
    run(page)
    split = view(page).locator(".dx-row-a [data-mark=split], .dx-row-a .dx-split").first
    expect(split).to_be_visible()
    expect(split).to_have_attribute("aria-selected", "true")
    expect(split).to_be_in_viewport()
    expect(page.get_by_role("region", name="Explorer").get_by_role("button", name="Run")).to_be_focused()
    expect(page.get_by_role("button", name="edit")).to_have_attribute("aria-expanded", "false")
    expect(page.get_by_text(re.compile(r"48 \+ 48 steps in"))).to_be_visible()

    page.get_by_role("combobox", name="Preset").select_option("left-pad")
    run(page)
    expect(page.locator(".dx-view .dx-side").nth(1)).to_contain_text("3 pads")
    expect(page.get_by_role("region", name="Comparison of two runs")).to_have_count(1)


def test_stop_keeps_what_was_recorded_and_run_goes_on_from_there(opened):
    page = opened
    page.get_by_role("textbox", name="Steps").fill("2000")
    run(page)
    expect(page.locator(".dx-figures")).to_contain_text("of 2000 steps")
    page.get_by_role("button", name="Stop", exact=True).click()
    expect(view(page).get_by_text("partial").first).to_be_visible()
    recorded = int(view(page).get_by_role("grid").get_attribute("aria-colcount"))
    assert 0 < recorded < 2000
    expect(page.get_by_role("button", name="Stop", exact=True)).to_have_attribute("aria-disabled", "true")

    page.get_by_role("textbox", name="Steps").fill("5")
    run(page)
    expect(page.get_by_text(re.compile(r"^5 \+ 5 steps in"))).to_be_visible()
    expect(view(page).get_by_text("partial")).to_have_count(0)


def test_an_error_is_told_with_what_to_do_and_the_next_run_clears_it(opened):
    page = opened
    prompt = page.get_by_role("textbox", name="Prompt")
    prompt.fill("")
    run(page)
    alert = page.get_by_role("alert").filter(has_text="an empty prompt")
    expect(alert).to_contain_text("Write at least one word.")
    prompt.fill("The giant")
    prompt.press("Enter")
    expect(view(page)).to_be_visible()
    expect(alert).to_have_count(0)


def test_another_token_is_followed_in_a_view_below(opened):
    page = opened
    run(page)
    branch = page.get_by_role("region", name="Another token")
    branch.get_by_role("button", name="Continue").click()
    expect(page.get_by_role("region", name="Comparison of two runs")).to_have_count(2)
    expect(branch).to_contain_text("below: A as it was")
    expect(view(page, 1).locator(".dx-split").first).to_be_visible()


def test_the_first_differing_operation_is_found_by_a_button_and_shown_in_its_tab(opened):
    page = opened
    run(page)
    cause = page.get_by_role("region", name="The cause")
    expect(cause).to_contain_text("and 6 forwards")
    cause.get_by_role("button", name="Which operation?").click()
    expect(page.get_by_role("tab", name="Cause")).to_have_attribute("aria-selected", "true")
    panel = view(page).get_by_role("tabpanel")
    expect(panel).to_contain_text("the first is")
    expect(panel.get_by_role("row").nth(1)).to_contain_text("layers.")
    expect(cause.get_by_role("button", name="Which operation?")).to_be_focused()
    expect(page.get_by_role("tab", name="Cause")).to_be_in_viewport()

    cause.get_by_role("button", name="Which layer?").click()
    expect(panel.get_by_role("heading", name="Which layer?")).to_be_in_viewport()
    expect(panel.locator(".dx-layer-chart svg")).to_be_visible()
    expect(panel).to_contain_text("the first is")  # the earlier answer stays


@pytest.mark.parametrize("under_way", [False, True])
def test_off_the_page_the_model_is_freed(opened, under_way):
    page = opened
    if under_way:  # nobody is there to press Stop any more
        page.get_by_role("textbox", name="Steps").fill("100000")
    run(page)
    if under_way:
        expect(page.locator(".dx-figures")).to_contain_text("of 100000 steps")
    else:
        expect(view(page)).to_be_visible()
    page.evaluate(
        """async () => { const notebook = window.jupyterapp.shell.currentWidget.content;
        notebook.activeCellIndex = 0;
        await window.jupyterapp.commands.execute('notebook:clear-cell-output');
        notebook.activeCellIndex = 1;
        await window.jupyterapp.commands.execute('notebook:run-cell'); }"""
    )
    assert "owned: None" in harness.text_outputs(page)
