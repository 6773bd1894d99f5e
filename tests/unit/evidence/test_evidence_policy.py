"""CASES 36, 40, 41, 43, 45, 48, 52 and 55: what decided was not the numbers, or the numbers are not those asked for."""

from __future__ import annotations

import pytest
import torch
from small_models import PROMPT, ids, nearly_tied, small
from tiny_models import tiny

import divexplore as dx
from divexplore.config import RunConfig
from divexplore.engine.run import decode
from divexplore.models import load_model


def generated(model, prompt, steps, **options):
    """The ids that transformers' own `generate` takes with a processor in force."""
    given = torch.tensor([prompt])
    net = model.to_transformers()
    with torch.inference_mode():
        whole = net.generate(
            given,
            attention_mask=torch.ones_like(given),
            do_sample=False,
            max_new_tokens=steps,
            pad_token_id=0,
            **options,
        )
    return whole[0, len(prompt) :].tolist()


def taken(model, prompt, tokens):
    """A trace of tokens that somebody else chose: the raw rows of the same prefix."""
    trace = dx.force(model, prompt, None, tokens)
    return dx.Trace(trace.table, trace.meta | {"forced": 0})


def assert_policy(found):
    assert found.verdict == "policy"
    assert not found.inconclusive
    assert "raw maximum" in found.why
    assert "generation_config" in found.next


def test_case_36_two_argmax_rules_on_one_exact_tie():
    model, chosen, double = nearly_tied(1, apart=0)
    low, high = sorted((chosen, double))
    lowest = dx.run(model, PROMPT, None, 6)
    highest = taken(model, PROMPT, [*lowest.token_ids[:5], high])
    assert lowest.token_ids[5] == low
    found = dx.compare_traces(lowest, highest)
    assert found.verdict == "exact_tie"
    assert found.first_divergence == 5
    assert (found.split.a.gap, found.split.b.gap) == (0, 0)
    assert repr(found.split.a.text) in found.why
    assert repr(found.split.b.text) in found.why
    assert "A took the lowest of 2 ids, B took the highest of 2 ids" in found.why


@pytest.mark.parametrize("option", [{"repetition_penalty": 1.3}, {"suppress_tokens": None}], ids=["40, 41", "52"])
def test_cases_40_41_52_a_penalty_or_a_suppressed_id_is_policy(option):
    model = small(seed=4)
    plain = dx.run(model, PROMPT, None, 24)
    if "suppress_tokens" in option:
        option = {"suppress_tokens": [plain.token_ids[6], 9]}
    other = generated(model, PROMPT, 24, **option)
    assert other != plain.token_ids, "the option changes the text"
    found = dx.compare_traces(plain, taken(model, PROMPT, other))
    assert_policy(found)
    at = found.first_divergence
    assert found.a.table["row_hash"][at] == found.b.table["row_hash"][at], "the raw row is the same one"
    assert found.b.top_ids[at, 0] == plain.token_ids[at] != other[at]
    assert found.why.startswith("B took")
    forced = dx.compare(model, PROMPT, {}, option, 24).evidence.forced
    assert (forced["kld"] == 0).all(), "of raw rows, which no processor has touched"


def test_case_43_whether_prompt_tokens_are_penalised_is_seen_at_step_0():
    model, best = small(seed=2), None
    for token in range(257):  # a prompt of one repeated token that the model would go on repeating
        best = [token] * 6
        if dx.run(model, best, None, 1).token_ids == [token]:
            break
    counted = generated(model, best, 4, repetition_penalty=8.0)
    found = dx.compare_traces(dx.run(model, best, None, 4), taken(model, best, counted))
    assert_policy(found)
    assert found.first_divergence == 0


def test_case_45_zero_is_a_value_and_not_unset():
    zeros = RunConfig(left_pad=0, row=0, seed=0, use_cache=False, deterministic=False)
    assert zeros.to_dict() == {"left_pad": 0, "row": 0, "seed": 0, "use_cache": False, "deterministic": False}
    assert RunConfig.parse("left_pad=0,seed=0") == RunConfig(left_pad=0, seed=0)
    assert dx.run(small(), PROMPT, zeros, 2).requested == zeros.to_dict()
    assert dx.run(small(), PROMPT, {"use_cache": False}, 2).effective["use_cache"] is False


def test_case_45_a_temperature_of_zero_is_refused_and_what_ran_is_told():
    """One client drops it as falsy, one engine refuses it: greedy has a name of its own here."""
    with pytest.raises(dx.Refusal, match="temperature=0"):
        RunConfig(do_sample=True, temperature=0.0)
    found = dx.compare(small(seed=4), PROMPT, {}, {"do_sample": True, "seed": 1}, 24)
    assert (found.a.effective["decode"], found.b.effective["decode"]) == ("greedy", "sample")
    assert found.verdict == "policy"
    assert any("the decode paths differ: A greedy; B sample" in sentence for sentence in found.judgement.evidence)


def test_case_48_a_first_token_twice_is_a_prompt_mismatch_and_the_end_of_it():
    once, twice = (dx.run(small(), [1] * times + PROMPT, None, 6) for times in (1, 2))
    found = dx.compare_traces(once, twice)
    assert found.verdict == "prompt_mismatch"
    assert found.judgement.also == ()
    assert found.steps.height == 0
    assert found.split is None
    assert "B begins with id 1 twice" in found.why


def test_another_stop_rule_is_policy():
    whole = dx.run(small(), PROMPT, None, 9)
    ending = load_model(tiny("llama", 64, 1))
    ending.eos_ids = frozenset({whole.token_ids[5]})
    found = dx.compare_traces(dx.run(ending, PROMPT, None, 9), whole)
    assert found.verdict == "policy"
    assert "A ended by eos" in found.why
    assert "stop rules" in found.why


def test_more_steps_are_no_other_rule_the_common_ones_are_compared():
    found = dx.compare_traces(dx.run(small(), PROMPT, None, 6), dx.run(small(), PROMPT, None, 9))
    assert found.verdict == "identical"
    assert not found.inconclusive
    assert "over 6 steps (B has 3 more, which nothing is compared with)" in found.why


def test_case_55_the_divergence_is_over_the_whole_vocabulary_and_stops_at_the_split():
    """Five tokens and a tail give a lower bound; and what was not measured is null, not zero."""
    rows = {}
    model = small()
    sides = [{"dtype": "float32"}, {"dtype": "bfloat16"}]
    found = dx.compare(model, PROMPT, *sides, 12)
    tokens = found.a.token_ids
    for name, side in zip("ab", sides):
        seen = rows.setdefault(name, [])
        decode(
            model,
            model.encode(PROMPT),
            RunConfig.of(side),
            12,
            forced=tokens,
            on_row=lambda step, row, token, seen=seen: seen.append(row.double().log_softmax(-1)),
        )
    for step, full in enumerate(found.evidence.forced["kld"]):
        log_a, log_b = rows["a"][step], rows["b"][step]
        top = log_a.topk(5).indices
        p, q = (torch.cat([x.exp()[top], (1 - x.exp()[top].sum()).reshape(1)]) for x in (log_a, log_b))
        assert float((p * (p / q).log()).sum()) <= full + 1e-12
        assert full == pytest.approx(float((log_a.exp() * (log_a - log_b)).sum()), rel=1e-9, abs=1e-15)
    records = dx.compare_traces(found.a, found.b)
    assert records.steps["epsilon"].null_count() == records.steps.height
    split = records.first_divergence
    assert records.steps.height == (12 if split is None else split + 1)


def test_a_shifted_stream_is_recognised():
    tokens = ids(16, 7)
    a = taken(small(), PROMPT, tokens)
    b = taken(small(), PROMPT, [*tokens[:4], *tokens[5:]])
    found = dx.compare_traces(a, b)
    assert any("B's stream is A's shifted by one" in sentence for sentence in found.judgement.evidence)
    assert any("at step 4" in sentence for sentence in found.judgement.evidence)
