"""An interrupt, as Ctrl-C or the notebook's stop button sends it: the first one keeps what was recorded, the second leaves."""

from __future__ import annotations

import contextlib
import signal
import threading

import pytest
from tiny_models import tiny

import divexplore as dx
from divexplore.engine.interrupt import interruptible
from divexplore.errors import Interrupted

PROMPT = [17, 4, 201, 96, 33]


@pytest.fixture(scope="module")
def model():
    return dx.load_model(tiny("llama"))


@pytest.fixture(autouse=True)
def pythons_own_handler():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler, "the handler is put back"
    signal.signal(signal.SIGINT, before)


def press(times=1):
    for _ in range(times):
        signal.raise_signal(signal.SIGINT)


def test_a_run_keeps_the_steps_until_the_interrupt_and_is_the_same_so_far(model):
    whole = dx.run(model, PROMPT, None, 8)
    with pytest.warns(Interrupted, match="kept") as told:
        trace = dx.run(model, PROMPT, None, 8, progress=lambda done, *_: done == 3 and press())
    assert told[0].filename == __file__
    assert trace.table.drop("seconds").equals(whole.table.drop("seconds").head(3))
    assert (trace.finish_reason, trace.partial) == ("stopped", True)


@pytest.mark.parametrize("pressed_in", ["A", "B"])
def test_a_comparison_keeps_both_sides_as_far_as_they_came(model, pressed_in):
    def progress(name, done, total, text):
        if name == pressed_in and done == 3:
            press()

    with pytest.warns(Interrupted):
        found = dx.compare(model, PROMPT, {}, {"batch_size": 2}, 8, progress=progress)
    assert [len(found.a), len(found.b)] == {"A": [3, 0], "B": [8, 3]}[pressed_in]
    assert found.b.partial
    assert found.inconclusive
    assert found.evidence is None, "what would come next is not begun"


def test_an_interrupt_while_evidence_is_measured_keeps_the_runs(model):
    def progress(name, done, total, text):
        if name not in ("A", "B") and done == 2:
            press()

    with pytest.warns(Interrupted):
        found = dx.compare(model, PROMPT, {}, {"batch_size": 2}, 6, progress=progress)
    assert not found.a.partial
    assert not found.b.partial


@contextlib.contextmanager
def pressed_at(model, forward):
    """An interrupt during one of the model's forwards, counted from 1."""
    seen = 0

    def look(module, args):
        nonlocal seen
        seen += 1
        if seen == forward:
            press()

    hook = model.instance().register_forward_pre_hook(look)
    try:
        yield
    finally:
        hook.remove()


def test_a_forced_run_keeps_the_steps_until_the_interrupt(model):
    free = dx.run(model, PROMPT, None, 8)
    with pressed_at(model, 3), pytest.warns(Interrupted) as told:
        trace = dx.force(model, PROMPT, None, free)
    assert told[0].filename == __file__
    assert trace.partial
    assert trace.table["row_hash"].to_list() == free.table["row_hash"].to_list()[:3]


def test_a_scan_keeps_the_rows_until_the_interrupt(model):
    with pressed_at(model, 6), pytest.warns(Interrupted) as told:
        found = dx.find_near_ties(model, [PROMPT, PROMPT[1:], PROMPT[2:]], None, 600, 4)
    assert [(warning.category, warning.filename) for warning in told] == [(Interrupted, __file__)], (
        "no word of a budget"
    )
    assert sorted(found.select("prompt_index", "step").rows()) == [(0, 0), (0, 1), (0, 2), (0, 3), (1, 0), (1, 1)]


def test_an_attribution_keeps_what_it_found_until_the_interrupt(model):
    sides = {"seed": 1}, {"seed": 2, "left_pad": 2, "prefill_chunk": 2}
    with pytest.warns(Interrupted):
        found = dx.attribute(model, PROMPT, *sides, 3, progress=lambda done, *_: done == 5 and press())
    assert found.stopped
    assert found.table.height == 1
    with pytest.raises(KeyboardInterrupt):  # neither side has run
        dx.attribute(model, PROMPT, *sides, 3, progress=lambda done, *_: done == 0 and press())


def test_layers_are_looked_at_as_far_as_b_came_before_the_interrupt(model):
    def at(label):
        return lambda done, total, what: (done, what) == (2, label) and press()

    with pytest.warns(Interrupted):
        found = dx.layer_drift(model, PROMPT, {}, {"left_pad": 2}, 6, progress=at("B on A's tokens"))
    assert found.logits.height == 2
    with pytest.raises(KeyboardInterrupt):  # there is nothing to look at
        dx.layer_drift(model, PROMPT, {}, {"left_pad": 2}, 6, progress=at("A"))


def test_a_branch_keeps_the_steps_until_the_interrupt(model):
    found = dx.compare(model, PROMPT, {}, {"seed": 1}, 8, evidence="fast")
    with pytest.warns(Interrupted) as told:
        branch = found.fork("a", 1, 7, progress=lambda done, *_: done == 4 and press())
    assert told[0].filename == __file__
    assert branch.token_ids[:2] == [found.a.token_ids[0], 7]
    assert (len(branch), branch.partial) == (4, True)
    assert len(found.fork("a", 1, 7, stop=lambda: True)) == 0
    for steps in (0, "10"):
        with pytest.raises(dx.Refusal, match="max_new_tokens"):
            found.fork("a", 1, 7, max_new_tokens=steps)


def test_a_second_interrupt_leaves_at_once(model):
    seen = []

    def progress(done, total, text):
        seen.append(done)
        press(2)

    with pytest.raises(KeyboardInterrupt):
        dx.run(model, PROMPT, None, 8, progress=progress)
    assert seen == [1]


def test_an_interrupt_reaches_a_run_in_a_fresh_process(model):
    with pytest.warns(Interrupted):
        trace = dx.run(
            model, PROMPT, {"omp_dynamic": False}, 400, progress=lambda done, total, text: done < 300 and press()
        )
    assert trace.partial
    assert len(trace) < 400


def test_the_callers_own_stop_is_asked_as_well():
    with interruptible(lambda: True) as stopping:
        assert stopping()
        assert not stopping.interrupted


def test_another_handler_is_left_in_force():
    heard = []
    before = signal.signal(signal.SIGINT, lambda *_: heard.append(True))
    try:
        with interruptible() as stopping:
            press()
        assert heard == [True]
        assert not stopping.interrupted
    finally:
        signal.signal(signal.SIGINT, before)


def test_in_another_thread_nothing_changes(model):
    traces = []
    thread = threading.Thread(target=lambda: traces.append(dx.run(model, PROMPT, None, 2)))
    thread.start()
    thread.join()
    assert len(traces[0]) == 2
