"""What no model could serve is refused before one is loaded, and a wrong keyword is answered with the nearest name."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import pickle
from types import FunctionType

import pytest

import divexplore as dx
from divexplore.errors import UnknownArgument, told_nearest

FUNCTIONS = [name for name in dx.__all__ if isinstance(getattr(dx, name), FunctionType)]
OF_A_MODEL = {  # how each is called with a prompt; the first argument is a model
    "run": lambda prompt, **asked: dx.run("m", prompt, **asked),
    "force": lambda prompt, **asked: dx.force("m", prompt, asked.pop("config", None), [1], **asked),
    "score": lambda prompt, **asked: dx.score("m", prompt, [1], **asked),
    "compare": lambda prompt, **asked: dx.compare("m", prompt, **asked),
    "attribute": lambda prompt, **asked: dx.attribute("m", prompt, **asked),
    "trace_ops": lambda prompt, **asked: dx.trace_ops("m", prompt, **asked),
    "layer_drift": lambda prompt, **asked: dx.layer_drift("m", prompt, **asked),
    "find_near_ties": lambda prompt, **asked: dx.find_near_ties("m", [prompt], **asked),
}


@pytest.fixture
def no_load(monkeypatch):
    """Makes a load the end of the test."""

    def load(*_, **__):
        raise AssertionError("the model was loaded")

    monkeypatch.setattr("divexplore.models.load.load_model", load)
    monkeypatch.setattr("divexplore.comparison.scan.load_model", load)


def test_every_function_that_takes_a_prompt_is_looked_at():
    takes = {name for name in FUNCTIONS if {"prompt", "prompts"} & set(inspect.signature(getattr(dx, name)).parameters)}
    assert takes == set(OF_A_MODEL)


@pytest.mark.parametrize("prompt", ["", "  ", [], 7, None, b"text", [True], [1.5], "\ud800"], ids=repr)
@pytest.mark.parametrize("name", OF_A_MODEL)
def test_a_prompt_that_is_none_is_refused_before_the_load(no_load, name, prompt):
    with pytest.raises(dx.Refusal) as caught:
        OF_A_MODEL[name](prompt)
    assert all(caught.value.to_dict().values())


@pytest.mark.parametrize("steps", [0, -3, 2.5, "8", True, None], ids=repr)
@pytest.mark.parametrize("name", [name for name in OF_A_MODEL if name not in ("force", "score")])
def test_a_number_of_steps_that_is_none_is_refused_before_the_load(no_load, name, steps):
    with pytest.raises(dx.Refusal, match="max_new_tokens"):
        OF_A_MODEL[name]("The giant", max_new_tokens=steps)


@pytest.mark.parametrize("name", OF_A_MODEL)
def test_an_unknown_field_is_refused_before_the_load(no_load, name):
    side = "a" if "a" in inspect.signature(getattr(dx, name)).parameters else "config"
    with pytest.raises(dx.Refusal, match="Did you mean 'batch_size'"):
        OF_A_MODEL[name]("The giant", **{side: {"batch_sise": 8}})


@pytest.mark.parametrize("tokens", [[], 7, None, "text", [1.5]], ids=repr)
def test_tokens_that_are_none_are_refused_before_the_load(no_load, tokens):
    for asked in (lambda: dx.force("m", "The giant", None, tokens), lambda: dx.score("m", "The giant", tokens)):
        with pytest.raises(dx.Refusal, match="token"):
            asked()


def test_what_can_be_served_is_loaded(no_load):
    for ask in OF_A_MODEL.values():
        with pytest.raises(AssertionError, match="loaded"):
            ask("The giant")


@pytest.mark.parametrize("name", [*FUNCTIONS, "Explorer"])
def test_an_unknown_keyword_is_refused_with_the_nearest_name(name):
    function = getattr(dx, name)
    known = next(reversed(inspect.signature(function).parameters)) if name != "Explorer" else "max_new_tokens"
    with pytest.raises(dx.Refusal, match=f"Did you mean '{known}'") as caught:
        function(**{f"{known}x": 1})
    assert isinstance(caught.value, TypeError), "what Python itself would raise"
    assert known in caught.value.allowed


@pytest.mark.parametrize("method", ["to_html", "save", "fork", "with_cause"])
def test_methods_of_a_comparison_name_the_nearest_too(method):
    function = getattr(dx.Comparison, method)
    *_, known = inspect.signature(function).parameters
    with pytest.raises(UnknownArgument, match=f"Did you mean '{known}'"):
        function(None, **{f"{known}x": 1})


def test_a_configuration_and_a_view_name_the_nearest_too():
    for made, wrong, known in (
        (dx.RunConfig, "dtpye", "dtype"),
        (functools.partial(dx.ComparisonView, None), "lvie", "live"),
    ):
        with pytest.raises(UnknownArgument, match=f"Did you mean '{known}'") as caught:
            made(**{wrong: 1})
        assert "self" not in caught.value.allowed
    assert dataclasses.replace(dx.RunConfig(dtype="bf16"), row=0).to_dict() == {"dtype": "bfloat16", "row": 0}
    assert set(inspect.signature(dx.RunConfig).parameters) == {field.name for field in dataclasses.fields(dx.RunConfig)}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_public_function_is_still_what_it_was_to_those_who_read_it(name):
    function = getattr(dx, name)
    inner = inspect.unwrap(function)
    assert inner is not function
    assert inspect.signature(function) == inspect.signature(inner)
    assert inspect.getdoc(function) == inspect.getdoc(inner)
    assert inspect.getsource(function) == inspect.getsource(inner)
    assert pickle.loads(pickle.dumps(function)) is function


def test_any_other_wrong_call_stays_pythons_own():
    def greet(name, *, loud=False):
        return name, loud

    told = told_nearest(greet)
    assert told("you", loud=True) == ("you", True)
    with pytest.raises(TypeError, match="missing") as caught:
        told(loud=True)
    assert not isinstance(caught.value, dx.Refusal)


def test_an_unknown_argument_is_pickled():
    with pytest.raises(UnknownArgument) as caught:
        dx.run(modle="m")
    again = pickle.loads(pickle.dumps(caught.value))
    assert (type(again), again.to_dict()) == (UnknownArgument, caught.value.to_dict())
