"""A trace on disk: read back equal, and each kind of wrong file refused by name."""

from __future__ import annotations

import json

import numpy as np
import polars as pl
import pytest
from tiny_models import tiny

from divexplore.engine.run import run
from divexplore.errors import FormatError, Refusal
from divexplore.models import load_model
from divexplore.trace import FORMAT, Trace, check_format, strict_json, trace_schema


@pytest.fixture(scope="module")
def trace():
    return run(load_model(tiny("llama")), [5, 6, 7, 8], {"batch_size": 2, "left_pad": 1}, 6)


@pytest.fixture
def saved(trace, tmp_path):
    return trace.save(tmp_path / "new" / "folder" / "trace.parquet")


def rewrite(path, *, table=None, facts=None, metadata=None):
    """Write another file over a saved trace, some part of it changed."""
    old = Trace.load(path)
    metadata = {"divexplore": json.dumps(old.meta | (facts or {}))} if metadata is None else metadata
    (old.table if table is None else table).write_parquet(path, metadata=metadata)
    return path


def refusal_of(path):
    with pytest.raises(FormatError) as caught:
        Trace.load(path)
    assert path.name in caught.value.asked
    assert caught.value.allowed
    assert caught.value.do
    return str(caught.value)


def test_a_row_a_step_with_the_documented_columns(trace):
    assert dict(trace.table.schema) == trace_schema(20)
    assert trace.table["step"].to_list() == list(range(6))
    assert trace.table["phase"].to_list() == ["prefill"] + ["decode"] * 5
    assert all(len(digest) == 16 for digest in trace.table["row_hash"])
    assert all(seconds > 0 for seconds in trace.table["seconds"])
    assert trace.table["bytes"].null_count() == 6, "a model without a tokenizer knows no bytes"


def test_a_model_with_a_tokenizer_gives_bytes_and_text(fairy_tales):
    trace = run(fairy_tales, "The giant", None, 8)
    assert b"".join(trace.table["bytes"]).decode(errors="replace") == trace.text
    assert trace.text == fairy_tales.tokenizer.decode(trace.token_ids)
    assert set(map(str, np.unique(trace.top_ids))) <= trace.meta["texts"].keys()


def test_the_top_list_as_arrays(trace):
    assert trace.top_ids.shape == trace.top_logits.shape == (6, 20)
    assert trace.top_ids[:, 0].tolist() == trace.token_ids
    assert trace.top_logits[:, 0].tolist() == trace.table["logit"].to_list()
    assert np.all(np.diff(trace.top_logits) <= 0)


def test_it_is_read_back_equal(trace, saved):
    again = Trace.load(saved)
    assert again == trace
    assert again.meta == trace.meta
    assert dict(again.table.schema) == dict(trace.table.schema)
    assert list(saved.parent.iterdir()) == [saved]


def test_equality_sees_every_part(trace):
    assert trace != Trace(trace.table.with_columns(pl.col("logit") + 1), trace.meta)
    assert trace != Trace(trace.table, trace.meta | {"partial": True})
    assert trace != "a trace"


def test_infinite_logits_are_read_back_equal(tmp_path):
    """Suppressed ids: most of the top list is -inf, margins can be infinite, ULPs of them not a number."""
    model = load_model(tiny("llama"))

    def suppress(module, args, output):
        output[..., 1:] = float("-inf")

    model.instance().lm_head.register_forward_hook(suppress)
    trace = run(model, [5, 6], None, 2)
    assert trace.token_ids == [0, 0]
    assert trace.table["margin"].to_list() == [np.inf, np.inf]
    assert trace.table["logprob"].to_list() == [0.0, 0.0]
    assert trace.table["entropy"].to_list() == [0.0, 0.0]
    assert Trace.load(trace.save(tmp_path / "t.parquet")) == trace


def test_a_missing_file_is_no_format_error(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"absent\.parquet"):
        Trace.load(tmp_path / "absent.parquet")


@pytest.mark.parametrize("path", [7, None, [], "", b"x", "a\0b"], ids=repr)
def test_what_is_no_path_is_refused(path):
    with pytest.raises(Refusal, match=r"Trace\.save") as caught:
        Trace.load(path)
    assert all(caught.value.to_dict().values())


def test_a_folder_is_no_trace(tmp_path):
    with pytest.raises(Refusal, match=r"Comparison\.load"):
        Trace.load(tmp_path)


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9, 0.999])
def test_a_truncated_file(saved, share):
    data = saved.read_bytes()
    saved.write_bytes(data[: int(len(data) * share)])
    assert "cannot be read as Parquet" in refusal_of(saved)


def test_a_file_of_noise(saved):
    saved.write_bytes(np.random.default_rng(0).bytes(4096))
    assert "cannot be read as Parquet" in refusal_of(saved)


def test_a_file_with_its_first_pages_overwritten(saved):
    data = bytearray(saved.read_bytes())
    data[4 : len(data) // 2] = bytes(len(data) // 2 - 4)
    saved.write_bytes(data)
    assert "Record it again" in refusal_of(saved)


def test_a_foreign_parquet_file(saved):
    pl.DataFrame({"a": [1]}).write_parquet(saved)
    assert "something else" in refusal_of(saved)


def test_facts_that_are_no_json(saved):
    rewrite(saved, metadata={"divexplore": '{"format": '})
    assert "corrupted" in refusal_of(saved)


@pytest.mark.parametrize("facts", ["[]", "3", '"divexplore.trace/1"', "{}"])
def test_facts_that_are_no_trace(saved, facts):
    rewrite(saved, metadata={"divexplore": facts})
    assert FORMAT in refusal_of(saved)


def test_a_trace_of_another_kind_of_file(saved):
    rewrite(saved, facts={"format": "divexplore.comparison/1"})
    assert "divexplore.comparison/1" in refusal_of(saved)


def test_a_newer_file(saved):
    rewrite(saved, facts={"format": "divexplore.trace/2"})
    assert "Upgrade divexplore" in refusal_of(saved)


def test_facts_with_a_part_missing(saved):
    kept = {key: value for key, value in Trace.load(saved).meta.items() if key != "effective"}
    rewrite(saved, metadata={"divexplore": json.dumps(kept)})
    assert "effective" in refusal_of(saved)


@pytest.mark.parametrize("change", ["dropped", "retyped"])
def test_other_columns(saved, change):
    table = Trace.load(saved).table
    table = table.drop("margin") if change == "dropped" else table.with_columns(pl.col("margin").cast(pl.Float32))
    rewrite(saved, table=table)
    assert "other columns" in refusal_of(saved)


@pytest.mark.parametrize(
    ("found", "accepted"),
    [("x/1", True), ("x/1.7", True), ("x/0", True), ("x/2", False), ("x/10.1", False), ("xy/1", False), ("x/", False)],
)
def test_a_reader_takes_its_own_major_version_and_older_ones(found, accepted):
    if accepted:
        check_format({"format": found}, "x/1", "a file")
    else:
        with pytest.raises(FormatError, match="a file"):
            check_format({"format": found}, "x/1", "a file")


def test_strict_json_turns_what_is_not_finite_into_null_and_lists_it():
    text = strict_json({"a": [1.5, float("nan")], "b": {"c": float("-inf")}, "d": (float("inf"),)})
    assert json.loads(text, parse_constant=pytest.fail) == {
        "a": [1.5, None],
        "b": {"c": None},
        "d": [None],
        "non_finite": ["a[1]=nan", "b.c=-inf", "d[0]=inf"],
    }
    assert "non_finite" not in strict_json({"a": 1.0})
