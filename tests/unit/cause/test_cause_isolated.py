"""Runs in a fresh process: the same weights and bits, settings that take effect there, and a death that is told."""

from __future__ import annotations

import json
import os
import sys

import pytest
from tiny_models import tiny

import divexplore as dx
from divexplore.config import START_VARIABLES, RunConfig
from divexplore.engine import isolated
from divexplore.engine.isolated import needs_isolation, run_isolated
from divexplore.engine.processor import refuse_unless_honoured
from divexplore.errors import Refusal

PROMPT = [5, 17, 3, 200, 41]
CONFIG = RunConfig(dtype="bfloat16", batch_size=3, omp_dynamic=False)


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


def test_the_public_run_starts_a_worker_by_itself_and_the_setting_takes_effect(fairy_tales):
    if not os.path.exists("/proc/cpuinfo"):
        pytest.skip("what the processor can do is read from Linux")
    trace = dx.run(fairy_tales, "The giant", {"aten_cpu_capability": "default"}, 2)
    assert trace.effective["aten_cpu_capability"] == "default"
    assert trace.meta["snapshot"]["variables"]["ATEN_CPU_CAPABILITY"] == "default"
    assert "ATEN_CPU_CAPABILITY" not in os.environ


def scripted(monkeypatch, script):
    """Put a script in the worker's place."""
    real = isolated.subprocess.Popen
    monkeypatch.setattr(
        isolated.subprocess, "Popen", lambda command, **rest: real([sys.executable, "-c", script, command[-1]], **rest)
    )


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
    scripted(monkeypatch, f"import sys, pathlib; (pathlib.Path(sys.argv[1]) / 'done.json').write_text({done!r})")
    with pytest.raises(Refusal, match="that"):
        run_isolated(model, model.encode(PROMPT), CONFIG, 2)


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
