"""Cases of other decode paths and of token identity, as far as runs and traces can show them."""

from __future__ import annotations

import pytest
import torch
from small_models import PROMPT, nearly_tied, small

import divexplore as dx
from divexplore.comparison.align import first_divergence
from divexplore.comparison.drift import epsilon
from divexplore.config import RunConfig
from divexplore.engine.run import decode


def test_cases_30_33_a_speculative_run_parts_only_where_its_batch_of_tokens_rounds_across_a_margin():
    """Prompt lookup verifies several tokens in one forward, which is a prefill's shape and not a step's."""
    model, prompt, steps = small(), [7, 90, 33, 150, 8, 201, 64, 19] * 3, 24
    assisted = model.to_transformers().generate(
        torch.tensor([prompt]), max_new_tokens=steps, do_sample=False, prompt_lookup_num_tokens=4, eos_token_id=None
    )
    decoded: list[torch.Tensor] = []
    scored: list[torch.Tensor] = []
    plain = decode(
        model, model.encode(prompt), RunConfig(), steps, on_row=lambda step, row, token: decoded.append(row.clone())
    )
    dx.score(model, prompt, plain, on_row=lambda step, row, token: scored.append(row))
    split = first_divergence(plain.token_ids, assisted[0, len(prompt) :].tolist())
    if split is not None:
        assert plain.table["margin"][split] <= 2 * epsilon(decoded[split], scored[split])
    assert max(epsilon(a, b) for a, b in zip(decoded, scored, strict=True)) < 1e-3, "another shape, the same function"


def test_cases_30_33_where_the_shape_of_a_prefill_flips_a_token_the_gap_is_told_beside_the_noise():
    """What verifies a draft is a prefill's forward; without a cache each step is one."""
    for seed in range(40):
        model, chosen, double = nearly_tied(seed)
        found = dx.compare(model, PROMPT, {}, {"use_cache": False}, 8)
        if found.first_divergence == 5:
            break
    else:
        pytest.fail("no seed flips")
    assert found.verdict == "near_tie"
    assert {found.split.a.token_id, found.split.b.token_id} == {chosen, double}
    assert "of the noise floor" in found.why
    assert found.split.pair_swing <= 2 * found.split.epsilon * (1 + 1e-12)


def test_case_49_ids_are_kept_as_they_are_and_another_cut_is_another_prompt(fairy_tales):
    whole = fairy_tales.encode("The daughter").ids
    pieces = [*fairy_tales.encode("The d").ids, *fairy_tales.encode("aughter").ids]
    text = b"".join(fairy_tales.token_bytes(token) for token in pieces)
    assert text == b"The daughter"
    assert tuple(pieces) != whole
    cut = dx.run(fairy_tales, pieces, None, 2)
    assert cut.prompt_ids == pieces, "never tokenised anew"
    found = dx.compare_traces(dx.run(fairy_tales, list(whole), None, 2), cut)
    assert found.verdict == "prompt_mismatch"
