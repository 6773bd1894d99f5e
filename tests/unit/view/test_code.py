from __future__ import annotations

import made

import divexplore as dx
from divexplore.view.code import as_code


def test_the_code_calls_compare_with_what_was_asked(monkeypatch):
    asked = {}

    def compare(model, prompt, **options):
        asked.update(model=model, prompt=prompt, **options)
        return "compared"

    monkeypatch.setattr(dx, "compare", compare, raising=False)
    names: dict[str, object] = {}
    comparison = made.comparison(n_steps=60)
    exec(as_code(comparison), names)
    assert names["comparison"] == "compared"
    assert asked["model"] == "made-up"
    assert asked["prompt"] == "The giant"
    assert asked["max_new_tokens"] == max(len(comparison.a), len(comparison.b))
    assert asked["a"].to_dict() == comparison.a.requested
    assert asked["b"].to_dict() == comparison.b.requested


def test_a_real_comparison_comes_out_the_same_again(fairy_tales):
    pair = {"a": {"dtype": "bfloat16", "batch_size": 1}, "b": {"dtype": "bfloat16", "batch_size": 8}}
    first = dx.compare(fairy_tales, "The giant", **pair, max_new_tokens=12)
    names: dict[str, object] = {}
    exec(as_code(first), names)
    again = names["comparison"]
    assert again.a.token_ids == first.a.token_ids
    assert again.b.table["row_hash"].to_list() == first.b.table["row_hash"].to_list()
    assert again.verdict == first.verdict
