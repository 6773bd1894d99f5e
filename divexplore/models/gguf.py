"""How does a GGUF file become a checkpoint? Unpacked once by transformers, kept as safetensors in the cache."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path

from filelock import FileLock
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

from divexplore.errors import Refusal
from divexplore.models.catalog import cache_folder
from divexplore.models.checkpoint import quiet

__all__ = ["cached_copy", "cached_folder", "unpack"]


def cached_folder(file: Path) -> Path:
    """Where the unpacked copy of `file` is or will be. A file that changes (size or time) gets another folder."""
    status = file.stat()
    identity = blake2b(f"{file.resolve()} {status.st_size} {status.st_mtime_ns}".encode(), digest_size=6).hexdigest()
    return cache_folder() / "models" / f"{re.sub(r'[^a-z0-9.-]+', '-', file.stem.lower())}-{identity}"


def cached_copy(file: Path, folder: Path, write: Callable[[Path, Path], None] | None = None) -> Path:
    """`folder` with the unpacked copy of `file`: made at first use, by one process, and never seen half-written.

    Parameters
    ----------
    file
        A GGUF file.
    folder
        Where the copy goes; its parent is created.
    write
        What unpacks; ``write(file, new_folder)``. `unpack` unless told.
    """
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(folder.with_name(folder.name + ".lock")):
        if folder.is_dir():  # another process was faster
            return folder
        partial = Path(tempfile.mkdtemp(prefix=folder.name + ".partial-", dir=folder.parent))
        try:
            (write or unpack)(file, partial)
            partial.chmod(0o755)  # mkdtemp's folders are for their owner alone
            os.replace(partial, folder)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    return folder


def unpack(file: Path, folder: Path) -> None:
    """Write `file` as a transformers checkpoint, with its tokenizer and chat template.

    Raises
    ------
    Refusal
        Where transformers cannot read the file, or the packages it needs for it are missing.
    """
    source, name = str(file.parent), file.name
    try:
        with quiet():
            tokenizer = AutoTokenizer.from_pretrained(source, gguf_file=name, local_files_only=True)
            model = AutoModelForCausalLM.from_pretrained(
                source,
                gguf_file=name,
                dtype="auto",
                local_files_only=True,
                quantization_config=GgufConfig(dequantize=True),  # plain tensors: blocks could not be cast
            )
    except ImportError as error:
        raise Refusal(
            f"the GGUF file {name!r} ({error})",
            "GGUF files with the extra installed",
            "pip install 'divexplore[gguf]'.",
        ) from error
    except MemoryError:
        raise
    except Exception as error:
        if "accelerate" in str(error) or "gguf>=" in str(error):
            raise Refusal(
                f"the GGUF file {name!r}, which needs gguf and accelerate",
                "GGUF files with both packages installed",
                "pip install 'divexplore[gguf]'.",
            ) from error
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise Refusal(
            f"{name!r} cannot be read as GGUF ({reason})",
            "a complete GGUF file of an architecture that transformers knows",
            "Download it again, or load the model's safetensors.",
        ) from error
    # what loading from blocks leaves behind would make save_pretrained write blocks' names again
    for holder, leftover in ((model.config, "quantization_config"), (model, "_weight_conversions")):
        if hasattr(holder, leftover):
            delattr(holder, leftover)
    with quiet():
        model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
