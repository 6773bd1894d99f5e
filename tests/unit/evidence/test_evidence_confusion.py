"""A seeded corner of ``benchmarks/confusion.py``: rounding is never called a bug, a bug never rounding."""

from __future__ import annotations

import pytest
from tiny_pairs import ARCHITECTURES, examples, judged, random_model


@pytest.mark.parametrize(
    ("seed", "dtype"), [(4, "float32"), (5, "bfloat16"), (6, "float16"), (7, "float32")], ids=ARCHITECTURES
)
def test_every_pair_of_a_model_gets_its_verdict(seed, dtype):
    name, model = random_model(seed)
    outcomes = {example.name: judged(model, example) for example in examples(model, seed, dtype)}
    assert {pair: outcome for pair, outcome in outcomes.items() if not outcome.right} == {}, name
    reached = {pair for pair, outcome in outcomes.items() if outcome.reachable and outcome.verdict == "structural"}
    assert {"cache one short", "non-causal"} <= reached, "the faults did something"
