"""The run panel's own module in a page of its own: what it sends, shows and how it reads, without Jupyter."""

from __future__ import annotations

import json

import pytest
from playwright.sync_api import expect
from test_stub_accessible import JUPYTER

import divexplore as dx
from divexplore.config import PRESETS
from divexplore.errors import Refusal
from divexplore.view.explorer_panel import BranchPanel, RunPanel, complaint
from divexplore.view.explorer_progress import idle_state

_PAGE = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>panel</title><style>{css}</style></head>
<body><main id="place"></main><script type="module">
const {{ esm, values }} = {state};
const listeners = {{}};
window.sent = [];
window.model = {{
  get: (name) => values[name],
  set(name, value) {{ values[name] = value; for (const listener of listeners[`change:${{name}}`] ?? []) listener(); }},
  on: (name, listener) => (listeners[name] ??= new Set()).add(listener),
  off: (name, listener) => listeners[name]?.delete(listener),
  save_changes() {{}},
  send: (content) => window.sent.push(content),
}};
const {{ default: widget }} = await import(URL.createObjectURL(new Blob([esm], {{ type: "text/javascript" }})));
widget.render({{ model: window.model, el: document.getElementById("place"), signal: new AbortController().signal }});
document.documentElement.dataset.ready = "true";
</script></body></html>"""

RUNNING = {
    **idle_state(),
    "phase": "running",
    "run": "A",
    "step": 41,
    "steps": 128,
    "rate": 51.7,
    "left": 1.68,
    "tails": {"a": "a king who had <b>her</b>", "b": "\u202eevil"},
}


@pytest.fixture
def panel(page, tmp_path):
    """Opens the panel of a fresh Explorer; `host` is a theme of JupyterLab, `changes` go into its traits."""

    def go(host="light", **changes):
        made = dx.Explorer().panel
        values = {name: getattr(made, name) for name in ("choices", "request", "state", "editing")} | changes
        state = json.dumps({"esm": RunPanel._esm, "values": values}).replace("<", "\\u003c")
        rules = "".join(f"{name}:{value};" for name, value in JUPYTER.get(host, {}).items())
        path = tmp_path / "panel.html"
        path.write_text(_PAGE.format(css=f":root{{{rules}}} {RunPanel._css}", state=state), encoding="utf-8")
        page.goto(path.as_uri())
        page.wait_for_selector("html[data-ready]")
        return page

    yield go
    assert page.watch.errors == []
    assert page.watch.console == []
    assert page.watch.external == []


def request(page):
    return page.evaluate("window.model.get('request')")


def put(page, state):
    page.evaluate("(state) => window.model.set('state', state)", state)


def test_run_sends_what_the_panel_shows(panel):
    page = panel()
    page.get_by_role("textbox", name="Prompt").fill("The old king")
    page.get_by_role("textbox", name="Steps").fill("12")
    page.get_by_role("combobox", name="Preset").select_option("left-pad")
    page.get_by_role("textbox", name="batch size, B").fill("4")
    page.get_by_role("combobox", name="cache, A").select_option(label="off")
    page.get_by_role("button", name="Run").click()
    sent = page.evaluate("window.sent")
    assert [message["do"] for message in sent] == ["run"]
    asked = sent[0]["request"]
    left_pad = PRESETS["left-pad"]
    assert asked["prompt"] == "The old king"
    assert asked["steps"] == 12
    assert asked["preset"] == "own"
    assert asked["a"] == {**left_pad.a.to_dict(), "use_cache": False}
    assert asked["b"] == {**left_pad.b.to_dict(), "batch_size": 4}


def test_a_preset_fills_both_sides_and_is_recognised_when_typed(panel):
    page = panel()
    batch = page.get_by_role("textbox", name="batch size, B")
    preset = page.get_by_role("combobox", name="Preset")
    batch.fill("9")
    expect(preset).to_have_value("own")
    batch.fill("8")
    expect(preset).to_have_value("batch")
    batch.fill("")
    assert "batch_size" not in request(page)["b"]


def test_what_is_no_number_goes_to_python_as_it_was_typed(panel):
    page = panel()
    page.get_by_role("textbox", name="batch size, A").fill("1.5")
    assert request(page)["a"]["batch_size"] == "1.5"


def test_a_preset_that_cannot_differ_is_greyed_with_its_reason(panel):
    page = panel()
    page.evaluate(
        """() => { const choices = structuredClone(window.model.get("choices"));
        choices.presets[5].reason = "one core here"; window.model.set("choices", choices); }"""
    )
    greyed = page.locator("option:disabled")
    expect(greyed).to_have_count(1)
    expect(greyed).to_contain_text("one core here")
    expect(page.get_by_role("combobox", name="Preset")).to_have_value("batch")


def test_only_what_differs_is_bright(panel):
    page = panel()
    bright = page.locator(".dx-differing .dx-knob-name")
    expect(bright).to_have_text(["batch size"])
    expect(page.locator(".dx-summary b:not(.dx-letter)")).to_have_text(["batch size 1", "batch size 8"])


def test_a_run_under_way_shows_speed_time_left_and_last_words_as_text(panel):
    page = panel()
    put(page, RUNNING)
    expect(page.locator(".dx-figures")).to_have_text("A · 41 of 128 steps · 52 steps/s · 2 s left")
    expect(page.locator(".dx-tail").first).to_have_text("a king who had <b>her</b>")
    assert page.locator(".dx-tail").nth(1).evaluate("(e) => getComputedStyle(e).unicodeBidi") == "isolate"
    assert page.get_by_role("progressbar").evaluate("(bar) => bar.value") == pytest.approx(41 / 128)
    page.get_by_role("button", name="Stop", exact=True).click()
    assert page.evaluate("window.sent") == [{"do": "stop"}]
    put(page, {**RUNNING, "phase": "done", "note": "128 + 128 steps in 4.0 s"})
    expect(page.get_by_role("progressbar")).to_be_hidden()
    expect(page.get_by_text("128 + 128 steps in 4.0 s")).to_be_visible()


def test_stop_without_a_run_sends_nothing_and_keeps_the_focus(panel):
    page = panel()
    stop = page.get_by_role("button", name="Stop", exact=True)
    expect(stop).to_have_attribute("aria-disabled", "true")
    stop.click(force=True)  # Playwright itself waits for what is not disabled
    assert page.evaluate("window.sent") == []
    put(page, RUNNING)
    stop.focus()
    put(page, idle_state())
    expect(stop).to_be_focused()


def test_enter_in_the_prompt_runs_and_shift_enter_does_not(panel):
    page = panel()
    prompt = page.get_by_role("textbox", name="Prompt")
    prompt.fill("one")
    prompt.press("Shift+Enter")
    prompt.press_sequentially("two")
    assert page.evaluate("window.sent") == []
    prompt.press("Enter")
    assert page.evaluate("window.sent[0].request.prompt") == "one\ntwo"


def test_typing_is_not_disturbed_by_what_the_kernel_tells(panel):
    page = panel()
    prompt = page.get_by_role("textbox", name="Prompt")
    prompt.fill("The giant")
    prompt.press("Home")
    put(page, RUNNING)
    prompt.press_sequentially("Now ")
    put(page, {**RUNNING, "step": 42})
    expect(prompt).to_be_focused()
    expect(prompt).to_have_value("Now The giant")


def test_an_error_is_an_alert_that_says_what_to_do(panel):
    page = panel()
    error = complaint(Refusal("<img src=x onerror=alert(1)>", "a text", "Write at least one word."))
    put(page, {**idle_state(), "error": error})
    alert = page.get_by_role("alert")
    expect(alert).to_contain_text("<img src=x onerror=alert(1)>")
    expect(alert).to_contain_text("Write at least one word.")
    put(page, RUNNING)
    expect(alert).to_be_empty()


def test_every_control_has_a_name_and_keeps_its_keys_from_the_notebook(panel):
    page = panel()
    page.get_by_text("more…").click()
    controls = page.locator("button, select, input, textarea, summary")
    assert controls.count() > 30
    for control in controls.all():
        assert control.get_attribute("data-lm-suppress-shortcuts") == "true"


def test_tab_goes_through_the_request_in_its_order(panel):
    page = panel()
    page.get_by_role("combobox", name="Model").focus()
    seen = []
    for _ in range(6):
        page.keyboard.press("Tab")
        seen.append(page.evaluate("(document.activeElement.labels?.[0] ?? document.activeElement).textContent"))
    assert seen == ["Prompt", "Steps", "Preset", "Run", "Stop", "fold"]


@pytest.mark.parametrize("width", [1280, 800, 640, 400])
def test_nothing_scrolls_sideways(panel, page, width):
    page.set_viewport_size({"width": width, "height": 600})
    panel()
    put(page, RUNNING)
    page.get_by_text("more…").click()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    for box in page.locator(".dx-runner .dx-button, .dx-runner select, .dx-runner input").all():
        edges = box.bounding_box()
        assert edges is None or edges["x"] + edges["width"] <= width


@pytest.mark.parametrize("host", ["light", "dark", "none"])
@pytest.mark.parametrize("forced", ["none", "active"])
def test_axe_finds_nothing(panel, page, host, forced):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    scheme = "dark" if host == "dark" else "light"
    page.emulate_media(color_scheme=scheme, forced_colors=forced, reduced_motion="reduce")  # no colour in transition
    panel(host)
    page.get_by_text("more…").click()
    put(page, {**RUNNING, "error": complaint(ValueError("wrong"))})
    found = axe.run(page, context=".dx-runner").response["violations"]
    assert [(v["id"], [node["html"][:160] for node in v["nodes"][:3]]) for v in found] == []


def test_tokens_that_could_not_be_seen_are_offered_visibly(page, tmp_path):
    shown = {"\n": "⏎", "\u200b": "⟨200B⟩", "  ": "␣␣", "": "∅", "<b>": "<b>", " hat": " hat"}
    tokens = [{"id": place, "text": text, "probability": 0.1} for place, text in enumerate(shown)]
    values = {"offer": {"sides": [{"side": "a", "step": 3, "tokens": tokens}]}, "busy": False, "note": ""}
    state = json.dumps({"esm": BranchPanel._esm, "values": values}).replace("<", "\\u003c")
    path = tmp_path / "branch.html"
    path.write_text(_PAGE.format(css=BranchPanel._css, state=state), encoding="utf-8")
    page.goto(path.as_uri())
    offered = page.get_by_role("combobox", name="takes").locator("option")
    expect(offered).to_have_count(len(shown))
    assert offered.evaluate_all("(all) => all.map((one) => one.text)") == [f"“{text}” 0.10" for text in shown.values()]
    page.get_by_role("combobox", name="takes").select_option("1")
    page.get_by_role("button", name="Continue").click()
    assert page.evaluate("window.sent") == [{"do": "fork", "side": "a", "step": 3, "token": 1}]
    assert page.watch.errors == []
