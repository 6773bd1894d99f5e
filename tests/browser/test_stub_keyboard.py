from __future__ import annotations

import pytest
import stub
from stub import made


@pytest.fixture
def opened(page, tmp_path):
    stub.open_page(page, tmp_path, made.comparison(evidence=True))
    yield page
    assert page.watch.errors == []
    assert page.watch.console == []


def column(page):
    return page.evaluate("document.querySelector('[role=gridcell][aria-selected=true]').dxColumn")


def focused(page):
    return page.evaluate("[document.activeElement.dxSide ?? null, document.activeElement.dxColumn ?? null]")


def reach_grid(page):
    """Tab until a cell of the grid has the focus."""
    for _ in range(20):
        page.keyboard.press("Tab")
        if focused(page)[0]:
            return
    pytest.fail("the grid cannot be reached by Tab")


def test_opening_never_takes_the_focus(opened):
    assert opened.evaluate("document.activeElement === document.body")


def test_every_key_of_the_list_does_what_it_says(opened):
    reach_grid(opened)
    assert focused(opened) == ["a", 40]
    steps = {"ArrowLeft": 39, "ArrowRight": 40, "d": 12, "s": 40, "n": 41, "p": 40, "Home": 0, "End": 61}
    for key, expected in steps.items():
        opened.keyboard.press(key)
        assert column(opened) == expected, key
        assert focused(opened) == ["a", expected], key
    opened.keyboard.press("ArrowDown")
    assert focused(opened) == ["b", 61]
    opened.keyboard.press("Home")
    assert focused(opened) == ["b", 0]
    opened.keyboard.press("ArrowUp")
    assert focused(opened) == ["a", 0]


def test_the_help_lists_the_keys_and_gives_the_focus_back(opened):
    reach_grid(opened)
    opened.keyboard.press("?")
    rows = opened.locator("dialog[open] tr")
    assert rows.count() == 11
    assert "first drift" in opened.locator("dialog[open]").inner_text()
    opened.keyboard.press("Escape")
    assert opened.locator("dialog[open]").count() == 0
    assert focused(opened) == ["a", 40]


def test_letters_work_in_the_grid_only_and_shortcuts_of_the_browser_pass(opened):
    opened.get_by_role("tab", name="Logits").focus()
    opened.keyboard.press("d")
    assert column(opened) == 40
    reach = opened.locator(".dx-row-a [aria-selected=true]")
    reach.focus()
    opened.keyboard.press("Control+d")
    assert column(opened) == 40


def test_one_cell_can_be_reached_by_tab_and_has_the_long_name(opened):
    assert opened.locator("[role=gridcell][tabindex='0']").count() == 1
    reach_grid(opened)
    named = opened.locator("[role=gridcell][aria-label]")
    assert named.count() == 1
    name = named.get_attribute("aria-label")
    assert name.startswith("run A, step 40, “")
    assert name.endswith("the split")
    assert "probability 0." in name
    opened.keyboard.press("ArrowLeft")
    assert opened.locator("[role=gridcell][aria-label]").count() == 1


def test_the_focused_cell_stays_in_view_and_the_page_does_not_move(page, tmp_path):
    stub.open_page(page, tmp_path, made.comparison(n_steps=2000, split=1000))
    page.wait_for_function("document.querySelector('.dx-spoken').textContent !== ''")
    reach_grid(page)
    for key in ("Home", "End", "s"):
        page.keyboard.press(key)
        inside = page.evaluate(
            """() => { const c = document.activeElement.getBoundingClientRect();
              const s = document.querySelector(".dx-streams").getBoundingClientRect();
              return c.top >= s.top && c.bottom <= s.bottom + 1; }"""
        )
        assert inside, key
    assert page.evaluate("scrollY") == 0


def test_arrows_move_between_tabs(opened):
    opened.get_by_role("tab", name="Logits").focus()
    opened.keyboard.press("ArrowRight")
    assert opened.evaluate("document.activeElement.textContent") == "Cascade"
    assert opened.locator(".dx-cascade").is_visible()
    opened.keyboard.press("ArrowLeft")
    opened.keyboard.press("ArrowLeft")
    assert opened.evaluate("document.activeElement.textContent") == "Snapshot"


def test_everything_that_takes_the_focus_keeps_its_keys_from_the_notebook(opened):
    bare = opened.evaluate(
        """() => [...document.querySelectorAll(".dx-view :is(button, select, summary, input, [tabindex], dialog)")]
          .filter((e) => e.dataset.lmSuppressShortcuts !== "true").map((e) => e.outerHTML.slice(0, 80))"""
    )
    assert bare == []


def test_buttons_announce_where_they_went(opened):
    opened.get_by_role("button", name="Go to the first drift").click()
    assert "step 12" in opened.locator("[aria-live=polite]").inner_text()
    assert "first drift" in opened.locator("[aria-live=polite]").text_content()
