from __future__ import annotations

import json

import made
import numpy as np
import pytest

import divexplore as dx
from divexplore.view.payload import summarise


def test_every_column_comes_back_as_it_went_in():
    comparison = made.comparison()
    payload = summarise(comparison)
    for side in ("a", "b"):
        trace = getattr(comparison, side)
        assert payload.column(f"{side}_token").tolist() == trace.token_ids
        assert np.array_equal(payload.column(f"{side}_top_ids"), trace.top_ids)
        assert np.array_equal(payload.column(f"{side}_top_logits").astype(float), trace.top_logits)
        assert payload.column(f"{side}_margin_ulps").tolist() == trace.table["margin_ulps"].to_list()
        assert payload.column(f"{side}_tie").astype(bool).tolist() == trace.table["exact_tie"].to_list()
        steps = [step for step in payload.column(f"column_{side}").tolist() if step >= 0]
        assert steps == list(range(len(trace)))


def test_the_header_is_strict_json_and_its_columns_lie_on_multiples_of_eight():
    payload = summarise(made.comparison(texts=made.NASTY))
    assert json.loads(json.dumps(payload.header, allow_nan=False)) == payload.header
    ends = 0
    for entry in payload.header["blob"]:
        assert entry["offset"] % 8 == 0
        assert entry["offset"] >= ends, "columns overlap"
        ends = entry["offset"] + int(np.prod(entry["shape"])) * np.dtype(entry["dtype"]).itemsize
    assert ends == len(payload.blob)


def test_float64_runs_keep_their_digits():
    comparison = made.comparison(dtype="float64")
    logits = summarise(comparison).column("a_top_logits")
    assert logits.dtype == np.float64
    assert np.array_equal(logits, comparison.a.top_logits)


def test_every_id_that_can_be_seen_has_its_text_and_odd_bytes_are_kept():
    comparison = made.comparison(texts=made.NASTY)
    payload = summarise(comparison)
    seen = {*comparison.a.token_ids, *comparison.b.token_ids}
    seen |= {*comparison.a.top_ids.ravel().tolist(), *comparison.b.top_ids.ravel().tolist()}
    assert set(payload.column("vocabulary").tolist()) == seen
    for trace in (comparison.a, comparison.b):
        assert [payload.text(token) for token in trace.token_ids] == trace.texts
    half = comparison.a.texts.index("\\xe2\\x82")
    assert payload.header["bytes"] == {str(comparison.a.token_ids[half]): "e2 82"}


def test_marks_are_columns_and_the_split_is_selected():
    payload = summarise(made.comparison(n_steps=50, split=30, drift=7))
    header = payload.header
    assert (header["drift_column"], header["split_column"], header["selected"]) == (7, 30, 30)
    assert payload.column("column_a")[30] == payload.column("column_b")[30] == 30
    assert np.isnan(payload.column("epsilon")[31:]).all(), "no number between sides on other prefixes"


@pytest.mark.parametrize(("drift", "selected"), [(12, 12), (99, 0)])
def test_without_a_split_the_first_drift_is_selected_or_the_beginning(drift, selected):
    header = summarise(made.comparison(split=None, drift=drift)).header
    assert header["split"] is None
    assert header["split_column"] is None
    assert header["selected"] == selected


def test_streams_of_different_length_and_empty_ones_have_a_payload():
    short = summarise(made.comparison(n_steps=60, split=40, b_steps=44))
    assert len(short.column("b_token")) == 44
    nothing = summarise(made.comparison(n_steps=0, split=None, drift=0))
    assert nothing.header["columns"] == 0


def test_what_was_not_measured_is_absent():
    payload = summarise(made.comparison())
    assert payload.header["cascade"] is None
    assert payload.header["referee"] is None
    names = {entry["name"] for entry in payload.header["blob"]}
    assert not names & {"floor", "forced_kld"}


def test_what_was_measured_crosses_with_its_steps():
    comparison = made.comparison(evidence=True)
    payload = summarise(comparison)
    forced = comparison.evidence.forced
    kld = payload.column("forced_kld")
    assert kld[forced["step"].to_numpy()].tolist() == pytest.approx(forced["kld"].to_list())
    assert payload.header["cascade"]["sentence"] == str(comparison.evidence.cascade)
    assert payload.header["referee"]["text"] == comparison.evidence.referee.text
    assert [rung["dtype"] for rung in payload.header["ladder"]] == ["bfloat16", "float64"]


def test_numbers_that_json_does_not_know_are_null_and_listed():
    import dataclasses

    comparison = made.comparison()
    broken = dataclasses.replace(comparison, split=dataclasses.replace(comparison.split, epsilon=float("inf")))
    header = summarise(broken).header
    assert header["split"]["epsilon"] is None
    assert any(entry.startswith("split.epsilon") for entry in header["non_finite"])


def test_what_differs_is_told_on_both_sides():
    """As threads do, which no other word on the line would tell."""
    traces = [dx.run("fairy-tales", "The giant", {"num_threads": threads}, 2) for threads in (1, 2)]
    header = summarise(dx.compare_traces(*traces)).header
    assert [header[side]["label"].split(" · ")[-1] for side in ("a", "b")] == ["num threads 1", "num threads 2"]
    same = summarise(dx.compare_traces(traces[0], traces[0])).header
    assert "threads" not in same["a"]["label"]
