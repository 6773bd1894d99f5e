"""What a comparison refuses, and when it says that it cannot know."""

from __future__ import annotations

import json
import shutil

import pytest
import torch
import transformers
from small_models import PROMPT, small
from tiny_models import tiny

import divexplore as dx
from divexplore.config import RunConfig
from divexplore.models import load_model
from divexplore.testing import faults


def rwkv():
    torch.manual_seed(0)
    config = transformers.RwkvConfig(vocab_size=257, hidden_size=32, num_hidden_layers=2, attention_hidden_size=32)
    return load_model(transformers.RwkvForCausalLM(config))


def mamba():
    torch.manual_seed(0)
    config = transformers.MambaConfig(vocab_size=257, hidden_size=32, num_hidden_layers=2, state_size=8)
    return load_model(transformers.MambaForCausalLM(config))


def test_a_recurrent_state_that_is_not_carried_is_refused_not_dropped():
    with pytest.raises(dx.Refusal, match="takes no key-value cache"):
        dx.run(rwkv(), PROMPT, None, 3)


@pytest.mark.parametrize(("make", "config"), [(rwkv, {"use_cache": False}), (mamba, {})])
def test_a_recurrent_model_decodes_what_generate_does(make, config):
    model = make()
    ids = torch.tensor([PROMPT])
    wanted = model.to_transformers().generate(ids, max_new_tokens=5, do_sample=False, eos_token_id=None)
    assert dx.run(model, PROMPT, config, 5).token_ids == wanted[0, len(PROMPT) :].tolist()


def test_a_side_that_breaks_before_its_first_step_is_no_verdict():
    model = load_model(tiny("llama"))
    model.instance().register_forward_hook(lambda *given: (_ for _ in ()).throw(RuntimeError("broken on purpose")))
    with pytest.raises(dx.Refusal, match="broken on purpose"):
        dx.compare(model, PROMPT, {}, {"batch_size": 2}, 3)


def test_no_common_step_is_no_equality():
    found = dx.compare(small(), PROMPT, {}, {"batch_size": 2}, 3, stop=lambda: True)
    assert found.verdict == "measurement"
    assert found.inconclusive
    assert found.judgement.also == ()


@pytest.mark.parametrize("bug", [{"left_pad": 2}, {"left_pad": 2, "use_cache": False}])
def test_drift_without_evidence_is_inconclusive(bug):
    found = dx.compare(small(), PROMPT, {}, bug, 6, evidence="fast")
    assert found.verdict == "drift_only"
    assert found.inconclusive


def test_a_failed_guard_beside_another_verdict_is_inconclusive():
    with faults.weight_changed("model.layers.1.mlp.down_proj.weight", (3, 4), 2.0, {"seed": 1}):
        found = dx.compare(small(), PROMPT, {}, {"seed": 1}, 6, evidence="fast")
    assert found.verdict != "structural"
    assert found.inconclusive
    assert any("guard weights failed" in sentence for sentence in found.judgement.evidence)


@pytest.mark.parametrize(
    "config", [{"left_pad": 3, "prefill_chunk": 2}, {"fill": [list(range(3, 15))], "prefill_chunk": 4}]
)
def test_a_chunk_of_pads_is_no_wrong_mask(config):
    found = dx.compare(small(), PROMPT, {}, config, 4, evidence="fast")
    assert {guard.name: guard.ok for guard in found.guards}["inputs"]


@pytest.mark.parametrize("prompt", ["   ", "abc \ud800 def", b"abc", [True, 2]])
def test_what_is_no_prompt_is_refused(fairy_tales, prompt):
    with pytest.raises(dx.Refusal):
        dx.run(fairy_tales, prompt, None, 2)


def test_bounds_are_told():
    with pytest.raises(dx.Refusal, match="1 to 1024"):
        RunConfig(num_threads=100_000)
    with pytest.raises(dx.Refusal, match="where the context ends"):
        dx.trace_ops(small(), PROMPT, {}, {"batch_size": 2}, 100_000)
    with pytest.raises(dx.Refusal, match="without a tokenizer"):
        dx.run(small(), PROMPT, {"batch_size": 2, "fill": "prompts"}, 2)
    with pytest.raises(dx.Refusal, match="a token id"):
        dx.compare(small(), PROMPT, {}, {"seed": 1}, 4, evidence="fast").fork("a", 2, " king")


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    found = dx.compare(small(), PROMPT, {}, {"batch_size": 4}, 6)
    return found.save(tmp_path_factory.mktemp("kept") / "one")


@pytest.mark.parametrize("change", ["swap", "lose", "empty name"])
def test_files_that_do_not_belong_together_are_refused(saved, tmp_path, change):
    folder = shutil.copytree(saved, tmp_path / "copy")
    if change == "swap":
        shutil.copy(folder / "b.parquet", folder / "a.parquet")
    elif change == "lose":
        (folder / "floor.parquet").unlink()
    else:
        facts = json.loads((folder / "comparison.json").read_text(encoding="utf-8"))
        facts["files"]["nothing"] = "0"
        (folder / "comparison.json").write_text(json.dumps(facts), encoding="utf-8")
    with pytest.raises(dx.Refusal, match="damaged"):
        dx.Comparison.load(folder)


def test_a_folder_needs_a_name(saved, tmp_path):
    found = dx.Comparison.load(saved)
    (tmp_path / "file").write_text("")
    for name in ("", tmp_path / "file"):
        with pytest.raises(dx.Refusal, match="a folder"):
            found.save(name)
