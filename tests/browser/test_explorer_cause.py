"""The strip that asks for the cause, in a page of its own: prices, progress and Stop beside the buttons, without Jupyter."""

from __future__ import annotations

import json

import pytest
from playwright.sync_api import expect
from test_explorer_panel import _PAGE
from test_stub_accessible import JUPYTER

from divexplore.view.explorer_cause import CausePanel
from divexplore.view.explorer_progress import idle_state

PRICES = {"knob": "about 11 runs to the split, about 4 s", "operation": "6 forwards, under 1 s", "layer": "about 1 s"}
RUNNING = {**idle_state(), "phase": "running", "run": "Which knob?", "step": 3, "steps": 11, "unit": "runs"}


@pytest.fixture
def strip(page, tmp_path):
    """Opens the strip with these prices; `host` is a theme of JupyterLab."""

    def go(prices=PRICES, host="light"):
        values = {"prices": prices, "state": idle_state(), "busy": False}
        state = json.dumps({"esm": CausePanel._esm, "values": values}).replace("<", "\\u003c")
        rules = "".join(f"{name}:{value};" for name, value in JUPYTER[host].items())
        path = tmp_path / "strip.html"
        path.write_text(_PAGE.format(css=f":root{{{rules}}} {CausePanel._css}", state=state), encoding="utf-8")
        page.goto(path.as_uri())
        page.wait_for_selector("html[data-ready]")
        return page

    yield go
    assert page.watch.errors == []
    assert page.watch.console == []


def put(page, state):
    page.evaluate("(state) => window.model.set('state', state)", state)


def ask(page, name):
    return page.get_by_role("button", name=name)


def test_each_question_shows_its_price_before_it_is_asked(strip):
    page = strip()
    for price in PRICES.values():
        expect(page.get_by_text(price, exact=True)).to_be_visible()
    ask(page, "Which layer?").click()
    assert page.evaluate("window.sent") == [{"do": "cause", "name": "layer"}]


def test_what_runs_is_told_here_and_stop_ends_it_and_the_focus_stays(strip):
    page = strip()
    knob, stop = ask(page, "Which knob?"), ask(page, "Stop asking")
    expect(stop).to_have_attribute("aria-disabled", "true")
    knob.click()
    put(page, RUNNING)
    expect(page.locator(".dx-figures")).to_have_text("Which knob? · 3 of 11 runs")
    expect(knob).to_be_focused()
    knob.click(force=True)  # Playwright itself waits for what is not disabled
    stop.click()
    assert page.evaluate("window.sent") == [{"do": "cause", "name": "knob"}, {"do": "stop"}]
    put(page, {**idle_state(), "error": {"asked": "a search <b>stopped</b>", "allowed": "", "do": "Run it again."}})
    expect(page.locator(".dx-figures")).to_have_text("a search <b>stopped</b>. Run it again.")
    expect(knob).to_have_attribute("aria-disabled", "false")


def test_a_run_that_was_not_asked_for_here_only_greys_the_buttons(strip):
    page = strip()
    put(page, {**RUNNING, "run": "A", "unit": "steps"})
    expect(page.locator(".dx-figures")).to_be_empty()
    expect(ask(page, "Which knob?")).to_have_attribute("aria-disabled", "true")
    expect(ask(page, "Stop asking")).to_have_attribute("aria-disabled", "true")


def test_without_a_price_nothing_can_be_asked(strip):
    page = strip(prices={})
    ask(page, "Which knob?").click(force=True)
    assert page.evaluate("window.sent") == []


@pytest.mark.parametrize("host", ["light", "dark"])
def test_axe_finds_nothing(strip, host):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    page = strip(host=host)
    ask(page, "Which knob?").click()
    put(page, RUNNING)
    found = axe.run(page, context=".dx-runner").response["violations"]
    assert [(v["id"], [node["html"][:160] for node in v["nodes"][:3]]) for v in found] == []
