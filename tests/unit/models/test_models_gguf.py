"""A GGUF file is unpacked once, holds the same weights afterwards, and is never seen half-written."""

import importlib.util

import pytest
import torch

from divexplore.errors import Refusal
from divexplore.models import load_model
from divexplore.models.gguf import cached_copy, cached_folder

needs_gguf = pytest.mark.skipif(
    not all(map(importlib.util.find_spec, ("gguf", "accelerate"))),
    reason="gguf or accelerate absent: pip install divexplore[gguf]",
)


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("DIVEXPLORE_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def gguf_file(tmp_path):
    from tiny_gguf import write_gguf

    return write_gguf(tmp_path / "Tiny.Q8_0.gguf")


@needs_gguf
def test_the_cached_copy_holds_the_weights_tokenizer_and_template_of_the_file(gguf_file):
    from transformers import AutoModelForCausalLM, GgufConfig

    direct = AutoModelForCausalLM.from_pretrained(
        str(gguf_file.parent), gguf_file=gguf_file.name, quantization_config=GgufConfig(dequantize=True)
    )
    model = load_model(gguf_file)
    assert load_model(direct).fingerprint.compare(model.fingerprint) == "same"
    assert model.dtype == torch.float32
    assert model.name == "Tiny.Q8_0"
    assert model.eos_ids == {0}
    assert model.tokenizer.decode(model.encode("the giant").ids) == "the giant"
    assert model.chat


@needs_gguf
def test_the_second_load_does_not_read_the_file_again(gguf_file, monkeypatch):
    first = load_model(gguf_file)
    monkeypatch.setattr("divexplore.models.gguf.unpack", lambda *_: pytest.fail("unpacked twice"))
    assert load_model(gguf_file).fingerprint == first.fingerprint


@needs_gguf
def test_a_folder_with_one_gguf_file_is_that_file(gguf_file):
    assert load_model(gguf_file.parent).name == "Tiny.Q8_0"


@needs_gguf
def test_a_truncated_file_is_refused_and_leaves_no_copy(gguf_file):
    whole = gguf_file.read_bytes()
    gguf_file.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(Refusal, match=r"Tiny\.Q8_0\.gguf"):
        load_model(gguf_file)
    assert not cached_folder(gguf_file).exists()


def test_a_folder_with_two_gguf_files_asks_for_one(tmp_path):
    for name in ("a.gguf", "b.gguf"):
        (tmp_path / name).write_bytes(b"GGUF")
    with pytest.raises(Refusal, match="2 GGUF files"):
        load_model(tmp_path)


def test_a_failed_unpacking_leaves_nothing_and_the_next_one_succeeds(tmp_path):
    folder = tmp_path / "models" / "copy"

    def fail(file, target):
        (target / "half").write_text("half")
        raise OSError("disk full")

    def succeed(file, target):
        (target / "whole").write_text("whole")

    with pytest.raises(OSError, match="disk full"):
        cached_copy(tmp_path / "x.gguf", folder, fail)
    assert not [path for path in folder.parent.iterdir() if path.is_dir()]
    assert cached_copy(tmp_path / "x.gguf", folder, succeed) == folder
    assert [path.name for path in folder.iterdir()] == ["whole"]


def test_a_changed_file_gets_another_copy(tmp_path):
    file = tmp_path / "x.gguf"
    file.write_bytes(b"one")
    first = cached_folder(file)
    file.write_bytes(b"longer")
    assert cached_folder(file) != first
