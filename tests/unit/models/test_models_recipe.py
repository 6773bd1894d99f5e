"""The recipe of the bundled model learns, and writes a model that divexplore loads."""

import random

import pytest
import torch

from divexplore.errors import Refusal
from divexplore.models import load_model
from divexplore.models.fairy_tales import recipe

needs_muon = pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="this torch has no Muon")


@pytest.fixture
def texts(tmp_path):
    """20 kB of made sentences in two files."""
    word = random.Random(0)
    who = ["the king", "the fox", "a giant", "the queen", "an old woman", "the youngest son"]
    did = ["went into the forest", "found a golden key", "lost his way", "saw a castle", "began to weep"]
    folder = tmp_path / "texts"
    folder.mkdir()
    for name in ("one", "two"):
        text = ""
        while len(text) < 10_000:
            text += f"Then {word.choice(who)} {word.choice(did)}, and {word.choice(who)} {word.choice(did)}.\n\n"
        (folder / f"{name}.txt").write_text(text, encoding="utf-8")
    return folder


@needs_muon
def test_a_few_steps_learn_and_the_result_loads(texts, tmp_path):
    short = recipe.Recipe(steps=24, batch=4, length=64, seed=0)
    losses = recipe.train(texts, tmp_path / "out", short)
    assert len(losses) == 24
    assert sum(losses[-8:]) < sum(losses[:8])

    model = load_model(tmp_path / "out")
    assert model.dtype == torch.bfloat16
    assert model.config.intermediate_size == 1280
    assert model.eos_ids == {0}
    assert model.tokenizer.decode(model.encode("the king wept").ids) == "the king wept"


@needs_muon
def test_the_same_seed_learns_the_same(texts, tmp_path):
    short = recipe.Recipe(steps=2, batch=2, length=32, seed=3)
    assert recipe.train(texts, tmp_path / "a", short) == recipe.train(texts, tmp_path / "b", short)


def test_a_folder_without_texts_is_refused(tmp_path):
    with pytest.raises(Refusal, match=r"no \.txt file"):
        recipe.train(tmp_path, tmp_path / "out")


def test_texts_shorter_than_a_sequence_are_refused(tmp_path):
    (tmp_path / "short.txt").write_text("Once.", encoding="utf-8")
    with pytest.raises(Refusal, match="tokens"):
        recipe.train(tmp_path, tmp_path / "out")


def test_the_rate_warms_up_holds_and_falls():
    rates = [recipe.schedule(step, 1000) for step in range(1000)]
    assert rates[0] < rates[30] < rates[59] == 1.0
    assert set(rates[60:600]) == {1.0}
    assert rates[600:] == sorted(rates[600:], reverse=True)
    assert rates[-1] == 0.02
