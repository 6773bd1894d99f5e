"""What the command line answers: one object or one report on stdout, an exit code that means something."""

from __future__ import annotations

import json
import subprocess
import sys
import warnings

import pytest
from typer.main import get_command

import divexplore
from divexplore.cli import app, main
from divexplore.config import PRESETS, RunConfig
from divexplore.errors import Interrupted, Refusal


class Told:
    """Stands in for a comparison; `asked` is what the command asked `compare` for."""

    def __init__(self, asked):
        self.asked, self.saved = asked, None

    def __str__(self):
        return "the report"

    def to_dict(self):
        return {"verdict": "near_tie", "epsilon": float("inf"), "nested": [float("nan")]}

    def save(self, folder):
        if folder.name == "unwritable":
            raise PermissionError(13, "Permission denied", str(folder))
        self.saved = folder


@pytest.fixture
def told(monkeypatch):
    """Replaces `divexplore.compare`; holds the comparisons that were made."""
    made = []

    def compare(model, prompt, **asked):
        print("a library's chatter")  # noqa: T201 - what stdout must not get
        asked.pop("progress")("A", 1, 2, " tail")
        made.append(Told({"model": model, "prompt": prompt, **asked}))
        return made[-1]

    monkeypatch.setattr(divexplore, "compare", compare, raising=False)
    return made


@pytest.fixture
def failing(monkeypatch):
    """Makes `divexplore.compare` raise what it is given."""

    def install(error):
        def compare(*_, **__):
            raise error

        monkeypatch.setattr(divexplore, "compare", compare, raising=False)

    return install


def test_compare_passes_on_what_was_asked_and_prints_the_report_alone(told, capsys):
    words = ["compare", "Hello", "--model", "m", "--a", "dtype=bf16,batch_size=1", "--b", "dtype=fp32"]
    assert main([*words, "--max-new-tokens", "7", "--no-chat", "--evidence", "fast"]) == 0
    assert told[0].asked == {
        "model": "m",
        "prompt": "Hello",
        "a": RunConfig(dtype="bfloat16", batch_size=1),
        "b": RunConfig(dtype="float32"),
        "max_new_tokens": 7,
        "chat": False,
        "evidence": "fast",
    }
    out, err = capsys.readouterr()
    assert out == "the report\n"
    assert "chatter" in err


def test_without_sides_the_default_preset_runs(told):
    assert main(["compare", "Hello"]) == 0
    assert (told[0].asked["a"], told[0].asked["b"]) == (PRESETS["batch"].a, PRESETS["batch"].b)
    assert (told[0].asked["chat"], told[0].asked["evidence"]) == (None, "default")


def test_a_preset_gives_both_sides(told):
    assert main(["compare", "Hello", "--preset", "cache"]) == 0
    assert (told[0].asked["a"], told[0].asked["b"]) == (PRESETS["cache"].a, PRESETS["cache"].b)


def test_a_side_that_is_left_out_is_the_users_own_set_up(told):
    assert main(["compare", "Hello", "--b", "use_cache=false"]) == 0
    assert (told[0].asked["a"], told[0].asked["b"]) == (RunConfig(), RunConfig(use_cache=False))


def test_json_is_one_strict_object(told, capsys):
    assert main(["compare", "Hello", "--json"]) == 0
    out = capsys.readouterr().out

    def refuse(constant):
        raise AssertionError(constant)

    answer = json.loads(out, parse_constant=refuse)
    assert answer == {
        "verdict": "near_tie",
        "epsilon": None,
        "nested": [None],
        "non_finite": ["epsilon=inf", "nested[0]=nan"],
    }


def test_save_keeps_the_comparison_and_says_where(told, tmp_path, capsys):
    assert main(["compare", "Hello", "--save", str(tmp_path / "kept")]) == 0
    assert told[0].saved == tmp_path / "kept"
    assert "kept" in capsys.readouterr().err


def test_what_cannot_be_saved_after_the_run_was_printed_before(told, tmp_path, capsys):
    assert main(["compare", "Hello", "--save", str(tmp_path / "unwritable")]) == 2
    out, err = capsys.readouterr()
    assert out == "the report\n"
    assert "Permission denied" in err


def test_a_mistake_in_an_option_is_answered_with_what_is_allowed_there(told, capsys):
    assert main(["compare", "Hello", "--max-new-tokens", "many"]) == 2
    assert "allowed: N: Steps at most." in capsys.readouterr().err
    assert main(["compare", "Hello", "--frobnicate"]) == 2
    assert "allowed: --model, --a, --b" in capsys.readouterr().err


def test_prompts_to_scan_are_lines_and_nothing_else_ends_one(tmp_path, monkeypatch):
    file, seen = tmp_path / "prompts.txt", []
    file.write_bytes("\ufeffThe giant\u2028said\r\nOnce\n\n".encode())
    monkeypatch.setattr(
        divexplore, "find_near_ties", lambda model, prompts, *rest, **named: seen.append(prompts), raising=False
    )
    main(["scan", str(file)])
    assert seen == [["The giant\u2028said", "Once"]]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["compare", "Hello", "--a", "dtyp=bf16"], "Did you mean 'dtype'?"),
        (["compare", "Hello", "--a", "row=4,batch_size=2"], "0 to 1"),
        (["compare", "Hello", "--a", "batch_size=-1"], "a whole number, 1 or more"),
        (["compare", "Hello", "--a", "batch_size"], "key=value"),
        (["compare", "Hello", "--preset", "bach"], "Did you mean 'batch'?"),
        (["compare", "Hello", "--preset", "cache", "--a", "dtype=bf16"], "--preset"),
        (["compare", "Hello", "--save", f"{__file__}/kept"], "Not a directory"),
        (["compare"], "PROMPT"),
        (["compare", "Hello", "--max-new-tokens", "many"], "--max-new-tokens"),
        (["compare", "Hello", "--frobnicate"], "--frobnicate"),
        (["compare", "Hello", "--max-new-tokens", "0"], "max_new_tokens=0"),
        (["compare", " "], "an empty prompt"),
        (["compare", "Hello", "--a", "dtype=bf16", "--b", "", "--a", "dtype=fp32"], "--a 2 times"),
        (["compare", "Hello", "--chat", "--no-chat"], "--chat or --no-chat 2 times"),
        (["scan", "--max-new-tokens", "0"], "max_new_tokens=0"),
        (["scan", "--rows", "3", "--rows=3"], "--rows 2 times"),
        (["lab", "--port", "1", "--no-browser", "--port", "2"], "--port 2 times"),
        (["lab", "--port", "-4"], "0 to 65535"),
        (["frobnicate"], "frobnicate"),
    ],
)
def test_a_wrong_request_exits_with_2_and_says_what_to_do(told, capsys, words, expected):
    assert main(words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert expected in err
    assert "allowed: " in err
    assert "Traceback" not in err


@pytest.mark.parametrize("extra", [["--a", "dtyp=bf16"], ["--max-new-tokens", "many"]])
def test_with_json_a_refusal_is_an_object_too(told, capsys, extra):
    assert main(["compare", "Hello", "--json", *extra]) == 2
    answer = json.loads(capsys.readouterr().out)
    assert set(answer) == {"error"}
    assert set(answer["error"]) == {"asked", "allowed", "do"}
    assert all(answer["error"].values())


def test_a_refusal_from_below_exits_with_2(failing, capsys):
    failing(Refusal("an empty prompt", "a text", "Write a word."))
    assert main(["compare", "Hello", "--json"]) == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert error == {"asked": "an empty prompt", "allowed": "a text", "do": "Write a word."}


@pytest.mark.parametrize("words", [["compare", "Hello"], ["compare", "Hello", "--json"]])
def test_our_own_error_exits_with_4_without_a_traceback(failing, capsys, words):
    failing(KeyError("lost"))
    assert main(words) == 4
    out, err = capsys.readouterr()
    assert "KeyError: 'lost'" in err
    assert "test_cli.py" in err  # where it came from
    assert "Traceback" not in err
    assert ("--json" in words) == (out != "")
    if out:
        assert "KeyError" in json.loads(out)["error"]["asked"]


def test_ctrl_c_exits_with_130(failing, capsys):
    failing(KeyboardInterrupt())
    assert main(["compare", "Hello"]) == 130
    assert "Traceback" not in capsys.readouterr().err


def test_every_option_is_refused_when_given_twice(told, capsys):
    """Whatever is added later: no option's first value is lost without a word."""
    for command in app.registered_commands:
        for option in get_command(app).commands[command.callback.__name__].params:
            if option.param_type_name == "option":
                words = [option.opts[0]] if option.is_flag else [option.opts[0], "1"]
                assert main([command.callback.__name__, *words, *words]) == 2, option.opts
                assert f"{option.opts[0]}" in capsys.readouterr().err


def test_arguments_of_jupyter_may_repeat(monkeypatch):
    opened = []
    monkeypatch.setattr("divexplore.lab.open_lab", lambda **asked: opened.append(asked["extra"]))
    assert main(["lab", "--", "--log-level=10", "--log-level=20"]) == 0
    assert list(opened[0]) == ["--log-level=10", "--log-level=20"]


def test_after_one_ctrl_c_the_partial_report_is_printed_and_the_exit_code_tells(told, monkeypatch, capsys):
    whole = divexplore.compare

    def interrupted(*given, **asked):
        warnings.warn("interrupted: kept", Interrupted, stacklevel=2)
        return whole(*given, **asked)

    monkeypatch.setattr(divexplore, "compare", interrupted)
    assert main(["compare", "Hello"]) == 130
    out, err = capsys.readouterr()
    assert out == "the report\n"
    assert "divexplore: interrupted: kept" in err


def test_a_pair_that_takes_fresh_processes_says_so_before_it_runs(told, capsys):
    assert main(["compare", "Hello", "--a", "omp_dynamic=true"]) == 0
    assert "two fresh processes" in capsys.readouterr().err
    assert main(["compare", "Hello", "--a", "use_cache=true"]) == 0
    assert "process" not in capsys.readouterr().err


def test_models_prints_names_that_load_model_takes(capsys):
    assert main(["models"]) == 0
    names = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert names == ["fairy-tales", "smollm2-135m-instruct"]


def test_version_is_the_packages(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"divexplore {divexplore.__version__}\n"


def test_no_command_prints_the_help(capsys):
    assert main([]) == 0
    assert "compare" in capsys.readouterr().out


def command(*words):
    return [sys.executable, "-m", "divexplore.cli", *words]


def test_a_reader_that_leaves_early_is_no_error():
    """As in ``divexplore models | head -0``: the pipe's far end is closed before anything is written."""
    process = subprocess.Popen(command("models"), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait(timeout=60) == 0


def test_a_real_comparison_prints_one_object_on_stdout():
    words = command("compare", "The giant", "--preset", "batch", "--max-new-tokens", "3", "--json")
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["format"] == "divexplore.comparison/1"
    assert answer["a"]["requested"] == {"dtype": "bfloat16", "batch_size": 1}
    assert answer["b"]["effective"]["batch_size"] == 8
    assert len(answer["a"]["token_ids"]) == 3


def test_the_price_of_full_evidence_is_told_before_it_is_paid(monkeypatch, capsys):
    def compare(*given, **asked):
        assert "full evidence takes about" in capsys.readouterr().err
        raise Refusal("enough", "no more", "Leave.")

    monkeypatch.setattr(divexplore, "compare", compare, raising=False)
    assert main(["compare", "The giant", "--evidence", "full"]) == 2
    assert main(["compare", "The giant", "--evidence", "full", "--json"]) == 2
