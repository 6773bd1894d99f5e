"""Laws that hold for every pair, bugs included: the floor, the flips, and that forcing is the run itself."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from small_models import PROMPT, small

import divexplore as dx
from divexplore.comparison.align import align, first_divergence
from divexplore.comparison.cascade import cascade_of
from divexplore.comparison.evidence import Cascade, Flip
from divexplore.comparison.ladder import TopRung, structural_part
from divexplore.testing import faults
from divexplore.ulp import UNIT_ROUNDOFF

SIDES = (
    {},
    {"batch_size": 4},
    {"left_pad": 3},
    {"use_cache": False},
    {"attn_implementation": "eager"},
    {"prefill_chunk": 3},
)
DTYPES = ("float32", "bfloat16", "float16")


@settings(max_examples=20)
@given(
    kind=st.sampled_from(["llama", "gpt2", "mistral", "mixtral"]),
    seed=st.integers(0, 3),
    sides=st.tuples(st.sampled_from(SIDES), st.sampled_from(SIDES)),
    dtypes=st.tuples(st.sampled_from(DTYPES), st.sampled_from(DTYPES)),
    buggy=st.booleans(),
)
def test_epsilon_is_at_most_what_both_sides_round_and_what_is_left_on_top(kind, seed, sides, dtypes, buggy):
    a, b = ({**side, "dtype": dtype} for side, dtype in zip(sides, dtypes))
    with faults.mask_dropped() if buggy else contextlib.nullcontext():
        found = dx.compare(small(kind, seed=seed), PROMPT, a, b, 8)
        forced = dx.force(small(kind, seed=seed), PROMPT, b, found.a.token_ids, fillers=found.b)
    evidence = found.evidence
    covered = evidence.floor.height
    assert covered >= min(8, 1 if found.split is None else found.split.step + 1)
    for row, epsilon in zip(evidence.floor.iter_rows(named=True), evidence.forced["epsilon"]):
        assert row["floor"] == row["e_a"] + row["e_b"]
        assert epsilon <= (row["floor"] + row["top"]) * (1 + 1e-12)
    assert evidence.forced.height == len(found.a)
    assert (evidence.forced["kld"] >= 0).all()
    equal = evidence.forced.filter(evidence.forced["epsilon"] == 0)
    assert (equal["kld"] == 0).all()
    common = found.steps.height
    assert found.steps["epsilon"].to_list() == evidence.forced["epsilon"][:common].to_list(), (
        "forcing repeats the prefix"
    )
    if found.split is not None:
        flips, cascade = evidence.cascade.independent_flips, evidence.cascade
        assert flips[0].step == found.split.step
        assert flips[0].gap == found.split.b.gap
        assert all(0 <= flip.gap <= 2 * flip.epsilon for flip in flips)
        assert 1 <= cascade.differing_tokens <= cascade.later_tokens
        assert evidence.referee.token_id in (found.split.a.token_id, found.split.b.token_id)
        assert evidence.referee.undecided or evidence.referee.gap >= 2 * evidence.floor["top"][found.split.step]
        assert [step for step, best in enumerate(forced.top_ids[:, 0]) if best != found.a.token_ids[step]] == [
            flip.step for flip in flips
        ]


def rung(epsilon, largest=16.0, vacuous=False, side=0.0):
    sides = [side] * len(epsilon)
    return TopRung("float64", vacuous, epsilon, epsilon, sides, sides, [largest] * len(epsilon), None)


@given(
    dtype=st.sampled_from(DTYPES),
    pair=st.lists(st.floats(1e-9, 4.0), min_size=3, max_size=3),
    share=st.floats(1e-3, 1e3),
    at=st.integers(0, 2),
)
def test_what_is_above_both_bounds_is_structural_and_nothing_else(dtype, pair, share, at):
    bound = max(2.0**10 * UNIT_ROUNDOFF["float64"] / UNIT_ROUNDOFF[dtype] * max(pair), 2.0**-40 * 16.0)
    epsilon = [0.0, 0.0, 0.0]
    epsilon[at] = share * bound
    expected = epsilon[at] if epsilon[at] > bound else None
    assert structural_part(rung(epsilon), pair, dtype, None) == expected
    # a rung on which the knobs do nothing shows nothing while it vanishes, and all the more where it does not
    assert structural_part(rung(epsilon, vacuous=True), pair, dtype, None) == expected


@given(dtype=st.sampled_from(DTYPES), side=st.floats(1e-3, 64.0))
def test_what_both_sides_round_is_allowed_where_it_cancels_between_them(dtype, side):
    """Both sides may round alike, bit for bit, while fp64 shows what the shapes do to it."""
    bound = 2.0**10 * UNIT_ROUNDOFF["float64"] / UNIT_ROUNDOFF[dtype] * 2 * side
    found = rung([bound], largest=0.0, side=side)
    assert structural_part(found, [0.0], dtype, None) is None
    assert structural_part(rung([2 * bound], largest=0.0, side=side), [0.0], dtype, None) == 2 * bound


def test_a_split_is_looked_at_beside_the_largest_difference():
    """A difference at the split that is below the maximum elsewhere is still named by the larger of both."""
    assert structural_part(rung([1e-3, 2e-3]), [1.0, 1.0], "bfloat16", 0) == 2e-3


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_run_against_itself_has_nothing_to_vanish(dtype):
    found = dx.compare(small(), PROMPT, {"dtype": dtype}, {"dtype": dtype, "seed": 3}, 8)
    assert found.verdict == "identical"
    assert found.evidence.ladder[-1].epsilon_max == 0
    assert torch.tensor(found.evidence.floor["e_a"].to_list()).max() > 0, "the rounding is there all the same"
    assert found.evidence.floor["e_a"].to_list() == found.evidence.floor["e_b"].to_list()


@pytest.mark.parametrize(
    ("differing", "later", "steps", "of_them", "told"),
    [
        (213, 251, [37], 0, "1 flip at step 37; 212 of 250 later tokens differ, 0 of them independently"),
        (213, 251, [37], None, "1 flip at step 37; 212 of 250 later tokens differ, 0 of them independently"),
        (9, 20, [3, 5, 7, 8], 2, "8 of 19 later tokens differ, 2 of them independently; on A's tokens"),
        (9, 20, [3, 5, 7], 2, "8 of 19 later tokens differ, 2 of them independently"),
        (
            1,
            35,
            [15, 37, 39],
            0,
            "0 of them independently; on A's tokens B would choose another one at 2 further steps",
        ),
        (4, 9, [1, 3], None, "3 of 8 later tokens differ; on A's tokens B would choose another one at 1 further step"),
        (4, 9, [], 0, "no flip under teacher forcing; 3 of 8 later tokens differ"),
    ],
)
def test_a_cascade_is_told_in_a_sentence_that_its_numbers_allow(differing, later, steps, of_them, told):
    """After a re-join both prefixes differ: a step may flip on A's tokens at which the free runs agree."""
    flips = tuple(Flip(step=step, gap=0.0, epsilon=0.25) for step in steps)
    counts = {"differing_tokens": differing, "later_tokens": later, "rejoins": 1, "independent_tokens": of_them}
    assert told in str(Cascade(independent_flips=flips, **counts))


@pytest.mark.parametrize(("together", "rejoins"), [(1, 0), (2, 0), (3, 1), (5, 1)])
@pytest.mark.parametrize("after", [[], [30]], ids=["to the end", "parting again"])
def test_streams_have_met_again_after_three_equal_tokens(together, rejoins, after):
    """A comma and an article are no return to the same text."""
    same = list(range(10, 10 + together))
    tokens_a, tokens_b = [1, 2, 3, *same, *after], [1, 2, 4, *same, *(token + 1 for token in after)]
    a, b = (SimpleNamespace(token_ids=tokens) for tokens in (tokens_a, tokens_b))
    assert cascade_of(a, b, align(tokens_a, tokens_b), 2, ()).rejoins == rejoins


@given(
    tokens_a=st.lists(st.integers(0, 3), min_size=1, max_size=12),
    tokens_b=st.lists(st.integers(0, 3), min_size=1, max_size=12),
    flips=st.sets(st.integers(0, 11)),
)
def test_the_tokens_of_a_cascade_are_counted_once(tokens_a, tokens_b, flips):
    split = first_divergence(tokens_a, tokens_b)
    if split is None:
        return
    steps = sorted({split} | {step for step in flips if split < step < len(tokens_a)})
    a, b = (SimpleNamespace(token_ids=tokens) for tokens in (tokens_a, tokens_b))
    told = tuple(Flip(step=step, gap=0.0, epsilon=0.0) for step in steps)
    found = cascade_of(a, b, align(tokens_a, tokens_b), split, told)
    assert 0 <= found.independent_tokens <= min(len(steps) - 1, found.differing_tokens - 1)
    kept = {
        x
        for x, y in align(tokens_a, tokens_b).select("a", "b").rows()
        if None not in (x, y) and tokens_a[x] == tokens_b[y]
    }
    assert found.independent_tokens == len(set(steps[1:]) - kept)
