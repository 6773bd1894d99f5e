"""Teacher forcing feeds given tokens in the same shapes: on a run's own tokens it is that run."""

from __future__ import annotations

import functools

import pytest
from tiny_models import tiny

from divexplore.config import RunConfig
from divexplore.engine.run import decode, force, run
from divexplore.errors import Refusal
from divexplore.models import load_model

PROMPT = [17, 4, 201, 96, 33, 150, 8, 77, 240, 5]
STEPS = 8


@functools.cache
def small(kind="llama", **changes):
    return load_model(tiny(kind, **changes))


def hashes(trace):
    return trace.table["row_hash"].to_list()


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"dtype": "bfloat16", "batch_size": 8},
        {"dtype": "float16", "left_pad": 3},
        {"use_cache": False},
        {"prefill_chunk": 4},
        {"attn_implementation": "eager"},
        {"fill": [[9, 8, 7], [60] * 12], "row": 1},
    ],
    ids=str,
)
@pytest.mark.parametrize("kind", ["llama", "gpt2", "mistral", "bloom"])
def test_forced_on_its_own_tokens_a_run_repeats_every_bit(kind, config):
    free = run(small(kind), PROMPT, config, STEPS)
    forced = force(small(kind), PROMPT, config, free)
    assert hashes(forced) == hashes(free)
    assert forced.token_ids == free.token_ids
    assert forced.meta["rows"] == free.meta["rows"]
    assert forced.table.drop("seconds").equals(free.table.drop("seconds"))


def test_the_other_rows_are_replayed_where_they_would_have_gone_elsewhere():
    """Forcing B on A's tokens must not let a filler react: it gets the ids that it had in B's free run."""
    config = {"fill": [[9, 8, 7], [60] * 12], "row": 1}
    free = run(small(), PROMPT, config, STEPS)
    altered = [row["token_ids"] for row in free.meta["rows"]]
    altered[0] = [(token + 1) % 257 for token in altered[0]]
    rows = [row | {"token_ids": ids} for row, ids in zip(free.meta["rows"], altered)]
    recorded = type(free)(free.table, free.meta | {"rows": rows})
    forced = force(small(), PROMPT, config, free.token_ids, fillers=recorded)
    assert [row["token_ids"] for row in forced.meta["rows"]] == altered


def test_copies_get_the_given_tokens():
    given = [1, 2, 3, 4]
    forced = force(small(), PROMPT, {"batch_size": 4}, given)
    assert [row["token_ids"] for row in forced.meta["rows"]] == [given] * 4


def test_a_forced_token_is_recorded_with_its_own_logit():
    """The step shows the row that predicts the given token, not the token that the row would have chosen."""
    rows = []
    model = small()
    given = [250, 251]
    forced = decode(
        model, model.encode(PROMPT), RunConfig(), 2, forced=given, on_row=lambda *seen: rows.append(seen[1].clone())
    )
    for step, row in enumerate(rows):
        assert row.argmax() == forced.top_ids[step, 0] != given[step]
        assert forced.table["logit"][step] == row[given[step]]
        assert forced.table["logprob"][step] == pytest.approx(float(row.double().log_softmax(-1)[given[step]]))
        assert forced.table["margin"][step] == forced.top_logits[step, 0] - forced.top_logits[step, 1]


def test_a_prefix_is_forced_and_then_the_run_goes_on_by_itself():
    model, prompt = small(), small().encode(PROMPT)
    free = run(model, PROMPT, None, STEPS)
    half = decode(model, prompt, RunConfig(), STEPS, forced=free.token_ids[:3])
    assert hashes(half) == hashes(free)


def test_a_fork_goes_its_own_way_from_the_forced_token_on():
    """In fp64 what follows a forced token is what follows the prompt with that token appended."""
    model, prompt, config = small(), small().encode(PROMPT), RunConfig(dtype="float64")
    free = decode(model, prompt, config, STEPS)
    other = int(free.top_ids[3, 1])
    prefix = [*free.token_ids[:3], other]
    fork = decode(model, prompt, config, STEPS, forced=prefix)
    assert hashes(fork)[:4] == hashes(free)[:4], "the row that was overruled is still the same row"
    assert hashes(fork)[4] != hashes(free)[4]
    assert fork.token_ids[:4] == prefix
    assert fork.token_ids[4:] == run(model, [*PROMPT, *prefix], config, STEPS - 4).token_ids


def test_an_end_of_sequence_among_the_given_tokens_does_not_end_a_forced_run():
    model = small(eos_token_id=7)
    forced = force(model, PROMPT, None, [7, 7, 1])
    assert forced.token_ids == [7, 7, 1]
    assert forced.finish_reason == "length"


@pytest.mark.parametrize("token", [-1, 257])
def test_a_forced_id_outside_the_vocabulary_is_refused(token):
    with pytest.raises(Refusal, match="0 to 256") as caught:
        force(small(), PROMPT, None, [1, token])
    assert str(token) in caught.value.asked
