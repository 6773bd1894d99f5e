"""Who is next, and what is let go of: runs that follow each other, Stop at the edges, an Explorer that leaves the page."""

from __future__ import annotations

import threading
import time

import pytest
from panels import PATIENCE, ask, settle, states

import divexplore as dx
from divexplore.view.explorer_models import Shelf


def test_run_pressed_twice_replaces_the_first_and_never_mixes(explorer, stand):
    ask(explorer, prompt="first one")
    assert stand.entered.acquire(timeout=PATIENCE)
    seen = states(explorer)
    ask(explorer, prompt="the second")
    assert stand.entered.acquire(timeout=PATIENCE)
    stand.go.set()
    settle(explorer)
    assert stand.requests == ["first one", "the second"]
    assert stand.most == 1
    assert len(explorer.comparison.a) == len("the second")
    assert not any("first" in state["tails"]["a"] for state in seen)
    assert [state["phase"] for state in seen].count("done") == 1


def test_a_run_that_waits_and_is_replaced_never_starts(explorer, stand):
    ask(explorer, prompt="one")
    assert stand.entered.acquire(timeout=PATIENCE)
    explorer._worker._latest.stop = lambda: None  # a step that takes its time
    ask(explorer, prompt="two")
    ask(explorer, prompt="three")
    stand.go.set()
    settle(explorer)
    assert stand.requests == ["one", "three"]


def test_a_model_that_it_loaded_is_freed_by_close_and_one_that_was_passed_in_is_not(fairy_tales):
    ours = dx.Explorer(max_new_tokens=1)
    ours.panel.request = {**ours.panel.request, "evidence": "fast"}
    loaded = ours.run().pair.model
    assert loaded is not fairy_tales
    ours.close()
    with pytest.raises(dx.Refusal, match="after close"):
        _ = loaded.master

    theirs = dx.Explorer(fairy_tales, max_new_tokens=1)
    theirs.panel.request = {**theirs.panel.request, "evidence": "fast"}
    assert theirs.run().pair.model is fairy_tales
    theirs.close()
    assert fairy_tales.master is not None


def test_closing_in_mid_run_frees_the_model_once_the_step_is_over(stand):
    explorer = dx.Explorer()
    explorer.start()
    assert stand.entered.acquire(timeout=PATIENCE)
    model = explorer._shelf.get("fairy-tales")
    explorer.close()
    settle(explorer)
    with pytest.raises(dx.Refusal, match="after close"):
        _ = model.master


def test_off_the_page_its_model_is_freed_and_loaded_again_for_the_next_run():
    explorer = dx.Explorer(max_new_tokens=1)
    explorer.panel.request = {**explorer.panel.request, "evidence": "fast"}
    model = explorer.run().pair.model
    explorer.set_trait("_view_count", 1)
    assert model.master is not None
    explorer.set_trait("_view_count", 0)
    with pytest.raises(dx.Refusal, match="after close"):
        _ = model.master
    assert explorer.run().pair.model.master is not None
    explorer.close()


def in_mid_run(stand):
    """An Explorer on a page with a run under way, and the model that it loaded for it."""
    explorer = dx.Explorer()
    explorer.set_trait("_view_count", 1)
    explorer.start()
    assert stand.entered.acquire(timeout=PATIENCE)
    return explorer, explorer._shelf.get("fairy-tales")


def test_off_the_page_in_mid_run_its_model_is_freed_once_the_run_is_over(stand):
    explorer, model = in_mid_run(stand)
    explorer.set_trait("_view_count", 0)
    assert not model.closed, "the run is not over"
    assert not explorer._worker._latest.stopped()
    stand.go.set()
    settle(explorer)
    assert gone(model)
    explorer.close()


def test_a_cell_that_is_run_again_in_mid_run_frees_nothing(stand):
    explorer, model = in_mid_run(stand)
    explorer.set_trait("_view_count", 0)
    explorer.set_trait("_view_count", 1)
    stand.go.set()
    settle(explorer)
    for thread in threading.enumerate():
        if thread.name == "divexplore-idle":
            thread.join(PATIENCE)
    assert not model.closed
    explorer.close()


@pytest.fixture
def away(monkeypatch):
    """Makes the time off the page, after which a run is stopped, a moment, and waits for its end."""
    monkeypatch.setattr("divexplore.view.explorer.AWAY", 0.05)

    def over():
        for thread in threading.enumerate():
            if getattr(thread, "interval", None) == 0.05:
                thread.join(PATIENCE)

    return over


def test_a_run_that_nobody_looks_at_is_stopped_and_kept_and_its_model_is_freed(stand, away):
    explorer = dx.Explorer()
    explorer.set_trait("_view_count", 1)
    explorer.start()
    assert stand.entered.acquire(timeout=PATIENCE)
    model = explorer._shelf.get("fairy-tales")
    explorer.set_trait("_view_count", 0)
    settle(explorer)  # nothing lets it go but Stop
    assert explorer.comparison is not None
    assert gone(model)
    explorer.close()


def test_a_run_whose_view_is_back_goes_on_and_so_does_one_for_which_a_cell_waits(stand, away):
    explorer = dx.Explorer()
    explorer.set_trait("_view_count", 1)
    explorer.start()
    assert stand.entered.acquire(timeout=PATIENCE)
    explorer.set_trait("_view_count", 0)
    explorer.set_trait("_view_count", 1)
    away()
    assert not explorer._worker.latest.stopped()

    waiting = threading.Thread(target=explorer.run)  # in place of the run before
    waiting.start()
    assert stand.entered.acquire(timeout=PATIENCE)
    explorer.set_trait("_view_count", 0)
    away()
    assert not explorer._worker.latest.stopped()
    stand.go.set()
    waiting.join(PATIENCE)
    explorer.close()


def gone(model):
    """Whether a model is let go of, by a thread that may still be on its way."""
    return any(model.closed or time.sleep(0.01) for _ in range(100 * PATIENCE))


def test_a_closed_explorer_starts_nothing():
    explorer = dx.Explorer()
    explorer.close()
    for start in (explorer.run, explorer.start, lambda: explorer.fork("a", 0, 1)):
        with pytest.raises(dx.Refusal, match="closed"):
            start()
    assert explorer._shelf._owned is None


def test_a_question_about_a_comparison_whose_model_was_freed_says_to_run_again():
    explorer = dx.Explorer(max_new_tokens=1)
    explorer.panel.request = {**explorer.panel.request, "evidence": "fast"}
    explorer.run()
    explorer.set_trait("_view_count", 1)
    explorer.set_trait("_view_count", 0)
    with pytest.raises(dx.Refusal, match="Press Run again"):
        explorer.fork("a", 0, 1)
    explorer.panel._handle_custom_msg({"do": "cause", "name": "layer"}, [])
    assert "freed" in explorer.panel.state["error"]["asked"]
    explorer.close()


def test_a_run_that_starts_while_another_is_shown_is_not_shown_as_done(explorer, stand, monkeypatch):
    """The second press falls into the drawing of the first run's page."""
    begun, second = threading.Event(), []
    page = explorer._page

    def slow():
        if not second:
            second.append(threading.Thread(target=explorer.start))
            second[0].start()
            begun.wait(0.3)  # long enough for the other thread to get in, were it let in
        return page()

    monkeypatch.setattr(explorer, "_page", slow)
    stand.go.set()
    explorer.start()
    first = explorer._worker._latest
    assert first.wait(PATIENCE)
    stand.go.clear()
    second[0].join(PATIENCE)
    running = explorer._worker._latest
    assert running is not first
    if not running.ended:
        assert explorer.panel.state["phase"] == "running"
    stand.go.set()
    settle(explorer)
    assert explorer.panel.state["phase"] == "done"


def test_stop_just_after_the_end_leaves_the_panel_done(explorer, stand, monkeypatch):
    page = explorer._page

    def stopped():
        explorer.stop()  # the run is shown, its page is being drawn
        return page()

    monkeypatch.setattr(explorer, "_page", stopped)
    stand.go.set()
    explorer.run()
    assert explorer.panel.state["phase"] == "done"


def test_stop_ends_a_branch_and_keeps_what_was_recorded(explorer, monkeypatch):
    comparison = explorer.run()
    token = int(comparison.a.top_ids[1][1])
    monkeypatch.setattr("divexplore.view.explorer_progress.MIN_SECONDS", 0)
    explorer.panel.observe(lambda change: explorer.stop() if change["new"]["step"] == 3 else None, "state")
    branch = explorer.fork("a", 1, token).b
    assert branch.partial
    assert 3 <= len(branch) <= 4 < len(comparison.a)


def test_at_most_one_model_is_loaded():
    shelf = Shelf()
    first = shelf.get("fairy-tales")
    assert shelf.get("fairy-tales") is first
    with pytest.raises(dx.Refusal):
        shelf.get("fairy-tale")
    with pytest.raises(dx.Refusal, match="after close"):
        _ = first.master
