"""Settings that belong to the whole process are in force during a run, and as before after it, however it ends."""

from __future__ import annotations

import threading
import time
import warnings

import pytest
import torch
from tiny_models import tiny

from divexplore.config import RunConfig
from divexplore.engine.run import run
from divexplore.errors import Refusal
from divexplore.models import load_model

PROMPT = [17, 4, 201, 96, 33]
OTHER = {
    "num_threads": 1,
    "deterministic": True,
    "float32_matmul_precision": "medium",
    "mkldnn": False,
    "attn_implementation": "eager",
    "seed": 7,
}


def switches(net):
    """Every process-wide switch and the model's own, as torch tells them."""
    mkldnn = torch.backends.mkldnn
    return {
        "num_threads": torch.get_num_threads(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "warn_only": torch.is_deterministic_algorithms_warn_only_enabled(),
        "float32_matmul_precision": torch.get_float32_matmul_precision(),
        "mkldnn": mkldnn.enabled,
        "mkldnn_deterministic": mkldnn.deterministic,
        "cuda_tf32": torch.backends.cuda.matmul.allow_tf32,
        "attn_implementation": net.config._attn_implementation,
        "inference_mode": torch.is_inference_mode_enabled(),
        "grad": torch.is_grad_enabled(),
        "random": torch.get_rng_state().tolist(),
    }


@pytest.fixture
def model():
    return load_model(tiny("llama"))


@pytest.fixture
def during(model):
    """What was in force in the forwards of `model`; an exception put in ``raises`` is raised by the second of them."""
    seen = type("Seen", (list,), {"raises": None})()

    def look(module, args, given):
        seen.append(switches(module))
        if seen.raises is not None and len(seen) > 1:
            raise seen.raises

    model.instance().register_forward_pre_hook(look, with_kwargs=True)
    return seen


@pytest.fixture(params=["plain", "unusual"])
def before(request, model):
    """A process with torch's own switches, or with all of them turned by somebody else."""
    state = switches(model.instance())
    if request.param == "unusual":
        torch.set_num_threads(2)
        torch.use_deterministic_algorithms(True, warn_only=True)
        torch.set_float32_matmul_precision("high")
    yield switches(model.instance())
    torch.set_num_threads(state["num_threads"])
    torch.use_deterministic_algorithms(state["deterministic"], warn_only=state["warn_only"])
    torch.set_float32_matmul_precision(state["float32_matmul_precision"])


def assert_in_force(seen, trace):
    for name, value in OTHER.items():
        if name != "seed":
            assert seen[name] == value, name
            assert trace.effective[name] == value, name
    assert seen["inference_mode"]


def test_in_force_during_a_run_and_as_before_after_it(model, during, before):
    trace = run(model, PROMPT, OTHER, 2)
    assert_in_force(during[-1], trace)
    assert switches(model.instance()) == before


def test_as_before_after_an_error_in_mid_run(model, during, before):
    during.raises = RuntimeError("broken on purpose")
    with pytest.warns(RuntimeWarning, match="broken on purpose"):
        trace = run(model, PROMPT, OTHER, 4)
    assert_in_force(during[-1], trace)
    assert switches(model.instance()) == before


@pytest.mark.parametrize("error", [KeyboardInterrupt, Refusal("a", "b", "c")], ids=["interrupt", "refusal"])
def test_as_before_after_what_passes_through(model, during, before, error):
    during.raises = error
    with pytest.raises(error if isinstance(error, type) else type(error)):
        run(model, PROMPT, OTHER, 4)
    assert switches(model.instance()) == before


def test_as_before_after_a_stop(model, during, before):
    trace = run(model, PROMPT, OTHER, 4, stop=lambda: bool(during))
    assert_in_force(during[-1], trace)
    assert trace.finish_reason == "stopped"
    assert switches(model.instance()) == before


def test_as_before_where_the_attention_kernel_is_refused(model, before):
    with pytest.raises(Refusal, match="attn_implementation"):
        run(model, PROMPT, OTHER | {"attn_implementation": "flash_attention_9"}, 2)
    assert switches(model.instance()) == before


def test_what_is_not_set_is_left_as_it_is(model, during, before):
    trace = run(model, PROMPT, None, 2)
    assert {**during[-1], "inference_mode": False, "grad": True} == before
    assert trace.requested == {}
    assert trace.effective["num_threads"] == before["num_threads"]


def test_the_seed_is_in_force_and_moves_nothing(model, during):
    one, other = (run(model, PROMPT, {"seed": seed}, 3) for seed in (1, 2))
    assert during[0]["random"] != during[-1]["random"]
    assert one.table["row_hash"].equals(other.table["row_hash"])


def test_a_switch_of_mkldnn_is_no_warning(model):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run(model, PROMPT, {"mkldnn": False}, 1)


@pytest.mark.parametrize("chunk", [1, 3, 5, 64])
def test_the_prompt_enters_the_cache_in_chunks(model, chunk):
    shapes = []
    model.instance().register_forward_pre_hook(
        lambda module, args, given: shapes.append(tuple(given["input_ids"].shape)), with_kwargs=True
    )
    trace = run(model, PROMPT, RunConfig(prefill_chunk=chunk, dtype="float32"), 3)
    pieces = [width for _, width in shapes[:-2]]
    assert sum(pieces) == len(PROMPT)
    assert pieces[:-1] == [chunk] * (len(pieces) - 1)
    assert trace.token_ids == run(model, PROMPT, {"dtype": "float64"}, 3).token_ids


def test_no_cache_is_handed_over_without_one(model):
    seen = []
    model.instance().register_forward_hook(lambda module, args, output: seen.append(output.past_key_values))
    trace = run(model, PROMPT, {"use_cache": False}, 2)
    assert seen == [None, None]
    assert trace.effective["use_cache"] is False


def test_a_run_in_another_thread_waits_and_each_has_its_own_settings():
    """A cell that runs while an Explorer does: neither sees the other's flags, and all of them are put back."""
    model = load_model(tiny("llama", 64, 1))
    alone = run(model, [1, 2, 3], None, 6)
    begun, seen = threading.Event(), []

    def watch(done, total, text):
        begun.set()
        time.sleep(0.01)
        seen.append((torch.are_deterministic_algorithms_enabled(), model.master.config._attn_implementation))

    asked = {"deterministic": True, "attn_implementation": "eager"}
    other = threading.Thread(target=run, args=(model, [1, 2, 3], asked, 20), kwargs={"progress": watch})
    other.start()
    begun.wait(60)
    beside = run(model, [1, 2, 3], None, 6)
    other.join(60)
    assert seen == [(True, "eager")] * 20
    assert beside.effective["attn_implementation"] == "sdpa"
    assert not beside.effective["deterministic"]
    assert beside.table["row_hash"].to_list() == alone.table["row_hash"].to_list()
    assert not torch.are_deterministic_algorithms_enabled()
