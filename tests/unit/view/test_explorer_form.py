"""What the Explorer offers, what its progress says, and what its pieces of the page may be called."""

from __future__ import annotations

import dataclasses
import json
import re
import threading

import pytest

import divexplore as dx
from divexplore.config import PRESETS
from divexplore.view import assets, explorer_form
from divexplore.view.explorer_cause import CausePanel
from divexplore.view.explorer_models import Shelf
from divexplore.view.explorer_panel import BranchPanel, RunPanel, complaint
from divexplore.view.explorer_progress import MIN_SECONDS, Progress
from divexplore.view.explorer_request import config_of

FOLDER = assets.FOLDER.parent / "explorer"


def test_a_preset_that_cannot_differ_here_is_greyed_with_the_reason(monkeypatch):
    monkeypatch.setattr(explorer_form, "cores", lambda: 1)
    reasons = {preset["name"]: preset["reason"] for preset in explorer_form.presets()}
    assert "1 core" in reasons["threads"]
    assert reasons["batch"] is None
    monkeypatch.setattr(explorer_form, "cores", lambda: 2)
    assert {preset["name"]: preset["reason"] for preset in explorer_form.presets()}["threads"] is None


def test_the_first_request_is_the_first_preset_that_can_differ(monkeypatch):
    monkeypatch.setattr(
        "divexplore.view.explorer_request.why_not", lambda preset: "no" if preset.name == "batch" else None
    )
    explorer = dx.Explorer()
    assert explorer.panel.request["preset"] == list(PRESETS)[1]
    assert explorer.panel.request["a"] == list(PRESETS.values())[1].a.to_dict()


def test_once_on_the_page_the_presets_are_judged_by_what_this_machine_multiplies(monkeypatch):
    monkeypatch.setattr(
        "divexplore.engine.probe.can_differ", lambda preset: "equal bits here" if preset.name == "batch" else None
    )
    explorer, judged = dx.Explorer(), threading.Event()
    explorer.panel.observe(lambda _: judged.set(), "request")
    assert explorer.panel.request["preset"] == "batch"
    explorer.set_trait("_view_count", 1)
    assert judged.wait(60)
    assert explorer.panel.choices["presets"][0]["reason"] == "equal bits here"
    assert explorer.panel.request["preset"] == list(PRESETS)[1]
    explorer.close()


def test_what_a_person_chose_is_kept_though_it_cannot_differ(monkeypatch):
    monkeypatch.setattr("divexplore.engine.probe.can_differ", lambda preset: "equal bits here")
    explorer, judged = dx.Explorer(), threading.Event()
    explorer.panel.observe(lambda _: judged.set(), "choices")
    explorer.panel.request = {**explorer.panel.request, "prompt": "typed"}
    explorer.set_trait("_view_count", 1)
    assert judged.wait(60)
    assert explorer.panel.request["preset"] == "batch"
    explorer.close()


def test_every_field_of_a_configuration_is_a_knob_and_six_are_in_front():
    knobs = explorer_form.knobs()
    assert sorted(knob["name"] for knob in knobs) == sorted(field.name for field in dataclasses.fields(dx.RunConfig))
    assert [knob["front"] for knob in knobs[:7]] == [True] * 6 + [False]
    kinds = {knob["name"]: knob["kind"] for knob in knobs}
    assert kinds["use_cache"] == "flag"
    assert kinds["batch_size"] == "number"
    assert kinds["dtype"] == "words"


def test_what_a_knob_offers_a_configuration_accepts():
    for knob in explorer_form.knobs():
        for value in knob.get("words", [True, False] if knob["kind"] == "flag" else [knob.get("low", 1)]):
            if knob["kind"] == "text":
                continue
            fields = {"row": {"batch_size": 2}, "top_k": {"do_sample": True}}.get(knob["name"], {})
            dx.RunConfig.of({**fields, knob["name"]: value})


def test_what_is_typed_for_a_field_is_read_by_its_name():
    typed = {
        "do_sample": True,
        "temperature": "0.7",
        "top_k": 5,
        "repetition_penalty": "1.3",
        "penalty_scope": "20",
        "suppress_tokens": "9, 7",
        "dtype": "bf16",
        "seed": None,
    }
    assert config_of(typed) == dx.RunConfig(
        do_sample=True,
        temperature=0.7,
        top_k=5,
        repetition_penalty=1.3,
        penalty_scope=20,
        suppress_tokens=[7, 9],
        dtype="bfloat16",
    )
    with pytest.raises(dx.Refusal, match="temperature=warm"):
        config_of({"do_sample": True, "temperature": "warm"})


def test_models_are_listed_once_with_their_size_and_memory(fairy_tales):
    assert [entry["name"] for entry in Shelf().listed] == list(explorer_form.CATALOG)
    listed = Shelf(fairy_tales).listed
    assert [entry["name"] for entry in listed] == list(explorer_form.CATALOG)
    assert re.fullmatch(r"[\d.]+ M parameters · [\d.]+ GB", listed[0]["note"])
    assert Shelf("some/folder").listed[0]["name"] == "some/folder"


def test_what_is_sent_to_the_page_is_plain(fairy_tales):
    explorer = dx.Explorer(fairy_tales, a={"fill": ["one", "two"]}, b={"fill": [[1, 2], [3]]})
    for trait in ("choices", "request", "state"):
        json.dumps(getattr(explorer.panel, trait))
    assert explorer.panel.request["preset"] == "own"


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def test_progress_is_told_at_most_ten_times_a_second_but_never_misses_the_first_and_last_step():
    told, clock = [], Clock()
    progress = Progress(told.append, clock)
    for step in range(1, 1001):
        clock.now += 0.001
        progress("A", step, 1000, "word " * step)
    assert 2 <= len(told) <= 2 + 1.0 / MIN_SECONDS
    assert told[0]["step"] == 1
    assert told[-1]["step"] == 1000
    assert max(len(state["tails"]["a"]) for state in told) == 40


def test_speed_leaves_the_first_step_out_and_time_left_follows_from_it():
    told, clock = [], Clock()
    progress = Progress(told.append, clock)
    clock.now += 50  # the prefill, and the cast of the weights
    progress("A", 1, 41, "")
    clock.now += 2
    progress("A", 21, 41, "")
    assert told[0]["rate"] is None
    assert told[1]["rate"] == pytest.approx(10)
    assert told[1]["left"] == pytest.approx(2)


def test_the_last_words_of_both_sides_stay_while_evidence_is_gathered():
    told = []
    progress = Progress(told.append, Clock())
    progress("A", 1, 1, "of A")
    progress("B", 1, 1, "of B")
    progress("A in float64", 1, 1, "other words")
    assert told[-1]["run"] == "A in float64"
    assert told[-1]["tails"] == {"a": "of A", "b": "of B"}


def test_a_complaint_says_what_to_do_for_any_error():
    refusal = complaint(dx.Refusal("x=1", "y", "Do z."))
    assert refusal == {"asked": "x=1", "allowed": "y", "do": "Do z."}
    assert "log" in complaint(KeyError("nothing"))["do"]
    assert "smaller batch" in complaint(MemoryError())["do"]


SHARED = {
    "dx-button",
    "dx-group",
    "dx-ink",
    "dx-letter",
    "dx-quiet",
    "dx-select",
    "dx-side",
    "dx-sides",
    "dx-spoken",
    "dx-streams",
    "dx-view",
}
"""Classes of the view's sheet that the panel means to use."""


def classes(folder):
    text = "".join(path.read_text(encoding="utf-8") for path in folder.iterdir() if path.suffix in (".js", ".css"))
    return {name.rstrip("-") for name in re.findall(r"\.(dx-[a-z][a-z-]*)", text)}


def test_panel_and_view_share_no_class_by_chance():
    assert (classes(assets.FOLDER) & classes(FOLDER)) <= SHARED


def test_the_panels_modules_are_whole():
    for widget in (RunPanel, BranchPanel, CausePanel):
        esm = widget._esm
        assert not re.search(r"^import\b", esm, re.MULTILINE)
        assert re.findall(r"^export .*", esm, re.MULTILINE) == ["export default { render };"]
        names = assets.top_level_names(esm)
        assert len(names) == len(set(names))
        for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "https://"):
            assert word not in esm
