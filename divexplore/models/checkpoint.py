"""Can this folder be loaded, and safely? The checks before a load, and the load itself."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    MODEL_FOR_MASKED_LM_MAPPING_NAMES,
)
from transformers.utils import logging

from divexplore.errors import Refusal

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

__all__ = ["quiet", "read_checkpoint", "refuse_unless_causal", "stored_dtype"]

_STORED = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
_HEADER_LIMIT = 100_000_000  # bytes; the limit of the safetensors format itself


def read_checkpoint(
    folder: Path, name: str, *, allow_pickle: bool, trust_remote_code: bool
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase | None]:
    """The model in the dtype of its file, and its tokenizer where the folder has one.

    Raises
    ------
    Refusal
        On a folder without configuration or weights, a pickle, something that is no causal language model, or a
        checkpoint that lacks tensors (transformers would fill them with random numbers).
    """
    _refuse_unless_complete(folder, name, allow_pickle)
    config = _attempt(name, AutoConfig.from_pretrained, folder, trust_remote_code=trust_remote_code)
    refuse_unless_causal(config, name, trust_remote_code)
    model, info = _attempt(
        name,
        AutoModelForCausalLM.from_pretrained,
        folder,
        # the file's own dtype: one that config.json merely names would round the masters on the way in
        dtype=stored_dtype(folder) or "auto",
        use_safetensors=None if allow_pickle else True,
        trust_remote_code=trust_remote_code,
        output_loading_info=True,
    )
    if missing := sorted(info["missing_keys"]):
        raise Refusal(
            f"{name!r} lacks {len(missing)} of its tensors ({', '.join(missing[:3])} …)",
            "a complete checkpoint",
            "Copy or download it again: missing weights would be random.",
        )
    has_tokenizer = any((folder / file).is_file() for file in ("tokenizer.json", "tokenizer_config.json"))
    tokenizer = (
        _attempt(name, AutoTokenizer.from_pretrained, folder, trust_remote_code=trust_remote_code)
        if has_tokenizer
        else None
    )
    return model, tokenizer


def refuse_unless_causal(config: PreTrainedConfig, name: str, trust_remote_code: bool = False) -> None:
    """Refuse what does not write a text from left to right, and weights that are quantised."""
    if (quantised := getattr(config, "quantization_config", None)) is not None:
        method = (
            quantised.get("quant_method") if isinstance(quantised, dict) else getattr(quantised, "quant_method", "")
        )
        raise Refusal(
            f"{name!r} holds quantised weights ({method})",
            "weights in float64, float32, bfloat16 or float16, or a GGUF file",
            "Load an unquantised checkpoint: casts would start from rounded blocks.",
        )
    architectures = list(config.architectures or ())
    known = {
        one
        for names in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.values()
        for one in ([names] if isinstance(names, str) else names)
    }
    own_code = trust_remote_code and bool(getattr(config, "auto_map", None))
    if config.is_encoder_decoder or (architectures and not own_code and not known.intersection(architectures)):
        raise Refusal(
            f"{name!r} is {' or '.join(architectures) or config.model_type}, not a causal language model",
            "models that transformers loads as AutoModelForCausalLM",
            "Choose a decoder with a language-model head.",
        )
    # such families serve as encoders too, and have a head for each use: what the attention sees, the configuration says
    encoders = {*MODEL_FOR_MASKED_LM_MAPPING_NAMES, "bert-generation"}
    flags = [flag for flag in ("is_decoder", "causal") if hasattr(config, flag)]
    if config.model_type in encoders and flags and not any(getattr(config, flag) for flag in flags):
        raise Refusal(
            f"{name!r}, whose configuration says {flags[0]}=False: every position of {config.model_type} sees those after it",
            "a causal language model, in which a position sees those before it",
            f"Choose a decoder; a checkpoint that was trained as one says {flags[0]}=True.",
        )


def stored_dtype(folder: Path) -> torch.dtype | None:
    """The dtype that most values in a folder's safetensors have; ``None`` without such files or floats."""
    values: Counter[torch.dtype] = Counter()
    for file in sorted(folder.glob("*.safetensors")):
        for entry in _header(file).values():
            dtype = _STORED.get(entry.get("dtype", ""))
            if dtype is not None:
                begin, end = entry["data_offsets"]
                values[dtype] += (end - begin) // dtype.itemsize
    return values.most_common(1)[0][0] if values else None


@contextmanager
def quiet() -> Iterator[None]:
    """Without transformers' progress bars: a small model loads before one is read."""
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


def _header(file: Path) -> dict[str, dict[str, Any]]:
    with file.open("rb") as stream:
        size = int.from_bytes(stream.read(8), "little")
        text = stream.read(size) if size <= _HEADER_LIMIT else b""
    try:
        header: dict[str, dict[str, Any]] = json.loads(text)
    except ValueError:
        raise Refusal(
            f"{file.name} is no safetensors file", "complete .safetensors files", "Copy or download it again."
        ) from None
    header.pop("__metadata__", None)
    return header


def _refuse_unless_complete(folder: Path, name: str, allow_pickle: bool) -> None:
    safe, pickles = any(folder.glob("*.safetensors")), sorted(folder.glob("pytorch_model*.bin"))
    if not (folder / "config.json").is_file():
        raise Refusal(
            f"the folder {name!r} has no config.json",
            "a folder that save_pretrained wrote, or a .gguf file",
            "Point at the folder that holds config.json.",
        )
    if pickles and not safe and not allow_pickle:
        raise Refusal(
            f"{name!r} holds its weights as a pickle ({pickles[0].name}), which can run code when it is opened",
            "safetensors or GGUF",
            "Convert it (model.save_pretrained), or pass allow_pickle=True if you trust its author.",
        )
    if not safe and not pickles:
        raise Refusal(
            f"the folder {name!r} has no weights",
            "model.safetensors, its shards, or a .gguf file",
            "Copy or download the weights into it.",
        )


def _attempt(name: str, load: Any, folder: Path, **options: Any) -> Any:
    """Call a loader of transformers; its errors (of many types, some pages long) become one sentence."""
    try:
        with quiet():
            return load(str(folder), local_files_only=True, **options)
    except (MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        do = "Read the reason in brackets; transformers must be able to load this folder."
        if "trust_remote_code" in str(error):
            do = "It brings code of its own: pass trust_remote_code=True if you trust its author."
        raise Refusal(f"{name!r} cannot be loaded ({reason})", "a checkpoint that transformers can load", do) from error
