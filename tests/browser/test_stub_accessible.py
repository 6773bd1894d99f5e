from __future__ import annotations

import itertools

import pytest
import stub
from stub import made

from divexplore.view import vega

# Themes as the hosts give them: JupyterLab's variables on the root, or the system's scheme.
JUPYTER = {
    "light": {
        "--jp-layout-color1": "#fff",
        "--jp-content-font-color1": "rgba(0,0,0,.87)",
        "--jp-brand-color1": "#1976d2",
    },
    "dark": {"--jp-layout-color1": "#111", "--jp-content-font-color1": "#fff", "--jp-brand-color1": "#64b5f6"},
}


@pytest.fixture
def themed(page, tmp_path):
    def go(scheme="light", forced="none", host=None, **options):
        page.emulate_media(color_scheme=scheme, forced_colors=forced, reduced_motion="reduce")
        if host:
            rules = "".join(f"{name}:{value};" for name, value in JUPYTER[host].items())
            page.add_init_script(
                f"addEventListener('DOMContentLoaded', () => {{ document.documentElement.style.cssText = '{rules}' }})"
            )
        stub.open_page(page, tmp_path, made.comparison(evidence=True, texts=made.NASTY, split=40), **options)
        return page

    return go


@pytest.mark.parametrize("tab", ["Logits", "Cascade", "Snapshot"])
@pytest.mark.parametrize(
    "theme",
    [{"scheme": "light"}, {"scheme": "dark"}, {"forced": "active"}, {"host": "light"}, {"host": "dark"}],
    ids=str,
)
def test_axe_finds_nothing(themed, theme, tab):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    page = themed(**theme)
    page.get_by_role("tab", name=tab).click()
    page.locator(".dx-evidence summary").click()
    for details in page.locator(".dx-snapshot summary").all():
        details.click()
    found = axe.run(page, context=".dx-view").response["violations"]
    assert [(v["id"], [node["html"][:120] for node in v["nodes"][:3]]) for v in found] == []


def test_axe_finds_nothing_with_charts(themed):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    page = themed(runtime=vega.runtime())
    page.wait_for_selector(".dx-bars svg")
    found = axe.run(page, context=".dx-view").response["violations"]
    assert [(v["id"], [node["html"][:120] for node in v["nodes"][:3]]) for v in found] == []


def test_the_dark_theme_of_the_host_is_taken(themed):
    page = themed(host="dark")
    colours = page.locator(".dx-view").evaluate(
        "(e) => [getComputedStyle(e).backgroundColor, getComputedStyle(e).color]"
    )
    assert colours == ["rgb(17, 17, 17)", "rgb(255, 255, 255)"]


def test_the_system_scheme_is_taken_where_no_host_has_a_theme(themed):
    page = themed(scheme="dark")
    red = page.locator(".dx-view").evaluate("(e) => getComputedStyle(e).backgroundColor.match(/\\d+/)[0]")
    assert int(red) < 60


def test_forced_colours_keep_split_differences_and_selection_apart(themed):
    page = themed(forced="active")
    style = "(c) => { const s = getComputedStyle(c); return [s.borderTopWidth, s.borderBottomWidth, s.outlineStyle]; }"
    cells = page.locator(".dx-row-a [role=gridcell]")
    assert cells.nth(40).evaluate(style)[:2] == ["2px", "2px"]
    assert cells.nth(40).evaluate(style)[2] == "solid"
    differing = page.locator(".dx-row-a .dx-differs:not(.dx-split)").first
    assert differing.evaluate(style)[:2] == ["0px", "2px"]


def test_forced_colours_leave_verdict_and_legend_to_be_read(themed):
    page = themed(forced="active")
    style = "(e) => { const s = getComputedStyle(e); return [s.forcedColorAdjust, s.color, s.backgroundColor]; }"
    adjust, ink, ground = page.locator(".dx-chip").first.evaluate(style)
    assert adjust == "none", "the browser lays a plate of its own behind the words"
    assert ink != ground
    swatches = page.locator(".dx-legend .dx-swatch").evaluate_all(f"(all) => all.map({style})")
    assert len({ground for _, _, ground in swatches}) > 2


@pytest.mark.parametrize(("drift", "split"), [(0, 1), (5, 9), (58, 59)])
def test_the_words_at_drift_and_split_stay_apart(page, tmp_path, drift, split):
    page.set_viewport_size({"width": 800, "height": 600})
    comparison = made.comparison(evidence=True, drift=drift, split=split)
    stub.open_page(page, tmp_path, comparison, runtime=vega.runtime())
    page.wait_for_selector(".dx-timeline svg")
    box = "(e) => { const b = e.getBoundingClientRect(); return [b.left, b.right]; }"
    left, right = (
        page.locator(".dx-timeline svg text", has_text=word).evaluate(box) for word in ("first drift", "split")
    )
    plot = page.locator(".dx-timeline svg").evaluate(box)
    assert plot[0] <= left[0] < left[1] <= right[0] < right[1] <= plot[1], (left, right, plot)


def test_reduced_motion_moves_nothing(themed):
    page = themed()
    assert page.locator(".dx-button").first.evaluate("(b) => getComputedStyle(b).transitionDuration") == "0s"


def test_at_twice_the_zoom_nothing_scrolls_sideways_and_nothing_overlaps(themed, page):
    page.set_viewport_size({"width": 640, "height": 400})  # 1280 × 800 at 200 %
    themed(runtime=vega.runtime())
    page.wait_for_selector(".dx-timeline svg")
    assert page.evaluate("document.documentElement.scrollWidth") <= 640
    boxes = page.evaluate(
        """() => [...document.querySelector(".dx-view").children]
          .filter((e) => !e.matches(".dx-spoken, dialog"))
          .map((e) => { const b = e.getBoundingClientRect(); return [e.className, b.top, b.bottom]; })"""
    )
    for (name, _, bottom), (below, top, _) in itertools.pairwise(boxes):
        assert top >= bottom - 0.5, f"{below} begins above the end of {name}"
