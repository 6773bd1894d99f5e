"""A notebook that is opened again, its kernel gone: the readable page stands where the widget was, and hid until then."""

from __future__ import annotations

import re

import harness
import nbformat
import pytest
from playwright.sync_api import expect

import divexplore as dx

STORED = 'import divexplore as dx\n\ndx.Comparison.load("data/quickstart")'
BOXED = """import divexplore as dx
import ipywidgets

from divexplore.view.comparison_view import view_of

ipywidgets.VBox([view_of(dx.Comparison.load("data/quickstart"))])"""
EXPLORER = """import divexplore as dx

explorer = dx.Explorer(max_new_tokens=6)
explorer.panel.request = {**explorer.panel.request, "evidence": "fast"}
explorer"""
KERNEL = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
NOISE = {"notebook7": "'schema'"}  # a page error of Notebook 7.6 itself, with or without us
GONE = re.compile("model not found")  # what Jupyter logs about a widget of another kernel
RUN_MS = 60_000  # a first run imports torch and loads the model


@pytest.fixture
def displayed(page, notebooks, request):
    """`displayed(kind, name, *sources)` opens a notebook with these cells in a host and runs it; its kernels end later."""
    used = []

    def show(kind, name, *sources):
        cells = [nbformat.v4.new_code_cell(source) for source in sources]
        nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata=KERNEL), notebooks / name)
        on = request.getfixturevalue(kind)
        used.append(on)
        harness.open_notebook(page, on, name)
        harness.run_all(page)
        return on

    yield show
    for on in used:
        harness.close_kernels(on)


def view(page):
    return page.get_by_role("region", name="Comparison of two runs")


def saved(page):
    return page.locator(".dx-saved")


def save(page):
    page.evaluate("() => window.jupyterapp.commands.execute('docmanager:save')")


def reopen(page, on, name):
    """As on another day: the kernel that made the widgets is gone."""
    harness.close_kernels(on)
    harness.open_notebook(page, on, name)


def assert_readable(shown, stored):
    expect(shown).to_be_visible()
    expect(shown).to_contain_text(f"near tie · split at step {stored.split.step}")
    for trace in (stored.a, stored.b):
        expect(shown).to_contain_text("".join(trace.table["text"].to_list()[stored.split.step :]).strip())


def assert_quiet(page, kind="lab"):
    assert page.watch.external == []
    assert [text for text in page.watch.console if not GONE.search(text)] == []
    assert [error for error in page.watch.errors if NOISE.get(kind, "\0") not in error] == []


@pytest.mark.parametrize("kind", ["lab", "notebook7"])
def test_the_page_hides_while_the_view_is_there_and_stands_in_its_place_afterwards(page, notebooks, displayed, kind):
    stored = dx.Comparison.load(notebooks / "data" / "quickstart")
    on = displayed(kind, "mine.ipynb", STORED)
    expect(view(page)).to_be_visible()
    expect(saved(page)).to_have_count(1)
    expect(saved(page)).to_be_hidden()
    expect(page.locator(".jp-OutputArea-child").nth(1)).to_be_hidden()  # nor is its place left empty
    save(page)

    reopen(page, on, "mine.ipynb")  # trusted: it was run here
    expect(view(page)).to_have_count(0)
    assert_readable(saved(page), stored)
    error = page.get_by_text("Error displaying widget")
    expect(error).to_have_count(1)  # so the host did look for the widget
    expect(error).to_be_hidden()

    mailed = nbformat.read(notebooks / "mine.ipynb", as_version=4)
    mailed.metadata["from"] = "elsewhere"  # another file than the one that was signed
    nbformat.write(mailed, notebooks / "mailed.ipynb")
    reopen(page, on, "mailed.ipynb")
    expect(page.locator(".jp-OutputArea")).to_contain_text("A saved view")
    expect(page.locator("[data-for]")).to_have_count(0)  # untrusted: the host cleans the page
    assert_readable(page.locator(".jp-OutputArea-output").nth(1), stored)
    expect(page.get_by_text("Error displaying widget")).to_have_count(0)
    assert_quiet(page, kind)


def test_a_view_displayed_twice_hides_both_pages_and_one_in_a_box_has_none(page, displayed):
    displayed("lab", "twice.ipynb", STORED.replace("dx.C", "comparison = dx.C"), "comparison", "comparison", BOXED)
    expect(view(page)).to_have_count(3)
    expect(saved(page)).to_have_count(2)
    for index in range(2):
        expect(saved(page).nth(index)).to_be_hidden()
    assert_quiet(page)


def test_a_closed_view_leaves_its_page(page, displayed):
    closing = "from divexplore.view.comparison_view import view_of\n\nview_of(comparison).close()"
    displayed("lab", "closed.ipynb", f"{STORED.replace('dx.C', 'comparison = dx.C')}\ncomparison", closing)
    expect(view(page)).to_have_count(0)
    expect(saved(page)).to_be_visible()


@pytest.fixture(params=["perCommTarget", "disabled"])
def explorers(request, browser, notebooks):
    """JupyterLab with comms over subshells, or without them."""
    settings = {"@jupyterlab/apputils-extension:kernels-settings": {"commsOverSubshells": request.param}}
    with harness.server("lab", notebooks, settings) as running:
        yield running


def test_an_explorer_leaves_what_it_showed_last(page, explorers, displayed):
    on = displayed("explorers", "explored.ipynb", EXPLORER)
    panel = page.get_by_role("region", name="Explorer")
    expect(panel).to_be_visible()
    expect(saved(page)).to_contain_text("nothing was run")
    expect(saved(page)).to_be_hidden()
    panel.get_by_role("button", name="Run").click()
    expect(page.get_by_text(re.compile(r"^6 \+ 6 steps in"))).to_be_visible(timeout=RUN_MS)
    verdict = view(page).locator(".dx-verdict strong").first.inner_text()
    expect(saved(page)).to_contain_text(verdict)
    expect(saved(page)).to_be_hidden()
    save(page)

    reopen(page, on, "explored.ipynb")
    expect(saved(page)).to_be_visible()
    for words in (verdict, "prompt: The giant", "batch 8"):
        expect(saved(page)).to_contain_text(words)
    error = page.get_by_text("Error displaying widget")
    expect(error).to_have_count(1)
    expect(error).to_be_hidden()
    assert_quiet(page)
