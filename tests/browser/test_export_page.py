from __future__ import annotations

import pytest
from stub import made

from divexplore.view.export import to_html


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    path = tmp_path_factory.mktemp("export") / "comparison.html"
    to_html(made.comparison(texts=made.NASTY, evidence=True), path)
    return path


def test_the_file_opens_without_a_network_asks_for_nothing_and_complains_of_nothing(page, exported):
    asked, said = [], []
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: said.append(message.text))
    page.context.set_offline(True)
    page.goto(exported.as_uri())
    page.wait_for_selector(".dx-bars svg")
    page.wait_for_selector(".dx-timeline svg path")
    page.locator(".dx-row-a [role=gridcell]").nth(20).click()
    assert "step 20" in page.locator(".dx-title").inner_text()
    left = [url for url in asked if not url.startswith(("blob:", "data:"))]
    assert left == [exported.as_uri()]
    assert said == []
    assert page.watch.errors == []


def test_the_charts_follow_the_selection_and_the_timeline_leads_it(page, exported):
    page.goto(exported.as_uri())
    page.wait_for_selector(".dx-bars svg")
    cursor = page.locator(".dx-cursor-a")
    before = cursor.bounding_box()["x"]
    page.locator(".dx-row-a [role=gridcell]").nth(10).click()
    assert cursor.bounding_box()["x"] < before
    bars = page.locator(".dx-bars")
    page.wait_for_function("() => document.querySelectorAll('.dx-bars svg .mark-rect path').length > 0")
    labels = bars.inner_text()
    timeline = page.locator(".dx-chart").bounding_box()
    page.mouse.click(timeline["x"] + timeline["width"] - 12, timeline["y"] + 60)
    column = page.evaluate("document.querySelector('[role=gridcell][aria-selected=true]').dxColumn")
    assert column > 50
    assert page.evaluate("document.activeElement.dxColumn") == column, "the keyboard stays in the streams"
    page.wait_for_function("(old) => document.querySelector('.dx-bars').innerText !== old", arg=labels)


def test_the_cursor_stands_on_the_mark_of_the_split(page, exported):
    page.goto(exported.as_uri())
    page.wait_for_selector(".dx-bars svg")
    rule = page.locator(".dx-chart .mark-rule line").first.bounding_box()
    rules = [box["x"] for box in (line.bounding_box() for line in page.locator(".dx-chart .mark-rule line").all())]
    cursor = page.locator(".dx-cursor-a").bounding_box()
    assert rule is not None
    assert min(abs(x - cursor["x"] - 1) for x in rules) <= 1.5


def test_the_timeline_fits_after_a_change_of_width(page, exported):
    page.goto(exported.as_uri())
    page.wait_for_selector(".dx-bars svg")
    page.set_viewport_size({"width": 700, "height": 800})
    page.wait_for_function("document.querySelector('.dx-chart svg').getBoundingClientRect().width <= 700")
    assert page.evaluate("document.documentElement.scrollWidth") <= 700


def test_where_scripts_are_blocked_the_static_view_is_there(browser, exported):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(exported.as_uri())
    text = page.locator("#divexplore-static").inner_text()
    context.close()
    assert "near tie" in text
    assert "split at step 40" in text
    assert "margin A 0.0625 logits (1 ULP of bfloat16)" in text


def test_the_script_replaces_the_static_view(page, exported):
    page.goto(exported.as_uri())
    page.wait_for_selector("html[data-ready]")
    assert page.locator("#divexplore-static").count() == 0
    assert page.get_by_role("button", name="Export HTML").is_hidden(), "a saved page has no kernel to ask"
