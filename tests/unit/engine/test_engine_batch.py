"""A batch of eight has eight rows, pads are no steps, and each row is where the configuration put it."""

from __future__ import annotations

import functools

import pytest
from tiny_models import tiny

from divexplore.config import RunConfig
from divexplore.engine.batch import BUNDLED_PROMPTS, fill_batch
from divexplore.engine.run import run
from divexplore.models import load_model

PROMPT = [17, 4, 201, 96, 33, 150, 8, 77, 240, 5]
OTHERS = [[9, 8, 7], [60] * 12]


@functools.cache
def small(kind="llama"):
    return load_model(tiny(kind))


@pytest.fixture
def inputs_of(request):
    """Watch what a model's forward is given: the keyword arguments of every call."""

    def watch(net):
        seen = []
        hook = net.register_forward_pre_hook(lambda module, args, given: seen.append(given), with_kwargs=True)
        request.addfinalizer(hook.remove)
        return seen

    return watch


@pytest.mark.parametrize("use_cache", [True, False])
def test_every_forward_has_as_many_rows_as_were_asked_for(inputs_of, use_cache):
    seen = inputs_of(small().instance())
    trace = run(small(), PROMPT, {"batch_size": 8, "use_cache": use_cache}, 5)
    assert [given["input_ids"].shape[0] for given in seen] == [8] * 5
    widths = [given["input_ids"].shape[1] for given in seen]
    assert widths == ([10, 1, 1, 1, 1] if use_cache else [10, 11, 12, 13, 14])
    assert trace.effective["batch_size"] == 8
    assert len(trace.meta["rows"]) == 8


def test_the_recorded_batch_is_what_the_model_had_not_what_was_asked():
    """A model that quietly drops rows must not pass for a batch."""
    model = load_model(tiny("llama"))
    model.instance().register_forward_hook(lambda module, args, output: setattr(output, "logits", output.logits[:1]))
    assert run(model, PROMPT, {"batch_size": 4}, 1).effective["batch_size"] == 1


def test_copies_of_the_prompt_need_no_pads_and_no_mask(inputs_of):
    seen = inputs_of(small().instance())
    trace = run(small(), PROMPT, {"batch_size": 3}, 2)
    assert seen[0]["input_ids"].tolist() == [PROMPT] * 3
    assert all(given["attention_mask"] is None for given in seen)
    assert trace.effective["mask"] is False
    assert trace.effective["pads"] == [0, 0, 0]


def test_rows_of_other_lengths_are_padded_on_the_left_with_mask_and_positions(inputs_of):
    seen = inputs_of(small().instance())
    trace = run(small(), PROMPT, {"fill": OTHERS, "row": 2, "left_pad": 1}, 3)
    prefill, first, second = seen
    pads = [10, 1, 3]
    assert trace.effective["pads"] == pads
    assert [row["prompt_ids"] for row in trace.meta["rows"]] == [*OTHERS, PROMPT]
    for index, (pad, prompt) in enumerate(zip(pads, [*OTHERS, PROMPT])):
        assert prefill["input_ids"][index, pad:].tolist() == prompt
        assert prefill["attention_mask"][index].tolist() == [0] * pad + [1] * (13 - pad)
        assert prefill["position_ids"][index].tolist() == [0] * pad + list(range(13 - pad))
        assert first["attention_mask"][index].tolist() == [0] * pad + [1] * (14 - pad)
        assert first["position_ids"][index].tolist() == [13 - pad]
        assert second["position_ids"][index].tolist() == [14 - pad]


def test_pads_are_no_steps():
    trace = run(small(), PROMPT, {"left_pad": 4}, 3)
    assert trace.table["step"].to_list() == [0, 1, 2]
    assert trace.prompt_ids == PROMPT
    assert trace.effective["pads"] == [4]
    assert trace.effective["mask"] is True


def test_left_pads_change_no_token_of_gpt2_in_fp64():
    """Absolute positions: without positions derived from the mask, three pads would shift every one of them."""
    tokens = [run(small("gpt2"), PROMPT, {"dtype": "float64", "left_pad": pad}, 24).token_ids for pad in (0, 3)]
    assert tokens[0] == tokens[1]
    assert len(set(tokens[0])) > 3


@pytest.mark.parametrize("row", [0, 3, 7])
def test_the_observed_prompt_stands_in_its_row(inputs_of, row):
    seen = inputs_of(small().instance())
    others = [[9 + index] * len(PROMPT) for index in range(7)]
    trace = run(small(), PROMPT, {"dtype": "float32", "fill": others, "row": row}, 4)
    rows = seen[0]["input_ids"].tolist()
    assert rows.pop(row) == PROMPT
    assert rows == others
    assert trace.effective["row"] == row
    assert trace.token_ids == trace.meta["rows"][row]["token_ids"]
    assert trace.token_ids == run(small(), PROMPT, {"dtype": "float64"}, 4).token_ids


def test_fillers_decode_on_their_own(fairy_tales):
    """Each row of a filled batch goes where it would go alone."""
    config = RunConfig(dtype="float64", batch_size=4, fill="prompts")
    trace = run(fairy_tales, "The giant", config, 6)
    for filler, row in zip(BUNDLED_PROMPTS, trace.meta["rows"][1:], strict=False):
        assert row["prompt_ids"] == list(fairy_tales.encode(filler).ids)
        assert row["token_ids"] == run(fairy_tales, filler, {"dtype": "float64"}, 6).token_ids
    assert len({tuple(row["token_ids"]) for row in trace.meta["rows"]}) == 4


def test_more_fillers_than_bundled_prompts_begin_again(fairy_tales):
    config = RunConfig(batch_size=len(BUNDLED_PROMPTS) + 2, fill="prompts")
    batch = fill_batch(fairy_tales, [1, 2], config, chat=False)
    assert len(batch.prompts) == config.rows
    assert batch.prompts[-1] == batch.prompts[1]


def test_fillers_as_texts_and_as_ids_are_the_same_batch(fairy_tales):
    texts = ["The king", "Once upon a time"]
    ids = [list(fairy_tales.encode(text).ids) for text in texts]
    by_text, by_ids = (run(fairy_tales, "The giant", {"fill": fill}, 3) for fill in (texts, ids))
    assert by_text.effective["batch_size"] == 3
    assert by_text.meta["rows"] == by_ids.meta["rows"]
    assert by_text.table["row_hash"].equals(by_ids.table["row_hash"])
