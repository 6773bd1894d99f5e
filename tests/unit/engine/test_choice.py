"""What follows a raw row: the ids that `generate` takes with the same settings and seed, and no logit moved by it."""

from __future__ import annotations

import functools

import pytest
import torch
from tiny_models import tiny
from transformers.generation import LogitsProcessorList, RepetitionPenaltyLogitsProcessor

import divexplore as dx
from divexplore.config import RunConfig
from divexplore.engine.choice import decode_path
from divexplore.engine.run import decode
from divexplore.errors import Refusal
from divexplore.models import load_model

PROMPT = [17, 4, 201, 96, 33, 150, 8, 77, 240, 5]
STEPS = 16
DRAWS = {
    "plain": {},
    "temperature and top_k": {"temperature": 0.7, "top_k": 20},
    "top_p": {"temperature": 1.3, "top_p": 0.8},
    "all": {"temperature": 0.9, "top_k": 50, "top_p": 0.95, "repetition_penalty": 1.2, "suppress_tokens": [9, 7]},
}


@functools.cache
def small(kind="llama"):
    return load_model(tiny(kind))


def generated(model, steps, *, dtype=None, seed=0, **options):
    """The ids of transformers' own loop, which draws from the generator that it finds."""
    given = torch.tensor([PROMPT])
    with torch.random.fork_rng(), torch.inference_mode():
        torch.manual_seed(seed)
        whole = model.to_transformers(dtype).generate(
            given,
            attention_mask=torch.ones_like(given),
            max_new_tokens=steps,
            pad_token_id=0,
            **{"do_sample": False, **options},
        )
    return whole[0, len(PROMPT) :].tolist()


@pytest.mark.parametrize("fields", DRAWS.values(), ids=DRAWS)
@pytest.mark.parametrize(("kind", "dtype"), [("llama", "float32"), ("gpt2", "float32"), ("llama", "bfloat16")])
def test_a_seed_draws_what_generate_draws(kind, dtype, fields):
    model, fields = small(kind), {"do_sample": True, **fields}
    trace = dx.run(model, PROMPT, {**fields, "dtype": dtype, "seed": 3}, STEPS)
    # without a top_k here there is none, where generate would take its default of 50
    assert trace.token_ids == generated(model, STEPS, dtype=dtype, seed=3, **{"top_k": 0, **fields})
    assert trace.token_ids != dx.run(model, PROMPT, {**fields, "dtype": dtype, "seed": 4}, STEPS).token_ids


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
@pytest.mark.parametrize("fields", [{"repetition_penalty": 1.5}, {"repetition_penalty": 0.8}], ids=str)
def test_a_penalty_takes_what_generate_takes(kind, fields):
    model = small(kind)
    trace = dx.run(model, PROMPT, fields, STEPS)
    assert trace.token_ids == generated(model, STEPS, **fields)
    assert trace.token_ids != dx.run(model, PROMPT, None, STEPS).token_ids


def test_suppressed_ids_are_never_taken_as_by_generate():
    plain = dx.run(small(), PROMPT, None, STEPS).token_ids
    fields = {"suppress_tokens": [plain[2], plain[5]]}
    trace = dx.run(small(), PROMPT, fields, STEPS)
    assert trace.token_ids == generated(small(), STEPS, **fields)
    assert not set(fields["suppress_tokens"]) & set(trace.token_ids)
    assert trace.top_ids[2, 0] == plain[2], "the raw row still leads with it"


class Window(RepetitionPenaltyLogitsProcessor):
    def __call__(self, input_ids, scores):
        return super().__call__(input_ids[:, -4:], scores)


@pytest.mark.parametrize(
    ("scope", "processor"),
    [
        ("all", RepetitionPenaltyLogitsProcessor(3.0)),
        ("output", RepetitionPenaltyLogitsProcessor(3.0, prompt_ignore_length=len(PROMPT))),
        (4, Window(3.0)),
    ],
    ids=str,
)
def test_the_scope_of_a_penalty_is_what_the_processor_sees(scope, processor):
    fields = {"repetition_penalty": 3.0, "penalty_scope": scope}
    trace = dx.run(small(), PROMPT, fields, 40)
    assert trace.token_ids == generated(small(), 40, logits_processor=LogitsProcessorList([processor]))


def test_what_is_recorded_is_the_row_before_any_processor():
    trace = dx.run(small(), PROMPT, {"do_sample": True, "seed": 1, **DRAWS["all"]}, STEPS)
    given = dx.force(small(), PROMPT, None, trace.token_ids)
    columns = ["token_id", "logit", "logprob", "margin", "top_ids", "top_logits", "row_hash"]
    assert trace.table.select(columns).equals(given.table.select(columns))
    assert (trace.table["logit"].to_numpy() < trace.top_logits[:, 0]).any(), "some draw was not the best one"


def test_the_seed_stays_within_the_run_and_given_tokens_draw_nothing():
    before = torch.get_rng_state()
    drawn = dx.run(small(), PROMPT, {"do_sample": True, "seed": 5}, 4)
    dx.force(small(), PROMPT, {"do_sample": True}, drawn.token_ids)
    assert torch.equal(torch.get_rng_state(), before)
    dx.run(small(), PROMPT, {"do_sample": True}, 4)
    assert not torch.equal(torch.get_rng_state(), before), "without a seed the process's own generator is used up"


@pytest.mark.parametrize("fields", [{"do_sample": True, "seed": 2}, {"repetition_penalty": 1.5}], ids=str)
def test_a_branch_goes_on_as_the_run_did(fields):
    whole = dx.run(small(), PROMPT, fields, STEPS)
    prompt = small().encode(PROMPT)
    branch = decode(small(), prompt, RunConfig.of(fields), STEPS, forced=whole.token_ids[:6])
    assert branch.token_ids == whole.token_ids


def test_copies_take_what_the_observed_row_takes_and_other_rows_stay_greedy():
    fields = {"do_sample": True, "seed": 2}
    copies = dx.run(small(), PROMPT, {**fields, "batch_size": 3, "row": 1}, 8)
    assert [row["token_ids"] for row in copies.meta["rows"]] == [copies.token_ids] * 3
    again = dx.force(small(), PROMPT, {**fields, "batch_size": 3, "row": 1}, copies)
    assert again.table["row_hash"].equals(copies.table["row_hash"])
    others = {"fill": [[9, 8, 7], [3] * 12]}
    drawn, greedy = dx.run(small(), PROMPT, {**fields, **others}, 8), dx.run(small(), PROMPT, others, 8)
    assert drawn.meta["rows"][1:] == greedy.meta["rows"][1:]
    assert drawn.token_ids != greedy.token_ids


def test_near_ties_are_found_along_a_run_that_samples():
    fields = {"do_sample": True, "seed": 6}
    found = dx.find_near_ties(small(), [PROMPT], fields, max_new_tokens=5).sort("step")
    trace = dx.run(small(), PROMPT, fields, 5)
    assert found["text"].to_list() == trace.texts
    assert found["margin"].equals(trace.table["margin"])


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({}, "greedy"),
        ({"do_sample": False, "seed": 4}, "greedy"),
        ({"repetition_penalty": 1.3}, "greedy, repetition_penalty 1.3 over all"),
        ({"repetition_penalty": 1.3, "penalty_scope": 20}, "greedy, repetition_penalty 1.3 over the last 20"),
        ({"suppress_tokens": [9, 7, 9]}, "greedy, suppress_tokens 7 9"),
        ({"do_sample": True, "temperature": 0.7, "top_k": 50, "seed": 3}, "sample, temperature 0.7, top_k 50"),
    ],
    ids=str,
)
def test_the_decode_path_is_told_in_words_and_recorded(fields, path):
    assert decode_path(RunConfig(**fields)) == path
    assert dx.run(small(), PROMPT, fields, 1).effective["decode"] == path


@pytest.mark.parametrize("ids", [[3, 257], list(range(257))], ids=["outside", "all of them"])
def test_ids_that_cannot_be_suppressed_are_refused(ids):
    with pytest.raises(Refusal, match="suppress_tokens"):
        dx.run(small(), PROMPT, {"suppress_tokens": ids}, 2)


def test_a_temperature_that_leaves_no_finite_score_ends_the_run_with_the_reason():
    with pytest.warns(RuntimeWarning, match="no finite score"):
        trace = dx.run(small(), PROMPT, {"do_sample": True, "temperature": 1e-45}, 3)
    assert trace.partial
    assert len(trace) == 0
