"""The Explorer without a browser: what it shows, runs, stops, refuses and lets go of."""

from __future__ import annotations

import dataclasses
import html
import threading

import polars as pl
import pytest
from panels import PATIENCE, ask, settle, states

import divexplore as dx
from divexplore.comparison.attribution import expected_runs
from divexplore.trace import Trace
from divexplore.view.explorer_cause import UNITS, prices
from divexplore.view.explorer_models import Shelf


def test_a_run_gives_the_comparison_and_shows_it_with_its_split_selected(explorer):
    seen = states(explorer)
    comparison = explorer.run()
    assert comparison is explorer.comparison
    assert [len(comparison.a), len(comparison.b)] == [6, 6]
    assert comparison.b.effective["batch_size"] == 8  # the first preset
    assert explorer.view in explorer.children
    assert explorer.view.selected == explorer.view.meta["selected"]
    assert {state["run"] for state in seen} >= {"A", "B"}
    assert explorer.panel.state["phase"] == "done"
    assert str(comparison.verdict).replace("_", " ") in explorer.panel.state["spoken"]
    assert explorer.panel.editing is False


def test_a_second_run_is_shown_in_the_same_view(explorer):
    first = explorer.run()
    view = explorer.view
    explorer.panel.request = {**explorer.panel.request, "prompt": "The old king"}
    second = explorer.run()
    assert explorer.view is view
    assert explorer.comparison is second is not first
    assert view.meta["prompt"]["text"] == "The old king"
    assert explorer.children[1] is view


def test_a_displayed_explorer_leaves_a_page_of_the_comparison_that_it_shows(explorer, monkeypatch):
    published = []
    monkeypatch.setattr("divexplore.view.saved.display", lambda bundle, **options: published.append((bundle, options)))
    explorer.run()
    assert published == []  # on no page yet
    explorer._ipython_display_()
    (shown, _), (page, options) = published
    key = explorer.panel.saved
    assert shown["application/vnd.jupyter.widget-view+json"]["model_id"] == explorer.model_id
    assert f'data-for="{key}"' in page["text/html"]
    assert "prompt: <bdi>The giant</bdi>" in page["text/html"]
    assert options["display_id"] == key

    explorer.panel.request = {**explorer.panel.request, "prompt": "The old king"}
    explorer.run()
    explorer._hear({"do": "cause", "name": "operation"})
    settle(explorer)
    (_, first), (run, _), (asked, last) = published[1:]
    assert "update" not in first
    assert (last["display_id"], last["update"]) == (key, True)
    assert "prompt: <bdi>The old king</bdi>" in run["text/html"]
    assert len(explorer.view.meta["cause"]["sentences"]) > 0
    assert html.escape(explorer.view.meta["cause"]["sentences"][0]) in asked["text/html"]


def test_after_stop_at_most_one_more_step_is_recorded_and_the_rest_stays(explorer):
    explorer.panel.request = {**explorer.panel.request, "steps": 400}
    pressed = threading.Event()

    def press(change):
        if change["new"]["run"] == "A" and not pressed.is_set():
            pressed.at = change["new"]["step"]
            pressed.set()
            explorer.stop()

    explorer.panel.observe(press, "state")
    explorer.start()
    assert pressed.wait(PATIENCE)
    settle(explorer)
    comparison = explorer.comparison
    assert pressed.at <= len(comparison.a) <= pressed.at + 1
    assert len(comparison.b) == 0, "B begins no step after Stop"
    assert comparison.a.partial
    assert explorer.view in explorer.children
    assert explorer.panel.state["phase"] == "done"


def test_start_returns_at_once_and_stop_without_a_run_is_nothing(explorer, stand):
    explorer.stop()
    assert explorer.panel.state["phase"] == "idle"
    assert explorer.start() is None
    assert explorer.busy
    assert stand.entered.acquire(timeout=PATIENCE)
    assert explorer.panel.state["phase"] == "running"
    explorer.stop()
    settle(explorer)
    assert not explorer.busy


class Loading:
    """Stands in for `load_model`: it lasts until it is let go, and no Stop can break into it."""

    def __init__(self, model):
        self.entered, self.go, self._model = threading.Event(), threading.Event(), model

    def __call__(self, name):
        self.entered.set()
        assert self.go.wait(PATIENCE)
        return self._model


def test_stop_during_a_load_ends_the_run_when_the_load_returns_and_nothing_is_decoded(monkeypatch, stand):
    loading = Loading(model := dx.load_model("fairy-tales"))
    monkeypatch.setattr("divexplore.models.load.load_model", loading)
    explorer = dx.Explorer("fairy-tales", "The giant")
    explorer.start()
    assert loading.entered.wait(PATIENCE)
    assert "loading" in explorer.panel.state["note"]
    explorer.stop()
    assert explorer.panel.state["phase"] == "stopping"
    assert explorer.busy, "the load goes on"
    loading.go.set()
    settle(explorer)
    assert stand.requests == [], "no run began"
    assert explorer.comparison is None
    assert explorer.children == (explorer.panel,)
    assert (explorer.panel.state["phase"], explorer.panel.state["error"]) == ("idle", None)
    assert explorer.panel.state["note"] == "stopped before the first step"
    # the model is kept: the next run starts with it at once
    stand.go.set()
    explorer.start()
    settle(explorer)
    assert len(stand.requests) == 1
    assert explorer.comparison is not None
    explorer.close()
    with pytest.raises(dx.Refusal, match="after close"):
        _ = model.master


def test_what_no_model_could_serve_is_told_before_one_is_loaded(monkeypatch):
    monkeypatch.setattr("divexplore.models.load.load_model", lambda name: pytest.fail("loaded"))
    explorer = dx.Explorer("fairy-tales", "The giant")
    for changes in ({"steps": 0}, {"prompt": " "}, {"a": {"batch_sise": 2}}):
        explorer.panel.request = {**explorer.panel.request, "prompt": "The giant", "steps": 4, "a": {}, **changes}
        with pytest.raises(dx.Refusal):
            explorer.run()
        assert explorer.panel.state["error"]["do"]
    explorer.close()


@pytest.mark.parametrize("wrong", [{"max_new_tokens": 0}, {"prompt": 7}, {"prompt": [1.5]}], ids=repr)
def test_an_argument_that_makes_no_sense_is_refused_at_once(wrong):
    with pytest.raises(dx.Refusal):
        dx.Explorer(**wrong)


def test_a_pair_that_takes_fresh_processes_says_so_when_it_starts(explorer, stand):
    seen = states(explorer)
    explorer.panel.request = {**explorer.panel.request, "a": {"omp_dynamic": True}}
    stand.go.set()
    explorer.start()
    settle(explorer)
    assert any("two fresh processes" in state["note"] for state in seen)


def test_the_request_is_the_one_at_the_press_whatever_is_typed_later(explorer, stand):
    ask(explorer, prompt="as pressed")
    explorer.panel.request = {**explorer.panel.request, "prompt": "typed later"}
    stand.go.set()
    settle(explorer)
    assert stand.requests == ["as pressed"]


@pytest.mark.parametrize(
    ("changes", "asked", "do"),
    [
        ({"prompt": "  "}, "an empty prompt", "Write at least one word."),
        ({"steps": "many"}, "max_new_tokens='many'", "Correct max_new_tokens."),
        ({"steps": None}, "max_new_tokens=None", "Correct max_new_tokens."),
        ({"a": {"batch_size": -1}}, "batch_size=-1", "Correct batch_size."),
        ({"b": {"row": 8, "batch_size": 8}}, "row=8 in a batch of 8", "Give a smaller row or a larger batch_size."),
        ({"model": "fairy-tale"}, "unknown model 'fairy-tale'", "fairy-tales"),
        ({"prompt": "a, b", "ids": True}, "the prompt 'a, b'", "Write whole numbers."),
    ],
)
def test_a_request_that_cannot_be_served_is_told_in_the_error_line(explorer, changes, asked, do):
    ask(explorer, **changes)
    settle(explorer)
    error = explorer.panel.state["error"]
    assert asked in error["asked"]
    assert error["allowed"]
    assert do in error["do"]
    assert explorer.panel.state["phase"] == "idle"
    with pytest.raises(dx.Refusal):
        explorer.run()


def test_an_unforeseen_error_is_shown_logged_and_does_not_end_the_explorer(explorer, monkeypatch, caplog):
    def burst(*_, **__):
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes")

    with monkeypatch.context() as patch:
        patch.setattr("divexplore.comparison.compare.compare", burst)
        with pytest.raises(RuntimeError, match="can't allocate memory"):
            explorer.run()
    assert "smaller batch" in explorer.panel.state["error"]["do"]
    assert "the run failed" in caplog.text
    assert explorer.run() is explorer.comparison
    assert explorer.panel.state["error"] is None


def test_a_message_that_cannot_be_read_is_told_too(explorer):
    explorer.panel._handle_custom_msg({"do": "fork", "side": "a", "step": 1, "token": 1}, [])
    assert "before the first run" in explorer.panel.state["error"]["asked"]


def test_what_would_be_refused_has_no_price(explorer):
    drawn = {"do_sample": True, "seed": 1}
    assert set(prices(dx.compare(explorer._shelf.get("fairy-tales"), "The", drawn, drawn, 2, evidence="fast"))) == {
        "operation",
        "layer",
    }
    whole = explorer.run()
    apart = dataclasses.replace(whole.pair, config_b=dx.RunConfig(aten_cpu_capability="default"))
    assert set(prices(dataclasses.replace(whole, pair=apart))) == {"knob"}


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (3, "model=3"),
        ("", "model=''"),
        ("fairytales", "Did you mean 'fairy-tales'"),
        ("fairy tales", "Did you mean 'fairy-tales'"),
        ("./mine/checkpoint", "where there is no file or folder"),
        ("mine.gguf", "where there is no file or folder"),
        ("a\0b", "where there is no file or folder"),
    ],
)
def test_what_is_no_model_is_refused_before_run(model, said):
    with pytest.raises(dx.Refusal) as refused:
        dx.Explorer(model)
    assert said in str(refused.value)


def test_what_may_be_a_model_is_left_to_the_load(tmp_path):
    for model in ("Fairy-Tales", str(tmp_path), tmp_path, "owner/name", "gpt2"):
        explorer = dx.Explorer(model)
        assert explorer.panel.request["model"] == str(model)
        explorer.close()


def test_a_transformers_model_takes_ids(fairy_tales):
    assert Shelf(fairy_tales.to_transformers()).takes_ids


def test_an_unknown_argument_is_refused_with_the_nearest_name():
    with pytest.raises(dx.Refusal, match="Did you mean 'prompt'"):
        dx.Explorer(promt="The giant")


def test_a_configuration_that_makes_no_sense_is_refused_before_anything_is_shown():
    with pytest.raises(dx.Refusal, match="batch_size"):
        dx.Explorer(a={"batchsize": 2})


def test_a_run_from_within_a_run_is_refused(explorer, stand):
    stand.go.set()
    refused = []

    def again(_):
        with pytest.raises(dx.Refusal, match="within"):
            explorer.run()
        refused.append(True)

    explorer.observe(again, "comparison")
    explorer.run()
    assert refused == [True]


def test_a_branch_is_shown_below_against_its_parent_and_goes_with_it(explorer):
    comparison = explorer.run()
    offered = explorer.strips.branch.offer["sides"][0]
    token = offered["tokens"][0]["id"]
    assert token != comparison.a.token_ids[offered["step"]]
    branch = explorer.fork("a", offered["step"], token)
    assert branch.a.token_ids == comparison.a.token_ids
    assert branch.first_divergence == offered["step"]
    assert branch.b.token_ids[offered["step"]] == token
    assert explorer.children[-1] is explorer.strips.branch_view
    assert explorer.comparison is comparison
    explorer.run()
    assert explorer.strips.branch_view is None


def test_what_is_offered_instead_follows_the_selection(explorer):
    explorer.run()
    explorer.view.selected = 2
    sides = explorer.strips.branch.offer["sides"]
    assert [(side["side"], side["step"]) for side in sides] == [("a", 2), ("b", 2)]
    chances = [token["probability"] for token in sides[0]["tokens"]]
    assert chances == sorted(chances, reverse=True)
    assert 0 < sum(chances) < 1


def test_prompts_of_a_model_without_a_tokenizer_are_ids(fairy_tales):
    explorer = dx.Explorer(fairy_tales.to_transformers(), [5, 6, 7], a={}, b={"batch_size": 2}, max_new_tokens=2)
    explorer.panel.request = {**explorer.panel.request, "evidence": "fast"}
    assert explorer.panel.request["prompt"] == "5, 6, 7"
    assert explorer.run().a.prompt_ids == [5, 6, 7]
    explorer.close()


@pytest.mark.parametrize(("name", "says"), [("operation", "operations"), ("layer", "layer"), ("knob", "batch_size")])
def test_the_cause_is_asked_by_a_button_with_its_price_and_answered_in_its_tab(explorer, name, says):
    first = explorer.run()
    cause = explorer.strips.cause
    explorer.view.selected = 3
    assert set(cause.prices) == {"knob", "operation", "layer"}
    seen = states(explorer)
    cause._handle_custom_msg({"do": "cause", "name": name}, [])
    settle(explorer)
    assert explorer.panel.state["error"] is None
    assert explorer.comparison.a is first.a
    assert says in " ".join(explorer.comparison.cause.sentences)
    assert explorer.view.tab == "Cause"
    assert explorer.view.selected == 3, "the person's place is kept"
    assert explorer.view.meta["cause"]["sentences"] == list(explorer.comparison.cause.sentences)
    counted = [state for state in seen if state["steps"]]
    assert counted
    assert {state["unit"] for state in counted} == {UNITS[name]}
    explorer.run()
    assert explorer.comparison.cause is None
    assert explorer.view.tab == ""


def test_answers_about_one_comparison_come_together(explorer):
    explorer.run()
    for name in ("operation", "layer"):
        explorer._hear({"do": "cause", "name": name})
        settle(explorer)
    cause = explorer.comparison.cause
    assert cause.operations is not None
    assert cause.layers is not None
    assert explorer.view.meta["cause"]["operations"]["step"] == explorer.comparison.first_drift


def test_prices_count_runs_and_seconds_before_anything_runs(explorer):
    comparison = explorer.run()
    found = prices(comparison)
    assert f"about {expected_runs(comparison.pair.config_a, comparison.pair.config_b)} runs" in found["knob"]
    assert f"step {comparison.first_drift} and 6 forwards" in found["operation"]
    assert all(words.endswith(" s") for words in found.values())
    slow = Trace(comparison.a.table.with_columns(seconds=pl.lit(10.0)), comparison.a.meta)
    assert prices(dataclasses.replace(comparison, a=slow))["knob"].endswith(" min")
    assert prices(dataclasses.replace(comparison, pair=None)) == {}


def test_a_search_that_was_stopped_says_so_and_leaves_no_answer(explorer, monkeypatch):
    explorer.run()
    monkeypatch.setattr("divexplore.view.worker.Job.stopped", lambda job: True)
    explorer._hear({"do": "cause", "name": "knob"})
    settle(explorer)
    assert "stopped" in explorer.panel.state["error"]["asked"]
    assert explorer.comparison.cause is None


def test_while_something_runs_the_strips_below_wait(explorer, stand):
    stand.go.set()
    explorer.run()
    stand.go.clear()
    explorer.start()
    assert explorer.strips.branch.busy
    assert explorer.strips.cause.state["phase"] == "running"
    stand.go.set()
    settle(explorer)
    assert not explorer.strips.branch.busy
