"""CASES 15 to 18, 24 to 29, 31, 32 and 38: dtypes, cache, kernels, flags, chunks; what is rounding and what is not."""

from __future__ import annotations

import contextlib

import pytest
import torch
from small_models import BENIGN, PROMPT, ids, small
from tiny_models import tiny

import divexplore as dx
from divexplore.engine.interventions import intervene
from divexplore.engine.statistics import row_statistics
from divexplore.models import load_model
from divexplore.testing import faults


def overflowing():
    """Its feed-forward leaves the range of fp16, and only that."""
    net = tiny("llama", 64, 3)
    with torch.no_grad():
        net.model.layers[0].mlp.up_proj.weight *= 1000
        net.model.layers[0].mlp.down_proj.weight *= 1000
    return load_model(net)


def test_case_15_an_overflow_is_invalid_and_not_token_zero():
    model = overflowing()
    found = dx.compare(model, PROMPT, {"dtype": "float32"}, {"dtype": "float16"}, 6)
    assert found.verdict == "invalid"
    assert len(found.b) == 0
    assert "float16" in found.why
    assert "bfloat16" in found.next
    shown = str(found)
    assert "float32" in shown
    assert "float16" in shown
    assert dx.compare(model, PROMPT, {"dtype": "float32"}, {"dtype": "bfloat16"}, 6).verdict != "invalid"


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_case_16_a_finished_text_scored_in_one_prefill_drifts(dtype):
    trace = dx.run(small(), PROMPT, {"dtype": dtype}, 24)
    scored = dx.score(small(), PROMPT, trace, {"dtype": dtype})
    found = dx.compare_traces(trace, scored)
    assert found.verdict in ("drift_only", "identical")
    assert found.split is None
    difference = (trace.table["logprob"] - scored.table["logprob"]).abs().max()
    assert difference < {"float32": 1e-3, "bfloat16": 0.5}[dtype]
    assert scored.table["phase"].unique().to_list() == ["score"]


def test_a_score_chooses_nothing_and_cannot_go_back_to_the_start_of_its_process():
    drawn = dx.score(small(), PROMPT, [1, 2, 3], {"do_sample": True, "repetition_penalty": 1.3})
    plain = dx.score(small(), PROMPT, [1, 2, 3])
    assert drawn.effective["decode"] == "greedy"
    chunks = dx.score(small(), PROMPT, [1, 2, 3], {"use_cache": True, "prefill_chunk": 2})
    assert (chunks.effective["prefill_chunk"], chunks.effective["use_cache"]) == (None, False)
    assert chunks.requested == {}, "what cannot be done is not said to have been"
    assert drawn.table["row_hash"].to_list() == plain.table["row_hash"].to_list()
    with pytest.raises(dx.Refusal, match="which starts a process for them"):
        dx.score(small(), PROMPT, [1, 2, 3], {"aten_cpu_capability": "default"})


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_case_17_the_cache_is_rounding(dtype):
    found = dx.compare(small(), ids(12), {"dtype": dtype, "use_cache": True}, {"dtype": dtype, "use_cache": False}, 12)
    assert found.verdict in BENIGN
    assert not found.inconclusive


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
@pytest.mark.parametrize("chunk", [32, 39])
def test_cases_18_and_26_a_warm_prefix_is_rounding(kind, chunk):
    """40 tokens at once against 32 + 8 and 39 + 1; the runs of A tell a cache's state from a run that never repeats."""
    found = dx.compare(small(kind), ids(40), {}, {"prefill_chunk": chunk}, 6, evidence="full")
    assert found.verdict in BENIGN
    assert found.evidence.state_leak is None
    assert any("equal row hashes" in note for note in found.evidence.notes)


def test_case_27_a_prefix_that_lost_an_entry_is_structural_by_what_does_not_vanish():
    side = {"prefill_chunk": 32}
    with faults.cache_one_short(only=side, at_step=1):
        found = dx.compare(small(), ids(40), {}, side, 6)
    assert found.verdict == "structural"


def test_cases_24_and_25_the_report_says_what_the_deterministic_flag_does_not_cover():
    sides = [{"deterministic": True, "batch_size": rows} for rows in (1, 4)]
    found = dx.compare(small(hidden=256), PROMPT, *sides, 8)
    assert found.first_drift is not None
    assert "the deterministic flag was on (A and B)" in str(found)
    plain = dx.compare(small(hidden=256), PROMPT, {}, {"batch_size": 4}, 8)
    assert "deterministic flag" not in str(plain)


def test_case_24_threads_are_rounding_and_the_flag_does_not_cover_them():
    model = small(hidden=256)
    sides = [{"num_threads": 1}, {"num_threads": 2}]
    plain = dx.compare(model, PROMPT, *sides, 8)
    flagged = dx.compare(model, PROMPT, *(side | {"deterministic": True} for side in sides), 8)
    assert plain.verdict in BENIGN
    assert flagged.steps["epsilon"].to_list() == plain.steps["epsilon"].to_list()


def test_case_25_the_flag_makes_no_batch_invariant():
    sides = [{"batch_size": 1}, {"batch_size": 8}]
    plain = dx.compare(small(), PROMPT, *sides, 8)
    flagged = dx.compare(small(), PROMPT, *(side | {"deterministic": True} for side in sides), 8)
    assert flagged.steps["epsilon"].to_list() == plain.steps["epsilon"].to_list()
    assert dx.compare(small(), PROMPT, {}, {"deterministic": True}, 8).verdict == "identical"


def test_case_25_an_operation_that_refuses_the_flag_is_a_result():
    message = "adaptive_pool does not have a deterministic implementation"

    @contextlib.contextmanager
    def refusing(net, config):
        def check(module, args):
            if torch.are_deterministic_algorithms_enabled():
                raise RuntimeError(message)

        hook = net.register_forward_pre_hook(check)
        yield
        hook.remove()

    with intervene(refusing):
        found = dx.compare(small(), PROMPT, {}, {"deterministic": True}, 4)
    assert found.inconclusive
    assert len(found.a) == 4
    assert len(found.b) == 0
    assert message in " ".join([found.why, *found.judgement.evidence])


def test_case_28_chunks_of_16_are_rounding():
    assert dx.compare(small(), ids(40), {}, {"prefill_chunk": 16}, 6).verdict in BENIGN


@pytest.mark.parametrize("causal", [True, False])
def test_case_29_prompts_that_share_a_prefix_agree_on_it_in_a_causal_model(causal):
    """Only the common prefix is compared: the scores of what comes later belong to other texts."""
    shared = ids(20)
    with contextlib.nullcontext() if causal else faults.non_causal():
        a, b = (dx.score(small(), shared[:4], [*shared[4:], *ids(5, seed)]) for seed in (1, 2))
    found = dx.compare_traces(a, b)
    assert found.steps.height == 17, "up to the first token that differs"
    assert found.steps["differs"].any() != causal


def test_case_31_exact_ties_belong_to_the_coarse_grid():
    model = load_model(tiny("llama", 64, 1, initializer_range=0.02))
    prompts = [ids(6, seed) for seed in range(120)]
    ties = {
        dtype: dx.find_near_ties(model, prompts, {"dtype": dtype}, 60, 2)["exact_tie"].sum()
        for dtype in ("bfloat16", "float32")
    }
    assert ties["bfloat16"] > ties["float32"]


def test_case_31_a_control_pair_gives_the_noise_that_a_tie_is_held_against():
    """A against A by another route, as a draft model that is the model itself: its rounding is the unit."""
    control = dx.compare(small(), ids(40), {"dtype": "bfloat16"}, {"dtype": "bfloat16", "prefill_chunk": 39}, 12)
    assert control.verdict in BENIGN
    assert not control.inconclusive
    assert (control.evidence.floor["floor"] > 0).all()


def test_case_32_a_sliding_window_whose_cache_is_corrupted_is_structural():
    """Fixed upstream, so injected: the window of 8 is full when its newest entry is lost."""
    with faults.cache_one_short(only={"seed": 1}, at_step=4):
        pairs = (dx.compare(small("mistral", seed=seed), PROMPT, {}, {"seed": 1}, 10) for seed in range(1, 20))
        found = next(pair for pair in pairs if pair.split is not None)
    assert found.verdict == "structural"
    assert found.split.a.margin > 1000 * found.evidence.floor_at(found.split.step), "no near tie: the margin is wide"
    assert found.first_drift == 4
    assert found.evidence.forced["epsilon"][:4].to_list() == [0.0] * 4


def test_case_38_ties_are_those_of_raw_logits():
    """Logprobs of flat rows lie further from zero, on a coarser grid of bf16: they tie where logits do not."""
    raw = torch.randn(200, 257, generator=torch.Generator().manual_seed(0)).bfloat16() / 2
    reported = [row_statistics(row, 20) for row in raw]
    best = [int((row == row.max()).sum()) for row in raw]
    logprobs = [row.log_softmax(-1) for row in raw]
    of_logprobs = [int((row == row.max()).sum()) for row in logprobs]
    assert [s.margin == 0 for s in reported] == [count > 1 for count in best]
    assert [s.top_ids[0] for s in reported] == [int((row == row.max()).nonzero()[0, 0]) for row in raw]
    assert sum(count > 1 for count in of_logprobs) > sum(count > 1 for count in best)
