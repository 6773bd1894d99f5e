"""Runs in a fresh process: the same weights and bits, settings that take effect there, and a death that is told."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from tiny_models import tiny

import divexplore as dx
from divexplore.config import START_VARIABLES, RunConfig
from divexplore.engine.fresh_process import Process, kept_processes
from divexplore.engine.isolated import needs_isolation, run_isolated
from divexplore.engine.processor import refuse_unless_honoured
from divexplore.errors import Refusal

PROMPT = [5, 17, 3, 200, 41]
CONFIG = RunConfig(dtype="bfloat16", batch_size=3, omp_dynamic=False)


@pytest.fixture(scope="module")
def model():
    return dx.load_model(tiny("llama"))


def test_the_public_run_starts_a_worker_by_itself_and_the_setting_takes_effect(fairy_tales):
    if not os.path.exists("/proc/cpuinfo"):
        pytest.skip("what the processor can do is read from Linux")
    trace = dx.run(fairy_tales, "The giant", {"aten_cpu_capability": "default"}, 2)
    assert trace.effective["aten_cpu_capability"] == "default"
    assert trace.meta["snapshot"]["variables"]["ATEN_CPU_CAPABILITY"] == "default"
    assert "ATEN_CPU_CAPABILITY" not in os.environ


def scripted(monkeypatch, script):
    """Put a script in the worker's place; it gets the folder of a request as a line of its stdin."""
    real = subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", lambda command, **rest: real([sys.executable, "-c", script], **rest))


def children():
    return [child for child in psutil.Process().children() if "divexplore.engine.worker" in child.cmdline()]


def test_the_last_words_of_a_worker_that_dies_are_told(model, monkeypatch):
    scripted(monkeypatch, "import sys; sys.exit('no room for the weights')")
    with pytest.raises(RuntimeError, match=r"code 1; its last words: no room for the weights"):
        run_isolated(model, model.encode(PROMPT), CONFIG, 2)


def test_a_worker_that_is_killed_is_named(model, monkeypatch):
    scripted(monkeypatch, "import os; os.kill(os.getpid(), 9)")
    with pytest.raises(RuntimeError, match="SIGKILL"):
        run_isolated(model, model.encode(PROMPT), CONFIG, 2)


def test_a_worker_that_says_nothing_is_ended(model, monkeypatch):
    scripted(monkeypatch, "import time; print('still loading', flush=True); time.sleep(600)")
    with pytest.raises(RuntimeError, match=r"silent for 0.5 s.*still loading"):
        run_isolated(model, model.encode(PROMPT), CONFIG, 2, patience=0.5)


def test_a_refusal_in_the_worker_is_a_refusal_here(model, monkeypatch):
    done = json.dumps({"refusal": {"asked": "that", "allowed": "this", "do": "Do."}})
    scripted(monkeypatch, f"import pathlib; (pathlib.Path(input()) / 'done.json').write_text({done!r})")
    with pytest.raises(Refusal, match="that"):
        run_isolated(model, model.encode(PROMPT), CONFIG, 2)


def test_the_folder_of_a_process_goes_when_it_ends():
    process = Process({})
    home = Path(process._home.name)
    assert home.is_dir()
    process.close()
    assert not home.exists()


def test_a_comparison_starts_a_process_a_side_and_leaves_none(model, monkeypatch):
    started = []
    real = subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", lambda *given, **rest: started.append(given) or real(*given, **rest))
    found = dx.compare(model, PROMPT, {"omp_dynamic": False}, {}, 2)
    assert found.evidence.ladder[-1].dtype == "float64"
    assert len(started) == 2, "one for each set of variables, which serves one run after another"
    assert children() == []
    here = dx.run(model, PROMPT, None, 2)
    for trace in (found.a, found.b):
        assert trace.table["row_hash"].to_list() == here.table["row_hash"].to_list()
    assert [trace.effective["omp_dynamic"] for trace in (found.a, found.b)] == ["FALSE", None]


def lasting(monkeypatch):
    """A stand-in that never serves a request."""
    scripted(monkeypatch, "import time; time.sleep(600)")
    return psutil.Process().children


@pytest.mark.parametrize("error", [KeyboardInterrupt, ZeroDivisionError])
def test_no_process_is_left_by_an_error(model, monkeypatch, error):
    left = lasting(monkeypatch)
    before = left()

    def stop():
        raise error

    with pytest.raises(error), kept_processes():
        run_isolated(model, model.encode(PROMPT), CONFIG, 2, stop=stop)
    assert left() == before


def test_at_most_two_processes_are_kept(model, monkeypatch):
    served = "import json, pathlib\nwhile True:\n    (pathlib.Path(input()) / 'done.json').write_text(json.dumps({'refusal': {'asked': 'a', 'allowed': 'b', 'do': 'c'}}))"
    scripted(monkeypatch, served)
    before = psutil.Process().children()
    with kept_processes():
        for config in (CONFIG, CONFIG.replace(omp_dynamic=True), CONFIG.replace(omp_dynamic=None)):
            with contextlib.suppress(Refusal):
                run_isolated(model, model.encode(PROMPT), config, 2)
        assert len(psutil.Process().children()) == len(before) + 2
    assert psutil.Process().children() == before


def test_a_process_that_has_started_without_the_setting_does_not_pretend(model):
    from divexplore.engine.run import decode

    with pytest.raises(Refusal, match="OMP_DYNAMIC"):
        decode(model, model.encode(PROMPT), CONFIG, 2)


@pytest.mark.parametrize(
    ("flags", "vendor", "field", "value", "reason"),
    [
        ("avx2 fma", "AuthenticAMD", "onednn_max_cpu_isa", "AVX512_CORE", "lacks avx512bw"),
        ("avx2 fma avx512f", "AuthenticAMD", "mkl_cbwr", "AVX2", "AUTO instead"),
        ("avx2 fma avx512f", "AuthenticAMD", "mkl_enable_instructions", "AVX2", "Intel processors only"),
        ("sse4_2", "GenuineIntel", "mkl_cbwr", "AVX512", "this processor cannot"),
    ],
)
def test_what_a_processor_cannot_honour_is_refused_with_the_reason(monkeypatch, flags, vendor, field, value, reason):
    from divexplore.engine import processor

    monkeypatch.setattr(processor, "_cpuinfo", lambda: {"flags": flags, "vendor_id": vendor})
    monkeypatch.setattr(processor, "_mkl", lambda: True)
    with pytest.raises(Refusal, match=reason):
        refuse_unless_honoured(RunConfig(**{field: value}))


def test_what_a_processor_can_do_is_not_refused(monkeypatch):
    from divexplore.engine import processor

    monkeypatch.setattr(processor, "_cpuinfo", lambda: {"flags": "sse4_1 avx avx2 fma", "vendor_id": "GenuineIntel"})
    monkeypatch.setattr(processor, "_mkl", lambda: True)
    refuse_unless_honoured(RunConfig(onednn_max_cpu_isa="AVX2", mkl_cbwr="AVX2", mkl_enable_instructions="AVX2"))


def test_a_start_setting_is_part_of_a_configuration():
    config = RunConfig.parse("onednn_max_cpu_isa=avx2,omp_dynamic=off")
    assert config.start_variables == {"ONEDNN_MAX_CPU_ISA": "AVX2", "OMP_DYNAMIC": "FALSE"}
    assert RunConfig.of(config.to_dict()) == config
    assert needs_isolation(RunConfig(), config)
    assert not needs_isolation(RunConfig(), RunConfig(dtype="bfloat16"))
    assert set(START_VARIABLES) <= set(RunConfig.__dataclass_fields__)


@pytest.mark.parametrize("field", [name for name in START_VARIABLES if name != "omp_dynamic"])
def test_an_unknown_word_is_refused(field):
    with pytest.raises(Refusal, match=field):
        RunConfig(**{field: "sometimes"})
