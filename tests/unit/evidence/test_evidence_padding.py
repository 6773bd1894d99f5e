"""CASES 8 to 14: pads, masks, positions. With the right mask and positions a pad is rounding; without, it is a bug."""

from __future__ import annotations

import contextlib
import logging

import pytest
import torch
from small_models import BENIGN, PROMPT, ids, small

import divexplore as dx
from divexplore.engine.interventions import intervene
from divexplore.testing import faults

CONTINUATION = ids(10, 3)


def scored(model, config):
    """The rows of one prefill over all positions, shape ``(10, vocab)``, and its trace."""
    rows = []
    trace = dx.score(
        model, PROMPT[:1], CONTINUATION, config, on_row=lambda step, row, token: rows.append(row.double().clone())
    )
    return torch.stack(rows), trace


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_case_8_a_padded_row_drifts_and_its_largest_difference_says_so(dtype):
    (plain, a), (padded, b) = (scored(small(), {"dtype": dtype, "left_pad": pad}) for pad in (0, 6))
    drift = (plain - padded).abs()
    found = dx.compare_traces(a, b)
    assert found.verdict in ("drift_only", "identical")
    assert a.table["phase"].unique().to_list() == ["score"]
    assert drift.max() < {"float32": 1e-3, "float16": 0.5}[dtype]
    assert found.steps["differs"].to_list() == (drift.amax(-1) > 0).tolist()
    live = dx.compare(small(), PROMPT, {"dtype": dtype}, {"dtype": dtype, "left_pad": 6}, 8)
    assert live.verdict in BENIGN


@pytest.mark.parametrize("pads", [1, 2, 4])
def test_case_9_without_positions_a_pad_moves_the_first_real_token(pads):
    model, side = small("gpt2"), {"left_pad": pads}
    plain, _ = scored(model, {})
    benign, _ = scored(model, side)
    with faults.positions_missing(only=side):
        moved, _ = scored(model, side)
        found = dx.compare(model, PROMPT, {}, side, 6)
    assert (plain - benign).abs().max() < 1e-3
    assert (plain - moved)[0].abs().max() > 0.1, "from the first real token on"
    assert found.verdict == "structural"
    assert "no rounding" in found.why
    assert dx.compare(model, PROMPT, {}, side, 6).verdict in BENIGN


def test_case_9_without_pads_missing_positions_are_no_bug():
    """The jump is between no pad and one."""
    with faults.positions_missing(only={"seed": 1}):
        found = dx.compare(small("gpt2"), PROMPT, {}, {"seed": 1}, 6)
    assert found.verdict == "identical"


@pytest.mark.parametrize("kind", ["llama", "gpt2", "mistral"])
def test_case_10_a_mask_of_ones_is_structural(kind):
    side = {"left_pad": 3}
    with faults.mask_dropped(only=side):
        found = dx.compare(small(kind), PROMPT, {}, side, 6)
    assert found.verdict == "structural"
    assert found.evidence.structural == pytest.approx(found.evidence.ladder[0].epsilon_max, rel=0.5)
    assert not found.a.effective["mask"]
    assert found.b.effective["mask"]
    assert "left_pad" in found.next


def test_case_10_what_the_library_warns_of_is_in_the_result():
    def warn(net, config):
        logging.getLogger("transformers.generation").warning("sampling options are ignored")
        return contextlib.nullcontext()

    def hooked(net, config):
        hook = net.register_forward_pre_hook(lambda module, args: warn(net, config) and None)
        return contextlib.closing(_Removed(hook))

    with intervene(hooked):
        trace = dx.run(small(), PROMPT, None, 2)
    assert trace.meta["warnings"] == ["sampling options are ignored"]


class _Removed:
    def __init__(self, hook):
        self.close = hook.remove


def test_case_12_relative_positions_do_not_save_a_model_from_its_mask():
    side = {"left_pad": 6}
    assert dx.compare(small("bloom"), PROMPT, {}, side, 6).verdict in BENIGN
    with faults.mask_dropped(only=side):
        found = dx.compare(small("bloom"), PROMPT, {}, side, 6)
    assert found.verdict == "structural"


def test_case_14_nan_out_of_attention_is_invalid_and_the_torch_is_recorded():
    """What torch before 2.5 gave for a row without an allowed key."""

    def broken(net, config):
        if not config.left_pad:
            return contextlib.nullcontext()
        attention = net.model.layers[0].self_attn
        hook = attention.register_forward_hook(lambda module, args, output: (output[0] * torch.nan, *output[1:]))
        return contextlib.closing(_Removed(hook))

    with intervene(broken):
        found = dx.compare(small(), PROMPT, {}, {"left_pad": 2}, 6)
    assert found.verdict == "invalid"
    assert f"{found.b.meta['model']['vocab_size']} NaN" in found.why
    assert found.b.meta["snapshot"]["packages"]["torch"] == torch.__version__
    assert len(found.a) == 6
