"""The search for the knob, on a stub that says what each configuration does."""

from __future__ import annotations

import pytest
from made_traces import made

from divexplore.comparison.search import Effect, Stopped, minimise, search
from divexplore.config import RunConfig
from divexplore.errors import Refusal

A = RunConfig(dtype="float32", batch_size=1, seed=0, num_threads=2, mkldnn=True)
VALUES = {"batch_size": 8, "seed": 1, "num_threads": 1, "mkldnn": False, "left_pad": 2}
SETS = {1: ("seed",), 3: ("seed", "num_threads", "batch_size"), 5: tuple(VALUES)}


class Stub:
    """A runner in which certain fields, together, flip the token at step 5, and others drift from step 2 on."""

    def __init__(self, flip=(), drift=()):
        self.flip, self.drift, self.asked = set(flip), set(drift), []

    def __call__(self, config):
        self.asked.append(config)
        changed = set(A.difference(config))
        flips = bool(self.flip) and self.flip <= changed
        drifts = flips or (bool(self.drift) and self.drift <= changed)
        tokens = [10, 11, 12, 13, 14, 99 if flips else 15]
        return made(tokens, [step + 100 * (drifts and step >= 2) for step in range(6)], config)


def b_of(fields):
    return A.replace(**{name: VALUES[name] for name in fields})


@pytest.mark.parametrize("count", SETS)
def test_one_field_that_flips_is_found(count):
    fields = SETS[count]
    for guilty in fields:
        found = search(Stub(flip=[guilty]), A, b_of(fields))
        assert found.minimal_flip == found.minimal_drift == (guilty,)
        assert found.single[guilty] == Effect(first_drift=2, split=5)
        assert all(found.single[name] == Effect() for name in fields if name != guilty)


@pytest.mark.parametrize("count", [3, 5])
def test_two_fields_that_flip_only_together_are_found(count):
    fields = SETS[count]
    for first in fields:
        for second in fields:
            if first != second:
                found = search(Stub(flip=[first, second], drift=[first]), A, b_of(fields))
                assert set(found.minimal_flip) == {first, second}
                assert found.minimal_drift == (first,)


def test_nothing_is_named_where_nothing_differs():
    found = search(Stub(), A, b_of(SETS[3]))
    assert found.minimal_flip is None
    assert found.minimal_drift is None
    assert found.repeatable


def test_drift_without_a_flip_names_only_the_drift():
    found = search(Stub(drift=["seed"]), A, b_of(SETS[3]))
    assert (found.minimal_flip, found.minimal_drift) == (None, ("seed",))


def test_no_configuration_runs_more_often_than_it_must():
    stub = Stub(flip=["seed", "mkldnn"])
    found = search(stub, A, b_of(SETS[5]))
    others = [config for config in stub.asked if config not in (A, b_of(SETS[5]))]
    assert len(others) == len(set(others))
    assert stub.asked.count(A) == stub.asked.count(b_of(SETS[5])) == 2
    assert found.runs == len(stub.asked)


def test_a_side_that_does_not_repeat_itself_ends_the_search():
    runs = []

    def unsteady(config):
        runs.append(config)
        return made([1, 2, 3], [len(runs), 0, 0], config)

    found = search(unsteady, A, b_of(SETS[3]))
    assert not found.repeatable
    assert found.single == {}
    assert found.minimal_flip is None
    assert len(runs) == 4


def test_a_field_that_makes_no_sense_alone_is_reported_and_the_search_goes_on():
    b = A.replace(batch_size=8, row=3)

    def run(config):
        return made([1, 2, 3 if config.rows == 1 else 4], [0, 1, config.rows], config)

    found = search(run, A, b)
    assert "row=3" in found.single["row"].failed
    assert found.minimal_flip == ("batch_size",)


def test_an_error_of_one_configuration_is_no_flip():
    def run(config):
        if config.mkldnn is False and config.seed == 0:
            raise RuntimeError("no deterministic implementation")
        return made([1, 9 if config.seed else 2], [0, config.seed], config)

    found = search(run, A, b_of(("seed", "mkldnn")))
    assert found.single["mkldnn"].failed == "no deterministic implementation"
    assert found.minimal_flip == ("seed",)


def test_a_configuration_that_fails_is_not_tried_again():
    asked = []

    def run(config):
        asked.append(config)
        if config not in (A, b_of(SETS[3])):
            raise RuntimeError("out of memory")
        return made([1, 9 if config.seed else 2], [0, config.seed], config)

    found = search(run, A, b_of(SETS[3]))
    assert set(found.minimal_flip) == set(SETS[3])
    others = [config for config in asked if config not in (A, b_of(SETS[3]))]
    assert len(others) == len(set(others)) == 6
    assert found.runs == len(asked)


def test_stop_keeps_what_was_found():
    stub = Stub(flip=["left_pad"])

    def run(config):
        if len(stub.asked) == 5:
            raise Stopped
        return stub(config)

    found = search(run, A, b_of(SETS[5]))
    assert found.stopped
    assert len(found.single) == 1
    assert found.minimal_flip is None


def test_a_refused_arm_is_not_hidden():
    def run(config):
        raise Refusal("too much", "less", "Ask for less.")

    with pytest.raises(Refusal, match="too much"):
        search(run, A, b_of(SETS[1]))


@pytest.mark.parametrize("guilty", [("a", "c"), ("b", "d", "e"), ("a", "b", "c", "d", "e")])
def test_a_minimal_set_has_no_member_to_spare(guilty):
    def holds(names):
        return set(guilty) <= set(names)

    found = minimise("abcde", holds)
    assert holds(found)
    assert not any(holds([name for name in found if name != spared]) for spared in found)


def test_a_set_is_minimal_even_where_the_effect_is_not_monotone():
    """An effect that a third field cancels, as rounding can."""

    def holds(names):
        return len(names) in (2, 4)

    found = minimise("abcd", holds)
    assert holds(found)
    assert not any(holds([name for name in found if name != spared]) for spared in found)
