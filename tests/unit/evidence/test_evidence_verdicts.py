"""Verdicts on pairs whose right answer is known, the levels of evidence, and what Stop leaves."""

from __future__ import annotations

import contextlib
import dataclasses

import pytest
import torch
from small_models import BENIGN, PROMPT, ids, nearly_tied, small
from tiny_models import tiny

import divexplore as dx
from divexplore.comparison import ladder
from divexplore.comparison.verdict import judge
from divexplore.engine.interventions import intervene
from divexplore.models import load_model
from divexplore.testing import faults


def assert_benign(found):
    assert found.verdict in BENIGN
    assert not found.inconclusive
    assert found.evidence.structural is None
    assert found.evidence.missing is None
    assert "structural" not in found.judgement.also


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("kind", ["llama", "gpt2", "mistral", "mixtral"])
@pytest.mark.parametrize(
    "pair",
    [
        ({"attn_implementation": "sdpa"}, {"attn_implementation": "eager"}),
        ({"attn_implementation": "eager"}, {"attn_implementation": "eager", "left_pad": 3}),
        ({"batch_size": 1}, {"batch_size": 4}),
    ],
    ids=["eager and sdpa", "left pads in eager", "batch"],
)
def test_what_a_naive_fp64_calls_a_bug_is_benign(kind, dtype, pair):
    found = dx.compare(small(kind), PROMPT, *(side | {"dtype": dtype} for side in pair), 8)
    assert_benign(found)
    assert found.evidence.ladder[-1].dtype == "float64"


@pytest.mark.parametrize("kind", ["llama", "mixtral"])
def test_the_same_pairs_are_no_rounding_on_an_fp64_model_as_it_comes(kind, monkeypatch):
    """Why the top rung is a clean one: with the casts that transformers hard-codes a plateau is left."""
    monkeypatch.setattr(ladder, "rung_mode", lambda dtype: contextlib.nullcontext)
    sides = [{"attn_implementation": name} for name in ("sdpa", "eager")]
    found = dx.compare(small(kind), PROMPT, *sides, 8)
    assert found.verdict not in BENIGN or found.inconclusive


def test_a_rotary_table_that_remembers_the_longest_run_is_a_state_leak():
    """Dynamic NTK keeps the `inv_freq` of the longest sequence that the model has seen."""
    rope = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10000.0}
    model = load_model(tiny("llama", 64, 1, max_position_embeddings=16, rope_parameters=rope))
    model.context_length = None  # within it the table is put back by each prefill
    found = dx.compare(model, ids(20), {}, {"fill": [ids(140, 1)]}, 1, evidence="full")
    assert found.verdict == "state_leak"
    assert "once B has run" in found.why
    assert "rotary" in found.next


def test_state_carried_over_is_a_leak_where_repeats_are_asked_for():
    with faults.state_carried_over(only={"seed": 1}):
        full = dx.compare(small(), PROMPT, {}, {"seed": 1}, 6, evidence="full")
        default = dx.compare(small(), PROMPT, {}, {"seed": 1}, 6)
    assert full.verdict == "state_leak"
    assert default.verdict == "structural", "without repeats it is seen, not named"


@pytest.mark.parametrize("kind", ["llama", "gpt2", "mistral", "bloom"])
def test_a_later_token_that_reaches_an_earlier_position_is_found_by_the_probe(kind):
    with faults.non_causal():
        found = dx.compare(small(kind), PROMPT, {}, {"seed": 1}, 6, evidence="full")
    assert found.verdict == "structural"
    assert "earlier positions move" in found.why
    assert "identical" in found.judgement.also, "both sides have it, so nothing else shows it"
    clean = dx.compare(small(kind), PROMPT, {}, {"left_pad": 2}, 6, evidence="full")
    assert clean.evidence.noncausal is None
    assert clean.verdict in BENIGN


@pytest.mark.parametrize("bug", [faults.mask_dropped, faults.positions_missing])
def test_a_pad_that_matters_is_found_by_the_probe_though_both_sides_have_it(bug):
    padded = {"left_pad": 3}
    with bug():
        found = dx.compare(small("gpt2"), PROMPT, padded, padded | {"seed": 1}, 6, evidence="full")
    assert found.verdict == "structural"
    assert "only padded rows" in found.why
    assert found.evidence.structural is None, "the sides agree, so the ladder has nothing to show"


def test_the_pad_probe_judges_where_no_rung_lies_above():
    fp64 = {"dtype": "float64"}
    with faults.positions_missing():
        found = dx.compare(small("gpt2"), PROMPT, fp64, fp64 | {"left_pad": 3}, 6, evidence="full")
    assert found.verdict == "structural"
    assert "near_tie" not in found.judgement.also
    assert found.evidence.padded is not None


@pytest.mark.parametrize("kind", ["llama", "gpt2", "mistral", "bloom"])
def test_the_pad_probe_lets_rounding_pass(kind):
    found = dx.compare(small(kind), PROMPT, {}, {"left_pad": 3, "batch_size": 2}, 6, evidence="full")
    assert found.evidence.padded is None
    assert any(note.startswith("Pad probe: in clean fp64 pads move") for note in found.evidence.notes)
    assert found.verdict in BENIGN


def test_a_flip_of_a_wrong_weight_survives_in_fp64_and_one_of_rounding_is_refereed():
    model = small()
    first = dx.run(model, PROMPT, None, 1)
    with faults.weight_changed("lm_head.weight", first.token_ids[0], -1.0, only={"seed": 1}):
        found = dx.compare(model, PROMPT, {}, {"seed": 1}, 6)
    assert found.verdict == "structural"
    assert found.first_divergence == 0
    assert found.evidence.flip_survives
    assert "near_tie" not in found.judgement.also, "a mask or weight bug is never called rounding"


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_a_weight_that_moves_less_than_rounding_is_still_structural(dtype):
    """One weight of an embedding: its effect is below the rounding of 16 bits, and does not vanish."""
    side = {"batch_size": 8, "dtype": dtype}
    index = (PROMPT[0], 3)
    with faults.weight_changed("model.embed_tokens.weight", index, -1.0, only=side):
        found = dx.compare(small(), PROMPT, {"dtype": dtype}, side, 6)
    assert found.verdict == "structural"
    assert found.evidence.structural > 0


@pytest.mark.parametrize("coarse", ["bfloat16", "float16"])
def test_a_pair_of_dtypes_differs_by_precision_and_says_what_the_weights_cost(coarse):
    found = dx.compare(small(), PROMPT, {"dtype": coarse}, {"dtype": "float32"}, 16)
    assert found.verdict in ("near_tie", "drift_only")
    assert not found.inconclusive
    assert found.evidence.weight_rounding > 1e-6
    assert "recision is what differs" in found.why


def test_fast_runs_the_two_sides_only_and_explains_no_flip():
    model, _, _ = nearly_tied(1)
    runs = []
    sides = [{"dtype": "bfloat16"}, {"dtype": "float16"}]
    found = dx.compare(model, PROMPT, *sides, 8, evidence="fast", progress=lambda name, *rest: runs.append(name))
    assert list(dict.fromkeys(runs)) == ["A", "B"]
    assert found.evidence is None
    assert found.split is not None
    assert found.verdict == "near_tie"
    assert found.inconclusive
    assert "default" in found.next


def test_full_adds_the_fp32_rung_the_reverse_forcing_the_repeats_and_the_probe():
    runs = []
    found = dx.compare(
        small(),
        PROMPT,
        {"dtype": "bfloat16"},
        {"dtype": "bfloat16", "left_pad": 2},
        6,
        evidence="full",
        progress=lambda name, *rest: runs.append(name),
    )
    assert [rung.dtype for rung in found.evidence.ladder] == ["bfloat16", "float32", "float64"]
    assert {"A", "B", "A again", "A after B", "B on A's tokens", "A on B's tokens"} < set(runs)
    said = " ".join(found.judgement.evidence)
    for words in ("row hashes", "forced on B's tokens", "Causal probe"):
        assert words in said


@pytest.mark.parametrize("at", ["B on A's tokens", "A in float64", "B in float64"])
def test_stop_in_the_evidence_keeps_the_free_runs_and_is_inconclusive(at):
    seen = []
    model, _, _ = nearly_tied(1)
    sides = [{"dtype": "bfloat16"}, {"dtype": "bfloat16", "attn_implementation": "eager", "left_pad": 3}]
    whole = dx.compare(model, PROMPT, *sides, 24)
    found = dx.compare(
        model, PROMPT, *sides, 24, progress=lambda name, *rest: seen.append(name), stop=lambda: at in seen
    )
    assert (found.a.token_ids, found.b.token_ids) == (whole.a.token_ids, whole.b.token_ids)
    assert not found.a.partial
    assert seen[-1] == at
    assert whole.split is not None
    assert found.verdict == "near_tie"
    assert found.inconclusive
    assert "stopped" in found.why


def test_a_fork_is_a_trace_that_can_be_compared():
    found = dx.compare(small(), PROMPT, {}, {"batch_size": 4}, 10)
    other = int(found.b.top_ids[3, 1])
    branch = found.fork("b", 3, other)
    assert branch.token_ids[:4] == [*found.b.token_ids[:3], other]
    assert len(branch) == 10
    assert branch.effective["batch_size"] == 4
    against = dx.compare_traces(found.b, branch)
    assert against.first_divergence == 3
    assert against.first_drift is None, "the overruled row is the same row"
    assert against.verdict == "policy"
    assert "was given, not chosen" in against.why
    longer = found.fork("a", 0, found.b.top_ids[3, 1], 4)  # numpy's whole number, as the top list has it
    assert len(longer) == 4
    assert longer.token_ids[0] == other


@pytest.mark.parametrize(("side", "step"), [("c", 0), ("a", 10), ("a", -1), ("b", True)])
def test_a_fork_elsewhere_is_refused(side, step):
    found = dx.compare(small(), PROMPT, {}, {"seed": 1}, 10, evidence="fast")
    with pytest.raises(dx.Refusal):
        found.fork(side, step, 3)


def test_a_fork_needs_the_model(tmp_path):
    dx.compare(small(), PROMPT, {}, {"seed": 1}, 4, evidence="fast").save(tmp_path / "kept")
    with pytest.raises(dx.Refusal, match="live"):
        dx.Comparison.load(tmp_path / "kept").fork("a", 0, 1)


def test_another_level_of_evidence_is_refused_before_anything_runs():
    with pytest.raises(dx.Refusal, match="Did you mean 'full'"):
        dx.compare(small(), PROMPT, {}, {}, 4, evidence="ful")


@pytest.mark.parametrize("name", ["float32_matmul_precision", "mkldnn"])
def test_a_rung_on_which_the_knob_does_nothing_is_vacuous_and_no_evidence(name):
    values = ("highest", "high") if name == "float32_matmul_precision" else (True, False)
    found = dx.compare(small(hidden=128), PROMPT, *({name: value} for value in values), 8)
    assert found.evidence.ladder[-1].vacuous
    assert "does nothing" in found.evidence.missing
    assert found.verdict in BENIGN
    if found.split is not None:
        assert found.inconclusive


def test_constant_logits_are_invalid():
    net = tiny("llama", 64, 1)
    with torch.no_grad():
        net.lm_head.weight.zero_()
    found = dx.compare(load_model(net), PROMPT, {}, {"seed": 1}, 4)
    assert found.verdict == "invalid"


def test_a_side_that_does_not_repeat_itself_makes_every_verdict_inconclusive():
    with faults.state_carried_over():
        found = dx.compare(small(), PROMPT, {}, {"seed": 1}, 6, evidence="full")
    assert "does not repeat itself" in found.evidence.unsteady
    assert found.verdict != "state_leak"
    assert found.inconclusive


def test_a_repeat_that_fails_is_no_state_leak(monkeypatch):
    """A that runs out of memory once B has run says nothing of what it would have said."""
    calls = 0

    def third(net, config):
        nonlocal calls
        calls += config == dx.RunConfig(seed=5)
        hook = None

        def fail(module, args):
            fail.forwards += 1
            if fail.forwards == 4:
                raise MemoryError("no room")

        fail.forwards = 0
        if calls == 3 and config == dx.RunConfig(seed=5):  # A, A again, A after B
            hook = net.register_forward_pre_hook(fail)
        return contextlib.ExitStack() if hook is None else contextlib.closing(_Removed(hook))

    with intervene(third):
        found = dx.compare(small(), PROMPT, {"seed": 5}, {"batch_size": 2}, 8, evidence="full")
    assert found.verdict in BENIGN
    assert found.evidence.state_leak is None
    assert found.inconclusive
    assert "A run of A ended early at step 3 (out of memory" in found.why


class _Removed:
    def __init__(self, hook):
        self.close = hook.remove


@pytest.mark.parametrize("last", ["A after B", "B on A's tokens", "B in float64", "A on B's tokens"])
def test_stop_ends_full_evidence_and_nothing_is_said_of_what_did_not_run(last):
    seen, forwards = [], 0

    def count(module, args):
        nonlocal forwards
        forwards += last in seen

    model = small()
    hook = model.instance("float32").register_forward_pre_hook(count)
    try:
        found = dx.compare(
            model,
            PROMPT,
            {},
            {"batch_size": 2},
            8,
            evidence="full",
            progress=lambda name, *rest: seen.append(name),
            stop=lambda: last in seen,
        )
    finally:
        hook.remove()
    assert forwards <= 2
    assert not any("of 0 steps" in note for note in found.judgement.evidence)
    assert next(guard for guard in found.guards if guard.name == "observer").ok is None


def test_drift_without_any_rung_is_inconclusive():
    seen = []
    sides = [{}, {"left_pad": 3}]
    whole = dx.compare(small(), PROMPT, *sides, 8)
    found = dx.compare(
        small(), PROMPT, *sides, 8, progress=lambda name, *rest: seen.append(name), stop=lambda: "A in float64" in seen
    )
    assert (whole.verdict, whole.inconclusive) == ("drift_only", False)
    assert (found.verdict, found.inconclusive) == ("drift_only", True)


def test_where_fp64_does_not_fit_fp32_is_the_top_and_says_what_it_cannot_see(monkeypatch):
    monkeypatch.setattr(ladder, "fits", lambda net, dtype: dtype != torch.float64)
    sides = [{"dtype": "bfloat16"}, {"dtype": "bfloat16", "left_pad": 3}]
    found = dx.compare(small(), PROMPT, *sides, 8)
    assert [rung.dtype for rung in found.evidence.ladder] == ["bfloat16", "float32"]
    assert found.verdict in BENIGN
    assert any("1/64" in sentence for sentence in found.judgement.evidence)
    with faults.mask_dropped(only=sides[1]):
        assert dx.compare(small(), PROMPT, *sides, 8).verdict == "structural"
    fine = dx.compare(small(), PROMPT, {"dtype": "float32"}, {"dtype": "float32", "left_pad": 3}, 8)
    assert len(fine.evidence.ladder) == 1
    assert "fit" in fine.evidence.missing


def test_a_side_that_rounds_far_worse_than_its_dtype_is_inconclusive_unless_a_router_explains_it():
    """Rounding that moves a router counts a hundredfold where it happens: its size says nothing about a kernel."""
    model, _, _ = nearly_tied(1)
    found = dx.compare(model, PROMPT, {"dtype": "bfloat16"}, {"dtype": "bfloat16", "left_pad": 3}, 24)
    assert found.split is not None
    floor = found.evidence.floor
    uneven = dataclasses.replace(found.evidence, floor=floor.with_columns(e_a=floor["e_b"] * 5 + 1e-3))
    routed = dataclasses.replace(uneven, routed=True)
    for given, inconclusive in ((found.evidence, False), (uneven, True), (routed, False)):
        judgement = judge(found.a, found.b, found.steps, found.split, given)
        assert (judgement.verdict, judgement.inconclusive) == ("near_tie", inconclusive)
    assert not found.evidence.routed
    mixture = dx.compare(small("mixtral"), PROMPT, {}, {"seed": 1}, 4)
    assert mixture.evidence.routed
