"""What a run in a fresh process must share with one in this one: bits, rows, weights, tokenizer; one process serves all."""

from __future__ import annotations

import pytest
import torch
from tiny_models import tiny

import divexplore as dx
from divexplore.config import RunConfig
from divexplore.engine.fresh_process import kept_processes
from divexplore.engine.isolated import run_isolated

PROMPT = [5, 17, 3, 200, 41]
CONFIG = RunConfig(dtype="bfloat16", batch_size=3, omp_dynamic=False)


@pytest.fixture(scope="module", autouse=True)
def one_process():
    with kept_processes():
        yield


@pytest.fixture(scope="module")
def model():
    return dx.load_model(tiny("llama"))


def test_a_worker_gives_the_bits_of_this_process_and_its_rows(model):
    rows, said = [], []
    trace = run_isolated(
        model,
        model.encode(PROMPT),
        CONFIG,
        5,
        on_row=lambda step, row, token: rows.append((step, row.dtype, int(row.double().argmax()), token)),
        progress=lambda done, total, tail: said.append((done, total)),
    )
    here = dx.run(model, PROMPT, CONFIG.replace(omp_dynamic=None), 5)
    assert trace.table["row_hash"].to_list() == here.table["row_hash"].to_list()
    assert trace.meta["tensors"] == here.meta["tensors"]
    assert [(step, str(dtype)) for step, dtype, _, _ in rows] == [(step, "torch.bfloat16") for step in range(5)]
    assert [best for _, _, best, _ in rows] == [token for *_, token in rows] == trace.token_ids
    assert trace.requested == CONFIG.to_dict()
    assert trace.effective["omp_dynamic"] == "FALSE"
    assert trace.effective["process"] == "isolated"
    assert trace.meta["model"]["name"] == model.name
    assert all(total == 5 for _, total in said)


def test_a_worker_that_loads_other_weights_is_found_out():
    """A model of a name that was changed in memory: the process loads what the name says."""
    changed = dx.load_model("fairy-tales")
    with torch.no_grad():
        changed.master.lm_head.weight[7, 0] += 1
    with pytest.raises(RuntimeError, match=r"loaded another model: its hashes of .* differ"):
        run_isolated(changed, changed.encode(PROMPT), CONFIG, 1)


def test_a_worker_has_the_tokenizer_that_the_caller_gave():
    """The name gets the weights back, but another tokenizer: texts, and the rows that are filled from texts."""
    from tokenizers import Tokenizer
    from tokenizers import models as kinds
    from transformers import PreTrainedTokenizerFast

    words = Tokenizer(kinds.WordLevel({f"w{index}": index for index in range(2048)}, unk_token="w0"))
    model = dx.load_model("fairy-tales", PreTrainedTokenizerFast(tokenizer_object=words, unk_token="w0"))
    config = {"fill": ["w5 w6", "w7"]}
    here, there = (dx.run(model, PROMPT, {**config, **start}, 3) for start in ({}, {"omp_dynamic": False}))
    assert there.texts == here.texts
    assert all(text.startswith("w") for text in there.texts)
    assert there.meta["rows"] == here.meta["rows"]
    assert there.meta["texts"] == here.meta["texts"]
    assert there.meta["model"] == here.meta["model"]


def test_a_worker_draws_the_same(model):
    fields = {"do_sample": True, "temperature": 0.7, "seed": 3, "suppress_tokens": [9, 7]}
    here = dx.run(model, PROMPT, fields, 6)
    there = dx.run(model, PROMPT, {**fields, "omp_dynamic": False}, 6)
    assert there.effective["process"] == "isolated"
    assert there.token_ids == here.token_ids
    assert there.effective["decode"] == here.effective["decode"]
