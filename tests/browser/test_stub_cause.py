"""The tab Cause on the stub: what is there, in which order, as text, and that nobody is left out."""

from __future__ import annotations

import dataclasses

import pytest
import stub
from playwright.sync_api import expect
from stub import made, made_cause
from test_stub_accessible import JUPYTER

from divexplore.view import vega


@pytest.fixture
def opened(page, tmp_path):
    """The tab Cause of a comparison; `guards` names one that failed, `parts` are those of the cause."""

    def go(*, host=None, scheme="light", runtime=b"", guards="", how=None, texts=(" where", " to"), parts=None):
        page.emulate_media(color_scheme=scheme)
        rules = "".join(f"{name}:{value};" for name, value in JUPYTER.get(host, {}).items())
        page.add_init_script(
            f"addEventListener('DOMContentLoaded', () => {{ document.documentElement.style.cssText = '{rules}' }})"
        )
        comparison = made_cause.with_guards(made.comparison(evidence=True), guards)
        if parts is not None:
            whole = made_cause.cause(texts)
            empty = dict.fromkeys({"attribution", "operations", "layers"} - set(parts))
            comparison = dataclasses.replace(comparison, cause=dataclasses.replace(whole, **empty))
        if how is None:
            stub.open_page(page, tmp_path, comparison, runtime)
        else:
            how(page, tmp_path, comparison)
        page.get_by_role("tab", name="Cause").click()
        return page

    yield go
    assert page.watch.errors == []
    assert page.watch.console == []
    assert page.watch.external == []


ALL = ("attribution", "operations", "layers")


def table(page, name):
    return page.get_by_role("table", name=name)


def test_without_cause_and_guards_the_tab_is_absent(page, tmp_path):
    stub.open_page(page, tmp_path, made.comparison(evidence=True))
    assert "Cause" not in page.get_by_role("tab").all_inner_texts()


def test_guards_alone_are_open_and_say_how_to_ask(opened):
    page = opened()
    panel = page.get_by_role("tabpanel")
    expect(panel).to_contain_text("Nobody has asked yet")
    expect(panel).to_contain_text("11 of 12 checks held, 1 not known")
    rows = panel.get_by_role("row")
    expect(rows).to_have_count(1 + 12)
    expect(rows.nth(1)).to_contain_text("observer")
    expect(rows.nth(1)).to_contain_text("not known")
    assert panel.locator(".dx-guard").all_inner_texts().count(" held") == 11, "a word beside each picture"
    assert panel.locator(".dx-guard svg").count() == 12


def test_a_guard_that_failed_comes_first_with_what_it_does(opened):
    page = opened(guards="weights", parts=ALL)
    panel = page.get_by_role("tabpanel")
    assert panel.inner_text().startswith("Did both runs do what was asked? 10 of 12 checks held, 1 failed, 1 not known")
    first = panel.get_by_role("row").nth(1)
    expect(first).to_contain_text("weights")
    expect(first).to_contain_text("failed")
    expect(first).to_contain_text("So: structural.")


def test_knobs_have_their_row_their_sentence_and_the_number_of_runs(opened):
    page = opened(parts=["attribution"])
    panel = page.get_by_role("tabpanel")
    expect(panel).to_contain_text("batch_size is enough to flip the token within 41 steps.")
    expect(panel).to_contain_text("Found in 11 runs.")
    rows = table(page, "Each differing field alone").locator("tbody tr")
    assert rows.nth(0).locator("th, td").all_inner_texts()[1:] == ["1", "8", "2", "0.156", "40", "near tie"]
    expect(rows.nth(0)).to_contain_text("enough")
    assert rows.nth(1).locator("td").all_inner_texts() == ["as it is", "1", "never", "0", "none", "identical"]
    asked = table(page, "What about the batch").locator("tbody tr")
    expect(asked).to_have_count(4)
    expect(asked.nth(3)).to_contain_text("not run: no room")
    assert page.get_by_role("heading", name="Which operation?").count() == 0


def test_operations_begin_with_the_first_difference_and_grow(opened):
    page = opened(parts=["operations"])
    rows = table(page, "Outputs in the order").locator("tbody tr")
    expect(rows).to_have_count(8)
    expect(rows.first).to_have_class("dx-bright")
    expect(rows.first).to_contain_text("first")
    expect(rows.first.locator("th, td").first).to_have_text("10")
    expect(rows.nth(4)).to_contain_text("equal again")
    widths = [rows.nth(index).locator(".dx-growth").bounding_box()["width"] for index in (0, 1, 2, 3, 5)]
    assert widths == sorted(widths)
    assert widths[0] < widths[-1]
    page.get_by_role("button", name="all 30 rows").click()
    expect(rows).to_have_count(30)
    expect(page.get_by_role("tabpanel")).to_contain_text(
        "6 were fed with a difference and put out equal bits; 1 could not"
    )


def test_one_chart_joins_layers_logits_and_the_flip(opened):
    page = opened(parts=["layers"], runtime=vega.runtime())
    chart = page.locator(".dx-layer-chart svg")
    expect(chart).to_be_visible()
    expect(chart).to_have_attribute("aria-hidden", "true")
    texts = chart.locator("text").all_text_contents()
    assert {"flip", "epsilon", "layer (0: embedding)"} <= set(texts)
    cells = chart.locator(".mark-rect.role-mark path")
    found = made_cause.layers()
    assert cells.count() == found.drift.filter(found.drift["max_abs"] > 0).height
    page.get_by_text("Layer by layer").click()
    rows = table(page, "0 is the embedding").locator("tbody tr")
    expect(rows).to_have_count(9)
    expect(page.locator(".dx-layer-chart + details .dx-bright th")).to_have_text("3")


def test_the_layer_chart_fits_after_a_change_of_width(opened):
    page = opened(parts=["layers"], runtime=vega.runtime())
    chart = page.locator(".dx-layer-chart svg")
    expect(chart).to_be_visible()
    before = chart.bounding_box()["width"]
    page.set_viewport_size({"width": 620, "height": 800})
    page.wait_for_function(
        "(before) => document.querySelector('.dx-layer-chart svg')?.clientWidth < before", arg=before
    )
    assert chart.count() == 1
    assert chart.bounding_box()["width"] <= 620
    assert page.evaluate("document.documentElement.scrollWidth") <= 620


def test_without_the_chart_runtime_the_table_stands_in_its_place(opened):
    page = opened(parts=["layers"])
    expect(table(page, "0 is the embedding")).to_be_visible()
    expect(page.locator(".dx-layer-chart")).to_have_count(0)


def test_candidates_are_shown_as_text(opened):
    page = opened(parts=ALL, texts=('<img src=x onerror="window.harmed = 1">', "\u202eevil"))
    page.wait_for_timeout(50)  # an error handler of an image would run by now
    assert page.evaluate("window.harmed") is None
    assert page.locator(".dx-view img").count() == 0
    panel = page.get_by_role("tabpanel")
    expect(panel).to_contain_text("<img␣src=x␣onerror=")
    expect(panel).to_contain_text("⟨202E⟩evil")


def test_the_open_tab_is_a_trait_that_python_may_set_and_that_outlives_a_new_comparison(opened):
    page = opened(parts=ALL, how=stub.open_live)
    assert page.evaluate("model.get('tab')") == "Cause"
    page.evaluate("model.set('tab', 'Snapshot')")
    expect(page.get_by_role("tab", name="Snapshot")).to_have_attribute("aria-selected", "true")
    state = stub.state_of(stub.summarise(made_cause.with_guards(made.comparison(n_steps=30, split=20))))
    page.evaluate(
        "(s) => { model.set('meta', s.meta); model.set('selected', 20); model.set('tab', 'Cause'); model.set('data', s.data); }",
        state,
    )
    expect(page.get_by_role("tab", name="Cause")).to_have_attribute("aria-selected", "true")
    assert page.get_by_role("tab").all_inner_texts() == ["Logits", "Cause", "Snapshot"]
    page.evaluate("model.set('tab', 'no such tab')")
    expect(page.get_by_role("tab", name="Logits")).to_have_attribute("aria-selected", "true")


@pytest.mark.parametrize(
    "theme", [{"scheme": "light"}, {"scheme": "dark"}, {"host": "light"}, {"host": "dark"}], ids=str
)
@pytest.mark.parametrize("width", [1280, 640])
def test_axe_finds_nothing(opened, page, theme, width):
    page.set_viewport_size({"width": width, "height": 800})
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    page = opened(parts=ALL, guards="weights", **theme)
    found = axe.run(page, context=".dx-view").response["violations"]
    assert [(v["id"], [node["html"][:120] for node in v["nodes"][:3]]) for v in found] == []


@pytest.mark.parametrize("size", [(1280, 800), (800, 600), (640, 400)])
def test_nothing_scrolls_sideways(opened, page, size):
    page.set_viewport_size({"width": size[0], "height": size[1]})
    opened(parts=ALL, guards="weights", runtime=vega.runtime())
    expect(page.locator(".dx-layer-chart svg")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= size[0]
