"""What may differ between two runs: the configuration of a run, and the pairs that people ask for most."""

from __future__ import annotations

import dataclasses
import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from divexplore.errors import Refusal, nearest, told_nearest

__all__ = ["DTYPES", "PRESETS", "START_VARIABLES", "Preset", "RunConfig", "parse_value", "whole"]

DTYPES = ("float64", "float32", "bfloat16", "float16")
_SHORT_DTYPES = {"fp64": "float64", "fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}
_PRECISIONS = ("highest", "high", "medium")

START_VARIABLES = {
    "aten_cpu_capability": "ATEN_CPU_CAPABILITY",
    "onednn_max_cpu_isa": "ONEDNN_MAX_CPU_ISA",
    "mkl_cbwr": "MKL_CBWR",
    "mkl_enable_instructions": "MKL_ENABLE_INSTRUCTIONS",
    "omp_dynamic": "OMP_DYNAMIC",
    "cublas_workspace_config": "CUBLAS_WORKSPACE_CONFIG",
}
"""Fields that libraries read once, when a process starts, and the environment variables that they read."""

_START_VALUES = {
    "aten_cpu_capability": ("default", "avx2", "avx512", "vsx", "zvector", "sve256"),
    "onednn_max_cpu_isa": (
        "SSE41",
        "AVX",
        "AVX2",
        "AVX2_VNNI",
        "AVX2_VNNI_2",
        "AVX512_CORE",
        "AVX512_CORE_VNNI",
        "AVX512_CORE_BF16",
        "AVX512_CORE_FP16",
        "AVX512_CORE_AMX",
        "AVX512_CORE_AMX_FP16",
        "DEFAULT",
    ),
    "mkl_cbwr": ("AUTO", "COMPATIBLE", "SSE4_2", "AVX", "AVX2", "AVX512", "AVX512_E1"),
    "mkl_enable_instructions": ("SSE4_2", "AVX", "AVX2", "AVX512", "AVX512_E1"),
    "cublas_workspace_config": (":4096:8", ":16:8"),
}


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """All that may change numbers or the choice of token. ``None`` leaves a field as the model and process have it.

    Parameters
    ----------
    dtype
        Computing dtype: ``float64``, ``float32``, ``bfloat16``, ``float16`` (or ``fp64`` … ``bf16``). Parameters are
        cast, buffers keep theirs.
    device
        A torch device, such as ``cpu`` or ``cuda:0``.
    batch_size
        Rows in the batch (1 to 4096). The observed row is one of them, the others are filled (`fill`).
    row
        Which row of the batch holds the prompt, 0 to ``batch_size - 1``.
    fill
        What the other rows hold: ``"copies"`` of the prompt, ``"prompts"`` (bundled ones of other lengths), or a
        sequence of texts or of token-id lists, one for each *other* row.
    left_pad
        Pads put before the observed prompt, beyond those that a batch needs.
    attn_implementation
        ``eager``, ``sdpa``, or any that transformers knows on this machine.
    use_cache
        Whether decode steps read a key-value cache; without it each step is a prefill of all tokens so far.
    prefill_chunk
        Tokens of a prefill chunk; the prompt enters the cache in pieces of this size.
    num_threads
        Threads of torch's CPU operations, 1 to 1024.
    deterministic
        ``torch.use_deterministic_algorithms``. It covers neither batch size nor threads.
    float32_matmul_precision
        ``highest``, ``high`` or ``medium`` (``torch.set_float32_matmul_precision``).
    mkldnn
        Whether torch may use oneDNN.
    seed
        ``torch.manual_seed``; greedy decoding does not read it, which a comparison can show. Sampling does.
    do_sample
        Draw each token of the observed row at random, as transformers does, in place of taking the best one. Without it, or
        with ``False``, decoding is greedy: the lowest id among the highest scores.
    temperature, top_k, top_p
        What the draw is made from, with ``do_sample=True`` only: scores divided by `temperature` (above 0), the `top_k` best
        (1 or more; ids tied with the last of them stay too), the fewest whose probabilities reach `top_p` (above 0, up to 1).
    repetition_penalty
        Divides the positive scores of tokens that were there before, and multiplies the negative ones; 1 changes nothing.
    penalty_scope
        Where a token counts as having been there: ``"all"`` (prompt and output; the default where a penalty is given),
        ``"output"``, or a whole number N for the last N tokens of both.
    suppress_tokens
        Ids that are never taken.
    aten_cpu_capability, onednn_max_cpu_isa, mkl_cbwr, mkl_enable_instructions, omp_dynamic, cublas_workspace_config
        Read by torch's libraries when a process starts (`START_VARIABLES` has the names): such a run, and the one that it
        is compared with, take place in fresh processes. `omp_dynamic` is a flag, the others are the variables' words;
        with it and two threads, torch 2.13 on a CPU was seen to give NaN (verdict ``invalid``).

    Notes
    -----
    The fields from `do_sample` to `suppress_tokens` choose the observed row's tokens and move no logit: what is recorded is
    the row before any of them. A model's ``generation_config`` is not applied; the evidence names what it has. Copies are
    fed what the observed row takes, other rows of the batch stay greedy.
    """

    dtype: str | None = None
    device: str | None = None
    batch_size: int | None = None
    row: int | None = None
    fill: str | Sequence[str] | Sequence[Sequence[int]] | None = None
    left_pad: int | None = None
    attn_implementation: str | None = None
    use_cache: bool | None = None
    prefill_chunk: int | None = None
    num_threads: int | None = None
    deterministic: bool | None = None
    float32_matmul_precision: str | None = None
    mkldnn: bool | None = None
    seed: int | None = None
    do_sample: bool | None = None
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    repetition_penalty: float | None = None
    penalty_scope: str | int | None = None
    suppress_tokens: Sequence[int] | None = None
    aten_cpu_capability: str | None = None
    onednn_max_cpu_isa: str | None = None
    mkl_cbwr: str | None = None
    mkl_enable_instructions: str | None = None
    omp_dynamic: bool | None = None
    cublas_workspace_config: str | None = None

    def __post_init__(self) -> None:
        if self.dtype is not None:
            object.__setattr__(self, "dtype", _dtype(self.dtype))
        for name, low in (
            ("batch_size", 1),
            ("row", 0),
            ("left_pad", 0),
            ("prefill_chunk", 1),
            ("num_threads", 1),
            ("seed", 0),
            ("top_k", 1),
        ):
            object.__setattr__(self, name, _whole_number(name, getattr(self, name), low))
        for name, words in _START_VALUES.items():
            if getattr(self, name) is not None:
                object.__setattr__(self, name, _word(name, getattr(self, name), words))
        for name in _FLAG_FIELDS:
            value = getattr(self, name)
            if value is not None and not isinstance(value, bool):
                raise Refusal(f"{name}={value!r}", "True, False or None", f"Write {name}=True or {name}=False.")
        if self.batch_size is not None and self.batch_size > 4096:
            raise Refusal(f"batch_size={self.batch_size}", "1 to 4096", "Choose a smaller batch.")
        if self.seed is not None and self.seed >= 2**64:
            raise Refusal(f"seed={self.seed}", "0 to 2**64 - 1", "Choose a smaller seed: torch takes 64 bits.")
        if self.num_threads is not None and self.num_threads > 1024:
            raise Refusal(f"num_threads={self.num_threads}", "1 to 1024", "More threads than that end the process.")
        if self.float32_matmul_precision not in (None, *_PRECISIONS):
            raise Refusal(
                f"float32_matmul_precision={self.float32_matmul_precision!r}",
                ", ".join(_PRECISIONS),
                "Choose one of these.",
            )
        self._check_choice()
        self._check_fill()
        if self.row is not None and self.row >= self.rows:
            raise Refusal(
                f"row={self.row} in a batch of {self.rows}",
                f"0 to {self.rows - 1}",
                "Give a smaller row or a larger batch_size.",
            )
        if self.prefill_chunk is not None and self.use_cache is False:
            raise Refusal(
                "prefill_chunk with use_cache=False",
                "prefill_chunk with a cache",
                "A chunk enters the cache; leave one out.",
            )

    def _check_choice(self) -> None:
        if self.temperature == 0 and not isinstance(self.temperature, bool):
            raise Refusal(
                "temperature=0",
                "a number above 0",
                "Leave temperature and do_sample out: that is greedy decoding. transformers refuses 0 too.",
            )
        for name, most in (("temperature", None), ("top_p", 1.0), ("repetition_penalty", None)):
            object.__setattr__(self, name, _number_above_0(name, getattr(self, name), most))
        sampling = [name for name in ("temperature", "top_k", "top_p") if getattr(self, name) is not None]
        if sampling and self.do_sample is not True:
            raise Refusal(
                f"{' and '.join(sampling)} without do_sample=True",
                "do_sample=True beside them",
                "Add do_sample=True, or leave them out: greedy decoding reads none of them.",
            )
        scope = self.penalty_scope
        window = isinstance(scope, int) and not isinstance(scope, bool) and scope >= 1
        if not window and scope not in (None, "all", "output"):
            raise Refusal(
                f"penalty_scope={scope!r}", "'all', 'output' or a whole number, 1 or more", "Choose one of these."
            )
        if scope is not None and self.repetition_penalty is None:
            raise Refusal(
                "penalty_scope without repetition_penalty",
                "both, or neither",
                "Add repetition_penalty=1.3, for example.",
            )
        if self.suppress_tokens is not None:
            object.__setattr__(self, "suppress_tokens", _ids("suppress_tokens", self.suppress_tokens))

    def _check_fill(self) -> None:
        fill = self.fill
        if fill is None:
            return
        if isinstance(fill, str):
            if fill not in ("copies", "prompts"):
                raise Refusal(
                    f"fill={fill!r}", "'copies', 'prompts' or a list", "Put a single text in a list: fill=[text]."
                )
            return
        if not isinstance(fill, Sequence) or isinstance(fill, bytes):
            raise Refusal(
                f"fill={fill!r}", "'copies', 'prompts', texts or id lists", "Give one entry for each other row."
            )
        entries: list[str | tuple[int, ...]] = []
        for entry in fill:
            if isinstance(entry, str):
                entries.append(entry)
            elif isinstance(entry, Sequence) and all(isinstance(i, int) and i >= 0 for i in entry):
                entries.append(tuple(int(i) for i in entry))
            else:
                raise Refusal(f"fill entry {entry!r}", "a text or a list of token ids", "Replace that entry.")
            if not len(entries[-1]):
                raise Refusal(
                    "an empty entry in fill", "texts or id lists with at least one token", "Remove or fill it."
                )
        object.__setattr__(self, "fill", tuple(entries))  # hashable, and safe from a later change of the list
        if self.batch_size is None:
            object.__setattr__(self, "batch_size", len(entries) + 1)
        elif self.batch_size != len(entries) + 1:
            raise Refusal(
                f"batch_size={self.batch_size} with {len(entries)} other rows in fill",
                f"batch_size={len(entries) + 1} or None",
                "fill lists the other rows; leave batch_size out.",
            )

    @property
    def start_variables(self) -> dict[str, str]:
        """Environment variables that a process must start with for this configuration; empty for most."""
        fields = {name: getattr(self, name) for name in START_VARIABLES}
        return {
            START_VARIABLES[name]: str(value).upper() if isinstance(value, bool) else value
            for name, value in fields.items()
            if value is not None
        }

    @property
    def rows(self) -> int:
        """Rows in the batch: `batch_size`, or 1."""
        return 1 if self.batch_size is None else self.batch_size

    @classmethod
    def of(cls, value: RunConfig | Mapping[str, Any] | None) -> RunConfig:
        """A configuration from itself, a mapping of its fields, or ``None`` for all defaults."""
        if value is None:
            return cls()
        if isinstance(value, cls):
            return value
        if not isinstance(value, Mapping):
            raise Refusal(
                f"a configuration of type {type(value).__name__}", "RunConfig or a mapping", "Pass dict(dtype=…)."
            )
        for key in value:
            if key not in _FIELDS:
                raise Refusal(
                    f"unknown field {key!r}", ", ".join(_FIELDS), f"Correct the name.{nearest(str(key), _FIELDS)}"
                )
        return cls(**value)

    @classmethod
    def parse(cls, text: str) -> RunConfig:
        """A configuration from ``key=value,key=value``, as the command line takes it.

        Raises
        ------
        Refusal
            On an unknown key, a key given twice, or a value of the wrong kind.
        """
        values: dict[str, Any] = {}
        for item in filter(None, (part.strip() for part in text.split(","))):
            key, equals, raw = item.partition("=")
            key, raw = key.strip(), raw.strip()
            if not equals or not raw:
                raise Refusal(f"{item!r}", "key=value,key=value", "Write for example dtype=bfloat16,batch_size=8.")
            if key in values:
                raise Refusal(f"{key!r} twice", "each key once", "Remove one of the two.")
            values[key] = parse_value(key, raw)
        return cls.of(values)

    def to_dict(self) -> dict[str, Any]:
        """The fields that were set, as plain JSON values."""
        return {name: _plain(value) for name in _FIELDS if (value := getattr(self, name)) is not None}

    def difference(self, other: RunConfig) -> tuple[str, ...]:
        """Names of the fields in which two configurations differ, in the order of the fields."""
        return tuple(name for name in _FIELDS if getattr(self, name) != getattr(other, name))

    def replace(self, **changes: Any) -> RunConfig:
        """A copy with some fields changed."""
        return dataclasses.replace(self, **changes)

    def __str__(self) -> str:
        words = [f"{name}={value}" for name, value in self.to_dict().items()]
        return " · ".join(words) or "as the model and process have it"


RunConfig.__init__ = told_nearest(RunConfig.__init__)  # type: ignore[method-assign]

_FIELDS = tuple(field.name for field in dataclasses.fields(RunConfig))
_FLAG_FIELDS = ("use_cache", "deterministic", "mkldnn", "omp_dynamic", "do_sample")
_WHOLE_FIELDS = ("batch_size", "row", "left_pad", "prefill_chunk", "num_threads", "seed", "top_k")
_REAL_FIELDS = ("temperature", "top_p", "repetition_penalty")
_FLAGS = {"true": True, "on": True, "yes": True, "1": True, "false": False, "off": False, "no": False, "0": False}


def _dtype(value: Any) -> str:
    name = str(value).removeprefix("torch.")
    name = _SHORT_DTYPES.get(name, name)
    if name not in DTYPES:
        raise Refusal(f"dtype={value!r}", ", ".join(DTYPES), f"Choose one of these.{nearest(name, DTYPES)}")
    return name


def _word(name: str, value: Any, words: Sequence[str]) -> str:
    """The word of `words` that `value` is, whatever its case."""
    found = next((word for word in words if str(value).casefold() == word.casefold()), None)
    if found is None:
        raise Refusal(f"{name}={value!r}", ", ".join(words), f"Choose one of these.{nearest(str(value), words)}")
    return found


def _whole_number(name: str, value: Any, low: int) -> int | None:
    if value is None:
        return None
    found = whole(value)
    if found is None or found < low:
        raise Refusal(f"{name}={value!r}", f"a whole number, {low} or more", f"Correct {name}.")
    return found


def whole(value: Any) -> int | None:
    """A whole number as Python's own, numpy's among them; ``None`` for anything else, flags too."""
    try:
        return None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        return None


def _number_above_0(name: str, value: Any, most: float | None) -> float | None:
    if value is None:
        return None
    real = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not real or value <= 0 or (most is not None and value > most):
        allowed = "a number above 0" + ("" if most is None else f", up to {most:g}")
        raise Refusal(f"{name}={value!r}", allowed, f"Correct {name}.")
    return float(value)


def _ids(name: str, value: Any) -> tuple[int, ...]:
    """Token ids in ascending order, each once, so that one set has one name."""
    listed = isinstance(value, Sequence) and not isinstance(value, str | bytes)
    if not listed or not value or any(isinstance(i, bool) or not isinstance(i, int) or i < 0 for i in value):
        raise Refusal(f"{name}={value!r}", "a list of token ids, at least one", f"Write for example {name}=[7, 9].")
    return tuple(sorted(set(value)))


def _plain(value: Any) -> Any:
    return [_plain(item) for item in value] if isinstance(value, tuple) else value


def parse_value(key: str, raw: str) -> Any:
    """A field's value from how a person types it: flags, numbers and ids by the field's name, anything else as it stands.

    Raises
    ------
    Refusal
        On a word where a flag or a number is meant.
    """
    if raw.lower() in ("none", "null"):
        return None
    if key in _FLAG_FIELDS:
        if raw.lower() not in _FLAGS:
            raise Refusal(f"{key}={raw}", "true or false", f"Write {key}=true or {key}=false.")
        return _FLAGS[raw.lower()]
    if key in _WHOLE_FIELDS:
        return _typed(key, raw, int, "a whole number")
    if key in _REAL_FIELDS:
        return _typed(key, raw, float, "a number")
    if key == "penalty_scope":
        return int(raw) if re.fullmatch(r"-?\d+", raw) else raw
    if key == "suppress_tokens":  # 7+9 on a command line, where a comma begins the next field
        return _typed(key, raw, _listed, "token ids such as 7+9")
    return raw


def _listed(raw: str) -> list[int]:
    return [int(word) for word in re.split(r"[\s,+]+", raw.strip("[] "))]


def _typed(key: str, raw: str, kind: Callable[[str], Any], allowed: str) -> Any:
    try:
        return kind(raw)
    except ValueError:
        raise Refusal(f"{key}={raw}", allowed, f"Correct {key}.") from None


@dataclass(frozen=True)
class Preset:
    """A pair of configurations that people ask for: a label and the two sides."""

    name: str
    label: str
    a: RunConfig
    b: RunConfig


PRESETS: dict[str, Preset] = {
    preset.name: preset
    for preset in (
        Preset(
            "batch",
            "batch 1 vs 8 (bf16)",
            RunConfig(dtype="bfloat16", batch_size=1),
            RunConfig(dtype="bfloat16", batch_size=8),
        ),
        Preset("bf16-fp32", "bf16 vs fp32", RunConfig(dtype="bfloat16"), RunConfig(dtype="float32")),
        Preset("fp16-fp32", "fp16 vs fp32", RunConfig(dtype="float16"), RunConfig(dtype="float32")),
        Preset(
            "cache",
            "cache on vs off (bf16)",
            RunConfig(dtype="bfloat16", use_cache=True),
            RunConfig(dtype="bfloat16", use_cache=False),
        ),
        Preset(
            "attention",
            "sdpa vs eager (bf16)",
            RunConfig(dtype="bfloat16", attn_implementation="sdpa"),
            RunConfig(dtype="bfloat16", attn_implementation="eager"),
        ),
        Preset(
            "threads",
            "threads 1 vs 2 (fp32)",
            RunConfig(dtype="float32", num_threads=1),
            RunConfig(dtype="float32", num_threads=2),
        ),
        Preset(
            "left-pad",
            "left pad 0 vs 3 (bf16)",
            RunConfig(dtype="bfloat16", left_pad=0),
            RunConfig(dtype="bfloat16", left_pad=3),
        ),
    )
}
"""The pairs of the Explorer's menu, by name; the first is its default."""
