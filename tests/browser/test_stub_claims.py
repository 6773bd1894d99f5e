"""What the view claims where something else than rounding parted the runs: it says no more than was compared."""

from __future__ import annotations

import polars as pl
import pytest
import stub
import torch
from tiny_models import tiny

import divexplore as dx
from divexplore.models import load_model
from divexplore.view import vega


@pytest.fixture
def opened(page, tmp_path):
    """Open a comparison with its charts; after the test, nothing may have gone wrong on the page."""

    def go(comparison):
        stub.open_page(page, tmp_path, comparison, runtime=vega.runtime())
        return page

    yield go
    assert page.watch.errors == []
    assert page.watch.console == []


def phrases(page):
    return page.locator(".dx-headline .dx-phrase").all_inner_texts()


def test_a_token_that_a_penalty_chose_does_not_lead(opened):
    comparison = dx.compare(
        "fairy-tales", "The giant", {"dtype": "float32"}, {"dtype": "float32", "repetition_penalty": 1.3}, 60
    )
    assert comparison.verdict == "policy"
    headline = phrases(opened(comparison))
    assert "leads by" in headline[1]
    assert "below the best" in headline[2]
    assert "leads" not in headline[2]


def test_other_prompts_are_told_and_nothing_is_compared(opened):
    runs = [dx.run("fairy-tales", prompt, {"dtype": "float32"}, 5) for prompt in ("The giant", "A giant")]
    page = opened(dx.compare_traces(*runs))
    assert phrases(page) == ["other prompts, nothing else is compared"]
    assert page.locator(".dx-prompt").all_inner_texts() == ["prompt of A The giant", "prompt of B A giant"]
    assert "other prompts" in page.locator(".dx-note").first.inner_text()
    assert "B − A" not in page.locator(".dx-top").inner_text()


def test_a_run_without_one_valid_step_has_no_empty_parts(opened, page):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    net = tiny("llama", 64, 3)
    with torch.no_grad():
        net.lm_head.weight[5] = float("nan")
    page = opened(dx.compare(load_model(net), [1, 2, 3], {}, {"seed": 1}, 4))
    assert phrases(page)[0] == "A's logits are not finite at step 0"
    assert page.get_by_role("tab").all_inner_texts() == ["Cause", "Snapshot"]
    assert page.locator(".dx-timeline").count() == 0
    assert page.locator("h3:empty").count() == 0
    found = axe.run(page, context=".dx-view").response["violations"]
    assert [v["id"] for v in found] == []


def test_threads_that_differ_are_bright_on_both_sides(opened):
    sides = [{"dtype": "float32", "num_threads": threads} for threads in (1, 2)]
    page = opened(dx.compare("fairy-tales", "The giant", *sides, 4, evidence="fast"))
    bright = page.locator(".dx-side b:not(.dx-letter)").all_inner_texts()
    assert bright == ["num threads 1", "num threads 2"]


def test_a_timeline_spans_all_steps_whatever_was_recorded_of_them(opened, page):
    comparison = stub.made.comparison(n_steps=10, split=5, drift=2)
    blank = {name: pl.lit(None, pl.Float64) for name in ("margin", "margin_ulps")}
    a, b = (dx.Trace(trace.table.with_columns(**blank), trace.meta) for trace in (comparison.a, comparison.b))
    page = opened(dx.compare_traces(a, b))
    page.wait_for_selector(".dx-timeline svg")
    assert page.locator(".dx-timeline .role-legend text", has_text="epsilon").count() == 0
    box = page.locator(".dx-timeline svg").bounding_box()
    assert page.locator(".dx-timeline .role-axis-title", has_text="logits").count() == 0, "no ticks without a value"
    for x, step in ((box["x"] + 60, 0), (box["x"] + box["width"] - 8, 9)):
        page.mouse.click(x, box["y"] + box["height"] / 2)
        page.wait_for_function(f"document.querySelector('.dx-title').textContent.startsWith('step {step}')")
        cursor = page.locator(".dx-cursor-a").bounding_box()
        assert box["x"] <= cursor["x"] <= box["x"] + box["width"]


def test_one_step_is_a_point_and_one_tick(opened, page):
    page = opened(dx.compare("fairy-tales", "The giant", max_new_tokens=1, evidence="fast"))
    page.wait_for_selector(".dx-timeline svg")
    axis = page.locator(".dx-timeline .role-axis-label").first.locator("text").all_text_contents()
    assert axis == ["0"]
    assert page.locator(".dx-timeline svg path[d^='M']:not([d=''])").count() >= 2


def test_the_legend_has_both_hues_and_the_unit_of_what_is_shown(opened, page, tmp_path):
    page = opened(stub.made.comparison(evidence=True))
    hues = page.locator(".dx-legend .dx-shades").evaluate_all(
        "(all) => all.map((s) => getComputedStyle(s.lastElementChild).backgroundColor)"
    )
    assert len(set(hues)) == 3, "epsilon, A and B"
    assert "then margin ≥ 4" in page.locator(".dx-legend").inner_text()
    assert "0 logits" in page.locator(".dx-legend").inner_text()


def test_home_shows_the_whole_line_of_the_prompt(opened, page):
    page.set_viewport_size({"width": 800, "height": 600})
    page = opened(stub.made.comparison(n_steps=600, split=400))
    page.locator("[role=gridcell][tabindex='0']").focus()
    page.keyboard.press("Home")
    assert page.locator(".dx-streams").evaluate("(s) => s.scrollTop") == 0
