"""What a configuration accepts, how it is written, and what it answers to a wrong request."""

from __future__ import annotations

import json
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from divexplore.config import DTYPES, PRESETS, RunConfig
from divexplore.errors import Refusal


def refused(**fields):
    with pytest.raises(Refusal) as caught:
        RunConfig(**fields)
    refusal = caught.value
    assert refusal.asked
    assert refusal.allowed
    assert refusal.do
    return refusal


@pytest.mark.parametrize(
    ("fields", "asked", "allowed"),
    [
        ({"dtype": "float23"}, "float23", "float32"),
        ({"dtype": "int8"}, "int8", "bfloat16"),
        ({"batch_size": 0}, "batch_size=0", "1 or more"),
        ({"batch_size": -8}, "batch_size=-8", "1 or more"),
        ({"batch_size": 4097}, "4097", "4096"),
        ({"batch_size": True}, "True", "whole number"),
        ({"batch_size": 2.0}, "2.0", "whole number"),
        ({"batch_size": "8"}, "'8'", "whole number"),
        ({"row": -1, "batch_size": 2}, "row=-1", "0 or more"),
        ({"row": 2, "batch_size": 2}, "row=2", "0 to 1"),
        ({"row": 1}, "row=1", "0 to 0"),
        ({"row": 2, "fill": ["a"]}, "row=2", "0 to 1"),
        ({"left_pad": -3}, "left_pad=-3", "0 or more"),
        ({"prefill_chunk": 0}, "prefill_chunk=0", "1 or more"),
        ({"num_threads": 0}, "num_threads=0", "1 or more"),
        ({"seed": -1}, "seed=-1", "0 or more"),
        ({"use_cache": 1}, "use_cache=1", "True, False"),
        ({"deterministic": "yes"}, "deterministic='yes'", "True, False"),
        ({"float32_matmul_precision": "low"}, "'low'", "highest, high, medium"),
        ({"prefill_chunk": 4, "use_cache": False}, "use_cache=False", "with a cache"),
        ({"fill": "zeros"}, "'zeros'", "copies"),
        ({"fill": 3}, "fill=3", "texts"),
        ({"fill": ["a", 3]}, "3", "a text or a list"),
        ({"fill": ["a", [1, -2]]}, "[1, -2]", "a text or a list"),
        ({"fill": ["a", ""]}, "an empty entry", "at least one token"),
        ({"fill": ["a", []]}, "an empty entry", "at least one token"),
        ({"fill": ["a", "b"], "batch_size": 2}, "batch_size=2", "batch_size=3"),
        ({"do_sample": 1}, "do_sample=1", "True, False"),
        ({"do_sample": True, "temperature": 0.0}, "temperature=0", "above 0"),
        ({"do_sample": True, "temperature": float("inf")}, "temperature=inf", "above 0"),
        ({"do_sample": True, "temperature": "0.7"}, "'0.7'", "a number"),
        ({"do_sample": True, "temperature": False}, "False", "a number"),
        ({"do_sample": True, "top_k": 0}, "top_k=0", "1 or more"),
        ({"do_sample": True, "top_p": 1.5}, "top_p=1.5", "up to 1"),
        ({"do_sample": True, "top_p": 0.0}, "top_p=0.0", "above 0"),
        ({"temperature": 0.7, "top_p": 0.9}, "temperature and top_p without", "do_sample=True"),
        ({"top_k": 5, "do_sample": False}, "top_k without", "do_sample=True"),
        ({"repetition_penalty": -1.0}, "repetition_penalty=-1.0", "above 0"),
        ({"penalty_scope": "all"}, "without repetition_penalty", "both"),
        ({"repetition_penalty": 1.3, "penalty_scope": "prompt"}, "'prompt'", "'output'"),
        ({"repetition_penalty": 1.3, "penalty_scope": 0}, "penalty_scope=0", "1 or more"),
        ({"repetition_penalty": 1.3, "penalty_scope": True}, "True", "'all'"),
        ({"suppress_tokens": []}, "suppress_tokens=[]", "at least one"),
        ({"suppress_tokens": [7, -1]}, "-1", "token ids"),
        ({"suppress_tokens": "7"}, "'7'", "token ids"),
    ],
)
def test_a_wrong_value_is_refused_with_what_is_allowed(fields, asked, allowed):
    refusal = refused(**fields)
    assert asked in refusal.asked
    assert allowed in refusal.allowed


@pytest.mark.parametrize(("wrong", "right"), [("batchsize", "batch_size"), ("dtyp", "dtype"), ("left-pad", "left_pad")])
def test_an_unknown_field_is_refused_with_the_nearest_name(wrong, right):
    with pytest.raises(Refusal) as caught:
        RunConfig.of({wrong: 1})
    assert wrong in caught.value.asked
    assert right in caught.value.do


@pytest.mark.parametrize("value", [3, "dtype=bfloat16", ["dtype"]])
def test_what_is_no_mapping_is_refused(value):
    with pytest.raises(Refusal, match=type(value).__name__):
        RunConfig.of(value)


@pytest.mark.parametrize(
    ("short", "full"), [("bf16", "bfloat16"), ("fp16", "float16"), ("fp32", "float32"), ("torch.float64", "float64")]
)
def test_short_and_torch_names_of_dtypes_mean_the_same(short, full):
    assert RunConfig(dtype=short) == RunConfig(dtype=full)


def test_nothing_set_changes_nothing():
    assert RunConfig().to_dict() == {}
    assert RunConfig.of(None) == RunConfig.of({}) == RunConfig.parse("") == RunConfig()


CHOICES = st.fixed_dictionaries(
    {},
    optional={
        "do_sample": st.just(True),
        "temperature": st.floats(1e-6, 10),
        "top_k": st.integers(1, 99),
        "top_p": st.floats(0.01, 1.0),
        "repetition_penalty": st.floats(0.1, 10),
        "penalty_scope": st.sampled_from(["all", "output", 20]),
    },
).filter(
    lambda fields: (
        ("do_sample" in fields or not fields.keys() & {"temperature", "top_k", "top_p"})
        and ("repetition_penalty" in fields or "penalty_scope" not in fields)
    )
)
CONFIGS = st.builds(
    lambda choice, **fields: RunConfig(**choice, **fields),
    choice=CHOICES,
    dtype=st.none() | st.sampled_from(DTYPES),
    batch_size=st.none() | st.integers(1, 64),
    left_pad=st.none() | st.integers(0, 9),
    attn_implementation=st.none() | st.sampled_from(["eager", "sdpa"]),
    use_cache=st.sampled_from([None, True]),
    prefill_chunk=st.none() | st.integers(1, 64),
    num_threads=st.none() | st.integers(1, 4),
    deterministic=st.none() | st.booleans(),
    float32_matmul_precision=st.none() | st.sampled_from(["highest", "high", "medium"]),
    mkldnn=st.none() | st.booleans(),
    seed=st.none() | st.integers(0, 9),
)


@given(CONFIGS)
def test_it_survives_a_mapping_json_the_command_line_and_a_process(config):
    fields = config.to_dict()
    assert RunConfig.of(fields) == config
    assert RunConfig.of(json.loads(json.dumps(fields))) == config
    assert RunConfig.parse(",".join(f"{key}={value}" for key, value in fields.items())) == config
    assert pickle.loads(pickle.dumps(config)) == config


@given(CONFIGS, CONFIGS)
def test_the_difference_names_exactly_the_fields_that_differ(one, other):
    names = one.difference(other)
    assert names == other.difference(one)
    assert one.replace(**{name: getattr(other, name) for name in names}) == other
    for name in names:
        assert getattr(one, name) != getattr(other, name)


def test_filled_rows_give_the_batch_size_and_survive_json():
    config = RunConfig(fill=["a", [1, 2]], row=2)
    assert config.rows == config.batch_size == 3
    assert RunConfig.of(json.loads(json.dumps(config.to_dict()))) == config


def test_a_later_change_of_the_list_does_not_reach_in():
    rows = [[1, 2], [3]]
    config = RunConfig(fill=rows)
    rows[0].append(9)
    assert config.fill == ((1, 2), (3,))
    assert hash(config) == hash(RunConfig(fill=[[1, 2], [3]]))


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("batch_size", "batch_size"),
        ("batch_size=", "batch_size="),
        ("batch_size=eight", "batch_size=eight"),
        ("batch_size=8,batch_size=1", "twice"),
        ("use_cache=maybe", "use_cache=maybe"),
        ("batchsize=8", "batchsize"),
        ("row=9,batch_size=2", "row=9"),
        ("do_sample=true,temperature=warm", "temperature=warm"),
        ("suppress_tokens=7+x", "suppress_tokens=7+x"),
    ],
)
def test_a_wrong_line_is_refused(text, part):
    with pytest.raises(Refusal) as caught:
        RunConfig.parse(text)
    assert part in caught.value.asked


def test_the_command_line_spells_flags_and_none_as_people_do():
    assert RunConfig.parse("use_cache=off, deterministic=YES ,seed=none") == RunConfig(
        use_cache=False, deterministic=True
    )


def test_ids_are_a_set_and_have_one_name():
    config = RunConfig(suppress_tokens=[9, 7, 9])
    assert config == RunConfig(suppress_tokens=(7, 9)) == RunConfig.parse("suppress_tokens=9+7")
    assert RunConfig.of(json.loads(json.dumps(config.to_dict()))) == config
    assert hash(config) == hash(RunConfig(suppress_tokens=[7, 9]))


def test_a_whole_number_is_a_number():
    assert RunConfig(do_sample=True, temperature=1) == RunConfig(do_sample=True, temperature=1.0)
    assert RunConfig.parse("do_sample=true,temperature=0.7,seed=1") == RunConfig(
        do_sample=True, temperature=0.7, seed=1
    )


def test_of_greedy_the_refusal_of_temperature_0_says_how_it_is_asked_for():
    assert "greedy" in refused(temperature=0).do
    assert RunConfig(do_sample=False).to_dict() == {"do_sample": False}, "unset is another wish"


@pytest.mark.parametrize("preset", PRESETS.values(), ids=PRESETS)
def test_the_sides_of_a_preset_differ_in_one_field(preset):
    assert len(preset.a.difference(preset.b)) == 1


def test_a_seed_is_what_torch_takes():
    with pytest.raises(Refusal, match=r"2\*\*64 - 1"):
        RunConfig(seed=2**64)
    assert RunConfig(seed=2**64 - 1).seed == 2**64 - 1


def test_whole_numbers_of_numpy_are_taken_as_pythons_own():
    config = RunConfig(batch_size=np.int64(8), left_pad=np.int32(5))
    assert type(config.batch_size) is int
    assert config == RunConfig(batch_size=8, left_pad=5)
    for wrong in (np.float64(8.0), np.bool_(True), "8", np.arange(2)):
        with pytest.raises(Refusal, match="a whole number"):
            RunConfig(batch_size=wrong)
