"""The near-tie finder ranks all steps of all prompts by margin, within a budget."""

from __future__ import annotations

import time

import pytest
from small_models import PROMPT, ids, nearly_tied, small

import divexplore as dx
from divexplore.cli import main
from divexplore.models.fairy_tales.prompts import PROMPTS

COLUMNS = ["prompt_index", "prompt", "step", "text", "runner_up", "margin", "margin_ulps", "exact_tie", "at_risk"]


def test_every_step_of_every_prompt_is_ranked_by_its_margin():
    prompts = [ids(5, seed) for seed in range(4)]
    found = dx.find_near_ties(small(), prompts, {"dtype": "bfloat16"}, 60, 8)
    assert found.columns == COLUMNS
    assert found.height == 4 * 8
    assert found["margin_ulps"].is_sorted()
    assert found["at_risk"].null_count() == found.height
    for index, prompt in enumerate(prompts):
        trace = dx.run(small(), prompt, {"dtype": "bfloat16"}, 8)
        mine = found.filter(found["prompt_index"] == index).sort("step")
        assert mine["margin"].to_list() == trace.table["margin"].to_list()
        assert mine["text"].to_list() == trace.texts
        assert mine["runner_up"].to_list() == [small().token_text(int(second)) for second in trace.top_ids[:, 1]]


def test_a_step_at_risk_has_a_margin_that_two_epsilons_cover():
    found = dx.find_near_ties(small(), [ids(5)], None, 60, 12, epsilon=0.25)
    assert found["at_risk"].to_list() == [margin <= 0.5 for margin in found["margin"]]


def test_a_tie_made_to_order_comes_first():
    model, chosen, double = nearly_tied(1)
    found = dx.find_near_ties(model, [PROMPT, ids(10, 5)], None, 60, 8, epsilon=1e-4)
    first = found.row(0, named=True)
    assert (first["prompt_index"], first["step"], first["at_risk"]) == (0, 5, True)
    assert {first["text"], first["runner_up"]} == {model.token_text(chosen), model.token_text(double)}


def test_where_an_epsilon_was_measured_a_split_was_at_risk():
    """The forecast is a bound: a step whose margin exceeds two epsilons cannot flip."""
    flips = 0
    for seed in (1, 2, 3):  # which of them split is the processor's affair
        prompt = ids(10, seed)
        found = dx.compare(small(), prompt, {}, {"dtype": "bfloat16"}, 16)
        forecast = dx.find_near_ties(small(), [prompt], {}, 60, 16, max(found.evidence.forced["epsilon"]))
        risky = set(forecast.filter(forecast["at_risk"])["step"])
        assert len(risky) < 16, "a forecast that says something"
        flipped = {flip.step for flip in found.evidence.cascade.independent_flips} if found.split else set()
        assert flipped <= risky
        flips += len(flipped)
    assert flips > 0


def test_the_budget_ends_the_scan_and_says_where():
    with pytest.warns(RuntimeWarning, match=r"ended in prompt 1 of 300"):
        found = dx.find_near_ties(small(), [ids(5)] * 300, None, 1e-9, 8)
    assert found.height <= 1, "whether one step is run before the clock is asked is the engine's affair"
    assert found.columns == COLUMNS
    started = time.monotonic()
    with pytest.warns(RuntimeWarning, match=r"ended in prompt \d+ of 300"):
        dx.find_near_ties(small(), [ids(5)] * 300, None, 0.3, 100)
    assert time.monotonic() - started < 30, "a bound against no bound at all, not a timing"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"prompts": []}, "no prompts"),
        ({"prompts": "a text"}, "Put it in a list"),
        ({"budget_seconds": 0}, "above 0"),
        ({"epsilon": -1.0}, "above 0"),
        ({"epsilon": float("nan")}, "above 0"),
        ({"max_new_tokens": 0}, "1 or more"),
        ({"prompts": [[5], [999]]}, "0 to 256"),
    ],
)
def test_what_cannot_be_scanned_is_refused(arguments, words):
    with pytest.raises(dx.Refusal, match=words):
        dx.find_near_ties(small(), **({"prompts": [[5]]} | arguments))


def test_the_bundled_prompts_are_different_beginnings(fairy_tales):
    found = dx.find_near_ties(fairy_tales, max_new_tokens=1, budget_seconds=600)
    assert len(set(PROMPTS)) == len(PROMPTS) >= 20
    assert set(found["prompt"]) == set(PROMPTS)


def test_the_command_ranks_a_file_of_prompts(tmp_path, capsys):
    file = tmp_path / "prompts.txt"
    file.write_text("The giant\n\nThe fox\n", encoding="utf-8")
    code = main(["scan", str(file), "--max-new-tokens", "3", "--rows", "4", "--epsilon", "0.1"])
    shown = capsys.readouterr()
    assert code == 0
    header, *lines = shown.out.splitlines()
    assert header.split()[:3] == ["ULPs", "margin", "step"]
    assert len(lines) == 4
    ulps = [float(line.split()[0]) for line in lines]
    assert ulps == sorted(ulps)
    assert all("'The giant'" in line or "'The fox'" in line for line in lines)
    assert "6 steps of 2 prompts" in shown.err
    assert "2 * 0.1" in shown.err


def test_the_command_refuses_a_file_that_is_not_there(tmp_path, capsys):
    assert main(["scan", str(tmp_path / "none.txt")]) == 2
    assert "a prompt a line" in capsys.readouterr().err
