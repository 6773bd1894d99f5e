"""From layer to layer: the residual stream, the lens, the logits, and the chart that joins them."""

from __future__ import annotations

import pytest
from tiny_models import tiny

import divexplore as dx
from divexplore.comparison.layers import layer_drift
from divexplore.errors import Refusal
from divexplore.testing import faults
from divexplore.view.cause_charts import layer_chart

PROMPT = [5, 17, 3, 200, 41]


@pytest.mark.parametrize("kind", ["llama", "gpt2", "mistral", "bloom"])
def test_the_lens_on_the_last_layer_is_the_model_itself(kind):
    model = dx.load_model(tiny(kind))
    found = layer_drift(model, PROMPT, {}, {"left_pad": 2, "batch_size": 3}, 5)
    assert found.lens_exact
    last = found.lens.filter(found.lens["layer"] == 2)
    gaps = dict(zip(last["side"], last["gap"], strict=True))
    assert abs(gaps["A"] - gaps["B"]) <= 2 * found.logits["epsilon"][found.step]


def test_every_layer_and_position_is_measured_without_the_pads():
    model = dx.load_model(tiny("llama"))
    found = layer_drift(model, PROMPT, {"prefill_chunk": 2}, {"left_pad": 3, "use_cache": False}, 4)
    steps = found.logits.height
    assert found.drift.height == 3 * (len(PROMPT) - 1 + steps)
    embedding = found.drift.filter(found.drift["layer"] == 0)
    assert embedding["max_abs"].max() == 0  # whatever the pads, the tokens are the same
    assert found.drift["step"].drop_nulls().max() == steps - 1


def test_a_change_in_a_layer_shows_from_that_layer_on():
    model = dx.load_model(tiny("llama"))
    changed = {"seed": 1}
    with faults.weight_changed("model.layers.1.mlp.down_proj.weight", (0, slice(None)), only=changed):
        found = layer_drift(model, PROMPT, {"seed": 0}, changed, 3)
    assert found.first_layer == 2  # the output of the second layer; 0 is the embedding
    assert found.drift.filter(found.drift["layer"] < 2)["max_abs"].max() == 0


def test_the_worked_example_joins_drift_and_flip(fairy_tales):
    found = layer_drift(fairy_tales, "The giant", {"dtype": "bfloat16"}, {"dtype": "bfloat16", "batch_size": 8}, 48)
    assert found.logits.height == found.step + 1 or not found.flip
    assert found.logits["flip"].to_list() == [False] * (found.logits.height - 1) + [found.flip]
    if found.flip:
        last = found.lens.filter(found.lens["layer"] == found.lens["layer"].max())
        gaps = dict(zip(last["side"], last["gap"], strict=True))
        assert gaps["A"] >= 0 >= gaps["B"]
    assert layer_chart(found).to_dict()["vconcat"]


def test_a_long_run_is_drawn_with_as_many_positions_as_altair_takes():
    import polars as pl

    model = dx.load_model(tiny("llama"))
    found = layer_drift(model, PROMPT, {"seed": 0}, {"seed": 1}, 2)
    one = found.drift.filter(found.drift["position"] == 0).with_columns(max_abs=1.0)  # a row a layer
    many = pl.concat([one.with_columns(position=pl.lit(i, pl.Int32)) for i in range(2000)])
    object.__setattr__(found, "drift", many)
    drawn = layer_chart(found).to_dict()["datasets"]
    assert max(map(len, drawn.values())) <= 5000


def test_a_model_without_a_list_of_layers_is_refused():
    model = dx.load_model(tiny("llama"))
    model.master.config.num_hidden_layers = 3
    with pytest.raises(Refusal, match="layers"):
        layer_drift(model, PROMPT, {}, {"seed": 1}, 2)
