from __future__ import annotations

import pytest
import stub
from stub import made

import divexplore as dx

CELL = "[role=gridcell]"


@pytest.fixture
def opened(page, tmp_path):
    """Open a comparison; after the test, nothing may have gone wrong on the page."""

    def go(comparison, how=stub.open_page):
        how(page, tmp_path, comparison)
        return page

    yield go
    assert page.watch.errors == []
    assert page.watch.console == []
    assert page.watch.external == []


def cell(page, side, column):
    return page.locator(f".dx-row-{side} {CELL}").nth(column)


def selected(page):
    return page.evaluate("[...document.querySelectorAll('[role=gridcell][aria-selected=true]')].map((c) => c.dxColumn)")


def column_of_a(comparison, step):
    return comparison.columns["a"].to_list().index(step)


def in_view(page, locator):
    """Whether an element lies inside the streams' window and inside the viewport."""
    return locator.evaluate(
        """(cell) => {
          const box = cell.getBoundingClientRect();
          const streams = cell.closest(".dx-streams").getBoundingClientRect();
          return box.top >= streams.top && box.bottom <= streams.bottom && box.bottom <= innerHeight && box.top >= 0;
        }"""
    )


@pytest.mark.parametrize("size", [(1280, 800), (800, 600)])
@pytest.mark.parametrize(("n_steps", "split"), [(60, 40), (3000, 2100)])
def test_the_split_is_selected_and_in_view_with_equal_tokens_before_it(opened, page, size, n_steps, split):
    page.set_viewport_size({"width": size[0], "height": size[1]})
    opened(made.comparison(n_steps=n_steps, split=split))
    assert selected(page) == [split, split]
    page.wait_for_function("document.querySelector('.dx-spoken').textContent !== ''")
    for side in ("a", "b"):
        assert in_view(page, cell(page, side, split))
    assert in_view(page, cell(page, "a", split - 3))
    assert page.locator(".dx-verdict").bounding_box()["y"] >= 0
    assert page.evaluate("document.documentElement.scrollWidth") <= size[0], "scrolls sideways"


def test_a_click_fills_the_inspector_and_tells_the_model(opened, page):
    opened(made.comparison(), stub.open_live)
    cell(page, "b", 20).click()
    assert page.evaluate("model.get('selected')") == 20
    assert page.evaluate("saved") == 1
    assert selected(page) == [20, 20]
    assert "step 20" in page.locator(".dx-title").inner_text()
    assert [request["ask"] for request in page.evaluate("asked")] == ["vega"], "a click asks Python nothing"


def test_a_press_selects_and_only_the_cell_takes_the_focus(opened, page):
    """The notebook restyles every token when its own cell takes the focus, as it would by the browser's part of a press."""
    opened(made.comparison(), stub.open_live)
    page.evaluate(
        """() => {
          document.body.tabIndex = 0;
          window.taken = [];
          addEventListener("focusin", (event) => taken.push(event.target.dxColumn ?? event.target.tagName));
        }"""
    )
    for column in (20, 22):
        cell(page, "a", column).hover()
        page.mouse.down()
        assert selected(page) == [column, column]
        page.mouse.up()
    assert page.evaluate("taken") == [20, 22]
    cell(page, "a", 24).click(button="right")
    assert selected(page) == [22, 22], "the menu's button selects nothing"
    assert page.evaluate("saved") == 2, "a press and its click are one selection"


def test_a_click_without_a_press_selects_as_well(opened, page):
    """Assistive tools send no press."""
    opened(made.comparison())
    cell(page, "b", 20).evaluate("(cell) => cell.click()")
    assert selected(page) == [20, 20]


def test_a_selection_from_python_is_painted(opened, page):
    opened(made.comparison(), stub.open_live)
    page.evaluate("model.set('selected', 7)")
    assert selected(page) == [7, 7]
    assert "step 7" in page.locator(".dx-title").inner_text()


def test_both_cells_of_a_column_are_one_above_the_other(opened, page):
    opened(made.comparison(n_steps=300, split=100, texts=made.NASTY))
    boxes = page.evaluate(
        """() => ["a", "b"].map((side) => [...document.querySelectorAll(`.dx-row-${side} [role=gridcell]`)].map((cell) => {
             const box = cell.getBoundingClientRect();
             return [Math.round(box.left), Math.round(box.right), Math.round(box.top)];
           }))"""
    )
    assert len(boxes[0]) == len(boxes[1]) > 300
    for column, (a, b) in enumerate(zip(*boxes, strict=True)):
        assert a[:2] == b[:2], f"column {column}"
        assert b[2] - a[2] == 22, f"column {column}"


def test_a_gap_of_the_alignment_is_a_blank_that_can_be_seen(opened, page):
    comparison = made.comparison()
    gap = comparison.columns["a"].to_list().index(None)
    opened(comparison)
    blank = cell(page, "a", gap)
    assert "dx-gap" in blank.get_attribute("class")
    assert blank.inner_text().strip() == ""
    assert blank.bounding_box()["width"] > 8
    assert blank.evaluate("(c) => getComputedStyle(c).backgroundImage") != "none"
    blank.click()
    assert "no token in this column" in page.locator(".dx-card-a").inner_text()


def test_after_the_split_no_number_crosses_the_sides(opened, page):
    opened(made.comparison())
    at_split = page.locator(".dx-top thead").inner_text()
    assert "B − A" in at_split
    cell(page, "a", 50).click()
    assert "not comparable" in page.locator(".dx-note").first.inner_text()
    assert "B − A" not in page.locator(".dx-top thead").inner_text()
    assert page.locator(".dx-card-pair").count() == 0


def test_what_was_forced_after_the_split_says_so(opened, page):
    opened(made.comparison(evidence=True))
    assert page.locator(".dx-card-pair h4").inner_text() == "between the sides"
    cell(page, "a", 44).click()
    assert page.locator(".dx-card-pair h4").inner_text() == "between the sides, B forced on A's tokens"
    assert "gap of A" not in page.locator(".dx-card-pair").inner_text()


def test_a_token_that_one_side_lacks_is_below_k(opened, page):
    comparison = made.comparison()
    opened(comparison)
    missing = set(comparison.a.top_ids[40].tolist()) - set(comparison.b.top_ids[40].tolist())
    page.get_by_role("button", name="all recorded tokens").click()
    assert page.locator(".dx-below").count() == 2 * len(missing) > 0
    assert page.locator(".dx-top tbody tr").count() == 20 + len(missing)


def test_the_table_says_what_was_recorded(opened, page):
    comparison = made.comparison()
    opened(comparison)
    row = page.locator(".dx-top tbody tr").first.locator("td").all_inner_texts()
    assert row[0] == "1"
    assert float(row[1]) == comparison.a.top_logits[40, 0]
    text = page.locator(".dx-card-a").inner_text()
    assert "0.0625 logits = 1 ULP (bfloat16)" in text.replace("\n", " ")


def test_evidence_shows_where_it_was_measured_and_is_absent_elsewhere(opened, page):
    opened(made.comparison())
    assert page.get_by_role("tab").all_inner_texts() == ["Logits", "Snapshot"]
    comparison = made.comparison(evidence=True)
    opened(comparison)
    assert page.get_by_role("tab").all_inner_texts() == ["Logits", "Cascade", "Snapshot"]
    pair = page.locator(".dx-card-pair").inner_text()
    for word in ("noise floor", "KLD(A‖B)", "referee", "epsilon ÷ floor"):
        assert word in pair
    page.get_by_role("tab", name="Cascade").click()
    assert (
        "1 flip at step 40; 8 of 19 later tokens differ, 1 of them independently"
        in page.locator(".dx-cascade").inner_text()
    )
    page.get_by_role("button", name="step 45").click()
    assert selected(page) == [column_of_a(comparison, 45)] * 2


def test_the_snapshot_puts_first_what_differs(opened, page):
    opened(made.comparison())
    page.get_by_role("tab", name="Snapshot").click()
    bright = page.locator(".dx-snapshot .dx-bright")
    assert bright.locator("th").all_inner_texts() == ["batch size", "pads"]
    assert bright.first.locator("td").all_inner_texts() == ["1", "8"]


def test_nasty_tokens_are_shown_as_text(opened, page):
    opened(made.comparison(texts=made.NASTY, split=30, n_steps=60))
    page.wait_for_timeout(50)  # an error handler of an image would run by now
    assert page.evaluate("window.harmed") is None
    assert page.locator(".dx-view img, .dx-view script, .dx-grid b").count() == 0
    shown = [cell(page, "a", 3 + index).inner_text() for index in range(len(made.NASTY))]
    assert shown[0] == "</script>"
    assert shown[1].startswith("<img src=x onerror=")
    assert shown[3] == "⟨202E⟩evil"
    assert shown[5] == "\U0001f469\u200d\U0001f680", "joined emoji stay whole"
    assert shown[6] == "⟨200B⟩"
    assert shown[7] == "◌\u0301"
    assert shown[10] == "⏎"
    assert shown[11] == "→|"
    assert shown[12] == "␣␣␣"
    widths = page.evaluate(
        "[...document.querySelectorAll('[role=gridcell]')].map((c) => c.getBoundingClientRect().width)"
    )
    assert min(widths) >= 8, "zero-width tokens can be seen and clicked"
    cell(page, "a", 3 + 8).click()
    assert "(bytes e2 82)" in page.locator(".dx-title").inner_text()


@pytest.mark.parametrize(
    "options", [{"n_steps": 0, "split": None}, {"n_steps": 1, "split": None}, {"split": None, "drift": 99}]
)
def test_runs_without_steps_or_differences_have_a_view(opened, page, options):
    opened(made.comparison(**options))
    assert page.locator(".dx-view").count() == 1
    assert page.get_by_role("button", name="Go to the split").is_disabled()


def test_showing_another_comparison_builds_one_new_view_and_leaves_no_listener(opened, page):
    opened(made.comparison(), stub.open_live)
    before = page.evaluate("model.counts()")
    state = stub.state_of(stub.summarise(made.comparison(n_steps=30, split=20)))
    page.evaluate("(s) => { model.set('meta', s.meta); model.set('selected', 20); model.set('data', s.data); }", state)
    assert page.locator(".dx-view").count() == 1
    assert selected(page) == [20, 20]
    assert page.evaluate("model.counts()") <= before + 1  # one request for the chart runtime may still wait
    page.evaluate("control.abort()")
    assert page.evaluate("model.counts()") <= 2


def test_two_displays_of_a_view_follow_each_other_and_ask_for_the_runtime_once(opened, page):
    opened(made.comparison(), stub.open_live)
    page.evaluate("display()")
    first, second = page.locator(".dx-view").all()
    first.locator(f".dx-row-b {CELL}").nth(9).click()
    assert "step 9" in second.locator(".dx-title").inner_text()
    page.get_by_text("drawing the timeline").nth(1).wait_for()
    page.wait_for_function("[...document.querySelectorAll('.dx-spoken')].every((e) => e.textContent !== '')")
    page.wait_for_function("asked.length > 0")
    assert [request["ask"] for request in page.evaluate("asked")] == ["vega"]


def test_export_is_a_request_with_an_id_whose_answer_is_a_download(opened, page):
    opened(made.comparison(), stub.open_live)
    page.get_by_role("button", name="Export HTML").click()
    request = page.evaluate("asked.find((r) => r.ask === 'export')")
    assert request["selected"] == 40
    with page.expect_download() as waiting:
        page.evaluate("(id) => model.answer({answer: id, name: 'saved.html'}, '<p>page</p>')", request["id"])
    assert waiting.value.suggested_filename == "saved.html"
    assert "saved.html is offered" in page.locator(".dx-status").inner_text()


def test_an_error_of_the_kernel_is_shown_under_the_button(opened, page):
    opened(made.comparison(), stub.open_live)
    page.get_by_role("button", name="Export HTML").click()
    page.evaluate("model.answer({answer: asked.find((r) => r.ask === 'export').id, error: 'no space left'})")
    page.get_by_text("No export: no space left").wait_for()


def test_without_a_kernel_what_needs_one_is_hidden(opened, page):
    opened(made.comparison(), stub.open_live)
    page.evaluate("model.set('live', false)")
    assert page.get_by_role("button", name="Export HTML").is_hidden()


def test_report_and_code_go_to_the_clipboard(opened, page):
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    comparison = made.comparison()
    opened(comparison)
    page.get_by_role("button", name="Copy report").click()
    page.get_by_text("The report is on the clipboard.").wait_for()
    assert page.evaluate("navigator.clipboard.readText()") == comparison.to_markdown()
    cell(page, "a", 5).click()
    page.get_by_role("button", name="Copy as code").click()
    page.get_by_text("The code is on the clipboard.").wait_for()
    assert page.evaluate("navigator.clipboard.readText()").endswith("\ndx.ComparisonView(comparison, selected=5)\n")


def test_the_copied_code_makes_the_view_again(opened, page, fairy_tales):
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    pair = {"a": {"dtype": "bfloat16", "batch_size": 1}, "b": {"dtype": "bfloat16", "batch_size": 8}}
    comparison = dx.compare(fairy_tales, "The giant", **pair, max_new_tokens=8)
    opened(comparison)
    cell(page, "a", 5).click()
    page.get_by_role("button", name="Copy as code").click()
    page.get_by_text("The code is on the clipboard.").wait_for()
    *lines, last = page.evaluate("navigator.clipboard.readText()").strip().splitlines()
    names = {}
    exec("\n".join(lines), names)
    view = eval(last, names)
    assert view.selected == 5
    assert names["comparison"].a.table["row_hash"].to_list() == comparison.a.table["row_hash"].to_list()
    assert view.meta["verdict"]["name"] == comparison.verdict


def test_colouring_by_probability_changes_cells_and_legend(opened, page):
    opened(made.comparison())
    before = cell(page, "a", 30).evaluate("(c) => getComputedStyle(c).backgroundColor")
    page.get_by_label("colour by").select_option("probability")
    assert "p = 1" in page.locator(".dx-legend").inner_text()
    assert cell(page, "a", 30).evaluate("(c) => getComputedStyle(c).backgroundColor") != before
    assert selected(page) == [40, 40]


def test_blanks_can_be_shown(opened, page):
    opened(made.comparison())
    assert cell(page, "a", 20).inner_text().startswith(" ")
    page.get_by_role("button", name="Show blanks").click()
    assert cell(page, "a", 20).inner_text().startswith("␣")
