"""What the tab Cause is given: all of it where it was asked for, bounded, and news where only the cause is new."""

from __future__ import annotations

import dataclasses
import html
import json

import made
import made_cause
import numpy as np
import pytest

import divexplore as dx
from divexplore.view.cause_charts import layer_frames
from divexplore.view.payload import summarise
from divexplore.view.static import static_html


def asked(**options):
    return dataclasses.replace(made.comparison(), cause=made_cause.cause(**options))


def test_nothing_asked_and_no_guards_is_no_tab():
    assert summarise(made.comparison()).header["cause"] is None


def test_guards_alone_are_a_tab():
    part = summarise(made_cause.with_guards(made.comparison(), failed="dtype")).header["cause"]
    assert [guard["name"] for guard in part["guards"] if guard["ok"] is False] == ["dtype"]
    assert [guard["name"] for guard in part["guards"] if guard["ok"] is None] == ["observer"]
    assert part["knobs"] is part["operations"] is part["layers"] is None


def test_the_header_with_a_cause_is_strict_json_and_its_sentences_are_those_of_the_report():
    comparison = asked(texts=("</script>", "\u202e"))
    header = summarise(comparison).header
    assert json.loads(json.dumps(header, allow_nan=False)) == header
    assert header["cause"]["sentences"] == list(comparison.cause.sentences)
    assert header["cause"]["layers"]["candidates"] == ["</script>", "\u202e"]
    assert header["cause"]["knobs"]["flip"] == ["batch_size"]


def test_of_many_operations_the_first_ones_and_the_last_one_cross():
    comparison = asked(differing=1000)
    part = summarise(comparison).header["cause"]["operations"]
    table = comparison.cause.operations.table
    assert part["told"] == 1000 > len(part["rows"])
    orders = [row["order"] for row in part["rows"]]
    assert orders[:-1] == list(range(10, 10 + len(orders) - 1))
    assert orders[-1] == table.filter(table["state"] != "unmatched")["order"].max()
    assert part["first"] == comparison.cause.operations.first_difference.order == 10
    assert {row["state"] for row in part["rows"]} == {"differs", "equal"}, "what absorbs is told too"


def test_the_layer_chart_has_named_empty_data_and_its_rows_are_columns():
    comparison = asked()
    payload = summarise(comparison)
    spec = payload.header["charts"]["layers"]
    assert "datasets" not in spec
    text = json.dumps(spec)
    for name in ("drift", "logits", "lens", "marks"):
        assert f'"data": {{"name": "{name}"}}' in text
    frames = layer_frames(comparison.cause.layers)
    assert payload.column("layer_drift_layer").tolist() == frames["drift"]["layer"].to_list()
    assert np.allclose(payload.column("layer_drift_relative"), frames["drift"]["relative"].to_numpy())
    assert payload.column("layer_epsilon").shape == (comparison.cause.layers.logits.height,)


def test_inside_the_prompt_steps_are_below_0_and_equal_bits_are_left_out():
    found = made_cause.layers(prompt=6, steps=4)
    frames = layer_frames(found)
    assert frames["drift"]["relative"].min() > 0
    step_of_position = {row["position"]: row["position"] - 5 for row in found.drift.to_dicts()}
    wanted = {(row["layer"], step_of_position[row["position"]]) for row in found.drift.to_dicts() if row["max_abs"] > 0}
    assert set(frames["drift"].select("layer", "step").iter_rows()) == wanted


def test_a_pair_without_any_drift_has_a_chart_too():
    import polars as pl

    found = made_cause.layers()
    still = dataclasses.replace(
        found, flip=False, drift=found.drift.with_columns(max_abs=pl.lit(0.0), relative=pl.lit(0.0))
    )
    payload = summarise(
        dataclasses.replace(made.comparison(), cause=dataclasses.replace(made_cause.cause(), layers=still))
    )
    assert payload.column("layer_drift_layer").size == 0
    assert payload.header["cause"]["layers"]["first"] is None


def test_the_static_view_says_what_was_found_and_which_check_failed():
    comparison = made_cause.with_guards(asked(texts=("<b>", "&")), failed="dtype")
    text = static_html(summarise(comparison))
    for sentence in comparison.cause.sentences:
        assert html.escape(sentence) in text
    assert "Check dtype failed: About dtype." in text
    assert "Check" not in static_html(summarise(made_cause.with_guards(made.comparison())))


def test_a_view_hears_of_a_cause_though_no_column_changed():
    comparison = made.comparison()
    view = dx.ComparisonView(comparison)
    seen = []
    view.observe(lambda change: seen.append(change["name"]), ["meta", "data", "tab", "selected"])
    view.show(dataclasses.replace(comparison, cause=made_cause.cause()), selected=7, tab="Cause")
    assert {"meta", "data", "tab", "selected"} <= set(seen), "the browser builds the view anew on data"
    assert (view.selected, view.tab) == (7, "Cause")
    only_words = dataclasses.replace(comparison, cause=dataclasses.replace(made_cause.cause(), layers=None))
    before = view.data
    view.show(only_words)
    again = dataclasses.replace(only_words.cause, operations=None)
    assert view.data != before
    before = view.data
    view.show(dataclasses.replace(comparison, cause=again))
    assert len(view.data) == len(before)
    assert view.data != before
    assert (view.selected, view.tab) == (40, "")


def test_a_column_that_is_not_there_is_refused_and_the_view_stays():
    view = dx.ComparisonView(made.comparison())
    before = view.data
    with pytest.raises(dx.Refusal, match="selected=999"):
        view.show(asked(), selected=999)
    assert view.data == before
