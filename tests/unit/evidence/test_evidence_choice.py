"""CASES 28, 35, 41 and 43: what chose the tokens differs or is a draw, and nobody is blamed for what it did."""

from __future__ import annotations

import pytest
import torch
from small_models import BENIGN, PROMPT, ids, nearly_tied, small
from tiny_models import tiny

import divexplore as dx
from divexplore.comparison.ladder import differing_knobs
from divexplore.engine import choice
from divexplore.errors import Refusal
from divexplore.models import load_model

LONG = ids(40)
CHUNKED = {"prefill_chunk": 16}
DRAWN = {"do_sample": True, "temperature": 0.7, "seed": 1}


def guard(found, name="greedy"):
    return next(guard for guard in found.guards if guard.name == name)


def without_path(trace):
    """The trace as it was written before the decode path was recorded."""
    effective = {name: value for name, value in trace.effective.items() if name != "decode"}
    return dx.Trace(trace.table, {**trace.meta, "effective": effective})


def test_case_28_a_greedy_pair_of_chunks_can_be_blamed():
    found = dx.compare(small(), LONG, {}, CHUNKED, 8)
    assert found.verdict in BENIGN
    assert guard(found).ok
    assert "blamed" not in found.why + found.next
    assert dx.attribute(small(), LONG, {}, CHUNKED, 3).fields == ("prefill_chunk",)


@pytest.mark.parametrize(
    ("b", "reason"),
    [
        ({**DRAWN, **CHUNKED}, None),
        ({**DRAWN, **CHUNKED, "seed": 2}, "the seeds differ (1 and 2)"),
        ({**DRAWN, **CHUNKED, "dtype": "bfloat16"}, "dtype differs as well"),
    ],
    ids=["not greedy", "another seed", "another dtype"],
)
def test_case_28_no_knob_is_blamed_while_tokens_are_drawn(b, reason):
    found = dx.compare(small(), LONG, DRAWN, b, 8, evidence="fast")
    assert "prefill_chunk can be neither blamed nor cleared: the decoding is not greedy" in found.why
    assert reason is None or reason in found.why
    assert "do_sample" in found.next
    assert guard(found).ok is False
    assert ("The seeds differ" in guard(found).why) == (b["seed"] != 1)
    assert found.verdict == "policy" or found.inconclusive
    with pytest.raises(Refusal, match="while tokens are sampled") as refused:
        dx.attribute(small(), LONG, DRAWN, b, 8)
    assert "do_sample" in refused.value.do


def test_case_28_one_side_that_draws_is_enough():
    found = dx.compare(small(), LONG, {}, {**DRAWN, **CHUNKED}, 8, evidence="fast")
    assert found.verdict == "policy"
    assert "(B: sample, temperature 0.7, seed 1)" in found.why
    with pytest.raises(Refusal, match="B: sample"):
        dx.attribute(small(), LONG, {}, {**DRAWN, **CHUNKED}, 8)


@pytest.mark.parametrize("b", [{"dtype": "bfloat16", **CHUNKED}, {"dtype": "bfloat16"}], ids=["with it", "alone"])
def test_case_28_another_dtype_beside_the_knob_is_named(b):
    found = dx.compare(small(), LONG, {}, b, 4, evidence="fast")
    named = "dtype differs as well: prefill_chunk alone is not to blame" in " ".join(found.judgement.evidence)
    assert named == ("prefill_chunk" in b)


def test_a_pair_that_draws_alike_is_equal_but_clears_nobody():
    found = dx.compare(small(), PROMPT, DRAWN, DRAWN, 8)
    assert found.verdict == "identical", "policy is what differs at the split, and there is none"
    assert found.inconclusive
    assert "No setting can be blamed" in found.why
    assert (found.a.table["logit"].to_numpy() < found.a.top_logits[:, 0]).any()


@pytest.mark.parametrize("fields", [{"top_k": 1}, {"temperature": 1e-3}], ids=str)
def test_case_35_other_encodings_of_greedy_are_other_decode_paths(fields):
    model, chosen, double = nearly_tied(1, apart=0)
    low, high = sorted((chosen, double))
    sides = ({"do_sample": True, **fields, "seed": seed} for seed in range(40))
    other = next(side for side in sides if dx.run(model, PROMPT, side, 6).token_ids[5] == high)
    found = dx.compare(model, PROMPT, {}, other, 6)
    path = f"A greedy; B sample, {' '.join(map(str, *fields.items()))}"
    assert found.verdict == "exact_tie"
    assert found.inconclusive
    assert found.first_divergence == 5
    assert (found.split.a.token_id, found.split.b.token_id) == (low, high)
    assert f"the decode paths differ: {path}" in found.judgement.evidence
    assert "No setting can be blamed" in found.why
    before = dx.compare(model, PROMPT, {}, other, 5)  # off the tie one token is left
    assert before.verdict == "identical"
    assert guard(before).ok is False
    assert path in guard(before).why


def test_case_41_a_penalty_in_force_on_one_of_two_greedy_front_ends_is_policy():
    model = small(seed=4)
    found = dx.compare(model, PROMPT, {}, {"repetition_penalty": 1.3}, 24)
    at = found.first_divergence
    assert found.verdict == "policy"
    assert not found.inconclusive
    assert found.judgement.also == ()
    assert "its decode path (greedy, repetition_penalty 1.3 over all) chose" in found.why
    assert "generation_config" in found.next
    assert found.a.table["row_hash"][at] == found.b.table["row_hash"][at], "the raw row is the same one"
    assert found.evidence.cascade.independent_flips == ()
    assert differing_knobs(found.a, found.b) == {"decode"}
    assert dx.attribute(model, PROMPT, {}, {"repetition_penalty": 1.3}, 24).minimal_flip == ("repetition_penalty",)


@pytest.mark.parametrize("a", [{"repetition_penalty": 1.3}, DRAWN], ids=str)
def test_what_a_choice_makes_of_equal_rows_is_no_flip(a):
    """B, forced on tokens that are not A's best ones, has the same best ones."""
    found = dx.compare(small(seed=4), PROMPT, a, {}, 24)
    assert found.a.table["token_id"][found.first_divergence] != found.a.top_ids[found.first_divergence, 0]
    assert found.evidence.cascade.independent_flips == ()
    assert "no flip under teacher forcing" in " ".join(found.judgement.evidence)


def test_case_41_a_penalty_in_the_models_generation_config_is_what_the_other_front_end_applies():
    model, given = small(seed=4), torch.tensor([PROMPT])
    net = model.to_transformers()
    before, net.generation_config.repetition_penalty = net.generation_config.repetition_penalty, 1.3
    try:
        whole = net.generate(given, attention_mask=torch.ones_like(given), max_new_tokens=24, pad_token_id=0)
        ours = dx.run(model, PROMPT, {"repetition_penalty": net.generation_config.repetition_penalty}, 24)
        ignoring = dx.run(model, PROMPT, None, 24)
    finally:
        net.generation_config.repetition_penalty = before
    assert ours.token_ids == whole[0, len(PROMPT) :].tolist()
    assert dx.compare_traces(ignoring, ours).verdict == "policy"


def test_case_40_what_the_models_generation_config_has_is_named_where_no_side_does_it():
    net = tiny("llama", 64, 4)
    net.generation_config.repetition_penalty = 1.3
    model = load_model(net)
    said = "the model's generation_config has repetition_penalty 1.3"
    plain = dx.compare(model, PROMPT, {}, {"batch_size": 2}, 4, evidence="fast")
    assert any(said in sentence for sentence in plain.judgement.evidence)
    asked = dx.compare(model, PROMPT, {}, {"repetition_penalty": 1.3}, 4, evidence="fast")
    assert not any("generation_config has" in sentence for sentence in asked.judgement.evidence)
    other = dx.compare(small(seed=4), PROMPT, {}, {"batch_size": 2}, 4, evidence="fast")
    assert not any("generation_config has" in sentence for sentence in other.judgement.evidence)


def test_why_says_what_makes_a_verdict_inconclusive():
    """The same penalty on both sides: every token is chosen by it, so that the raw rows tell nothing of the choice."""
    side = {"repetition_penalty": 1.3}
    found = dx.compare(small(seed=4), PROMPT, side, side | {"batch_size": 4}, 12)
    assert found.inconclusive
    assert "Inconclusive: the check greedy failed." in found.why


def test_case_43_a_penalty_over_the_prompt_differs_at_step_0_and_the_scopes_are_named():
    model = small(seed=2)
    scopes = {scope: {"repetition_penalty": 1.2, "penalty_scope": scope} for scope in ("all", "output", 20)}
    prompts = ([token] * 24 for token in range(257))
    prompt = next(
        prompt
        for prompt in prompts
        if dx.run(model, prompt, None, 1).token_ids == prompt[:1]
        and dx.run(model, prompt, scopes["all"], 1).token_ids != prompt[:1]
    )
    found = dx.compare(model, prompt, scopes["output"], scopes["all"], 4)
    assert found.verdict == "policy"
    assert found.first_divergence == 0
    assert found.why.startswith("B took")
    assert "A greedy, repetition_penalty 1.2 over output; B greedy, repetition_penalty 1.2 over all" in "".join(
        found.judgement.evidence
    )
    window = dx.compare(model, prompt, scopes[20], scopes["all"], 4, evidence="fast")
    assert window.first_divergence != 0, "of one repeated token the last 20 say as much as all"


def test_case_43_a_window_forgets_what_lies_before_it():
    model = small(seed=2)
    sides = {scope: {"repetition_penalty": 8.0, "penalty_scope": scope} for scope in ("all", "output", 20)}
    for seed in range(200):
        prompt = ids(40, seed)
        best = dx.run(model, prompt, None, 1).token_ids[0]
        if best in prompt[:20] and best not in prompt[20:]:
            break
    found = dx.compare(model, prompt, sides[20], sides["all"], 2)
    assert found.first_divergence == 0
    assert found.verdict == "policy"
    assert "repetition_penalty 8.0 over the last 20" in "".join(found.judgement.evidence)
    assert dx.run(model, prompt, sides["output"], 1).token_ids == [best]


def test_a_penalty_on_both_sides_is_no_policy_where_nothing_parts():
    found = dx.compare(small(), PROMPT, {"repetition_penalty": 1.5}, {"repetition_penalty": 1.5}, 12)
    assert (found.a.table["logit"].to_numpy() < found.a.top_logits[:, 0]).any()
    assert found.verdict == "identical"


@pytest.mark.parametrize("fields", [{**DRAWN}, {"repetition_penalty": 1.5}], ids=str)
def test_full_evidence_raises_no_alarm_over_a_choice(fields):
    found = dx.compare(small(), PROMPT, fields, {**fields, "batch_size": 3}, 8, evidence="full")
    assert guard(found, "observer").ok
    assert found.evidence.unsteady is None
    assert found.evidence.state_leak is None
    assert found.evidence.structural is None
    if found.split is None:
        assert any("another one at 0 of 8 steps" in note for note in found.evidence.notes)


def test_draws_without_a_seed_are_called_so_and_not_a_leak():
    drawn = {"do_sample": True, "temperature": 1.5}
    found = dx.compare(small(), PROMPT, drawn, drawn, 6, evidence="full")
    assert "A samples without a seed" in found.evidence.unsteady
    assert found.evidence.state_leak is None
    assert found.inconclusive
    assert "without a seed no draw repeats" in found.why
    assert guard(found, "observer").ok is None


def test_a_draw_that_was_given_back_is_no_draw():
    drawn = dx.run(small(), PROMPT, DRAWN, 6)
    found = dx.compare_traces(dx.force(small(), PROMPT, DRAWN, drawn), dx.force(small(), PROMPT, None, drawn))
    assert guard(found).ok
    assert "blamed" not in found.why


def test_a_branch_of_a_run_that_draws_ends_as_the_run_where_the_token_is_its_own():
    found = dx.compare(small(), PROMPT, DRAWN, {**DRAWN, "seed": 2}, 6, evidence="fast")
    assert found.fork("b", 2, found.b.token_ids[2]).token_ids == found.b.token_ids


def test_a_line_on_a_run_names_what_chose_its_tokens():
    assert "sample" not in repr(dx.run(small(), PROMPT, {"seed": 1}, 2))
    assert repr(dx.run(small(), PROMPT, DRAWN, 2)).endswith(
        f"{choice.decode_path(dx.RunConfig(**DRAWN))} · seed {DRAWN['seed']}>"
    )
    assert repr(dx.run(small(), PROMPT, {"repetition_penalty": 1.5}, 2)).endswith("repetition_penalty 1.5 over all>")


def test_a_record_without_a_decode_path_counts_as_greedy():
    new = dx.run(small(), PROMPT, None, 4)
    penalised = dx.run(small(), PROMPT, {"repetition_penalty": 1.5}, 4)
    old = without_path(new)
    for pair in ((old, new), (new, old)):
        assert differing_knobs(*pair) == set()
        assert "differs same effective configuration" in str(dx.compare_traces(*pair))
    for pair in ((old, penalised), (penalised, old)):
        assert differing_knobs(*pair) == {"decode"}
        assert "repetition_penalty 1.5 over all" in str(dx.compare_traces(*pair))
