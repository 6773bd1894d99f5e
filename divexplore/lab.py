"""How does a person get to the quickstart? Find the notebooks, or copy them out of the wheel, and start JupyterLab."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from divexplore.errors import Refusal

__all__ = ["QUICKSTART", "copy_notebooks", "find_notebooks", "jupyter_arguments", "open_lab"]

QUICKSTART = "01_quickstart.ipynb"
_PACKAGE = Path(__file__).parent
_FOLDER = "divexplore-notebooks"


def open_lab(*, browser: bool = True, port: int | None = None, extra: Sequence[str] = ()) -> None:
    """Run JupyterLab on the quickstart, in this process, until the user ends it.

    Parameters
    ----------
    browser
        Whether to open a browser.
    port
        Port to listen on; ``None`` is Jupyter's own choice.
    extra
        Arguments passed on to JupyterLab, after ours.
    """
    if port is not None and not 0 <= port <= 65535:
        raise Refusal(f"--port {port}", "0 to 65535, 0 for any free port", "Choose another port.")
    notebook = find_notebooks(Path.cwd()) / QUICKSTART
    arguments = jupyter_arguments(notebook, browser=browser, port=port, root=_is_root(), extra=extra)
    if _is_root() and "--allow-root" not in extra:
        _say("running as root: --allow-root is passed to JupyterLab, which refuses to start without it")
    _say("jupyter lab " + " ".join(arguments))

    from jupyterlab.labapp import LabApp

    LabApp.launch_instance(argv=arguments)


def jupyter_arguments(
    notebook: Path, *, browser: bool, port: int | None, root: bool, extra: Sequence[str]
) -> list[str]:
    """The command line of ``jupyter lab`` that opens `notebook`."""
    arguments = [str(notebook)]
    if not browser:
        arguments.append("--no-browser")
    if port is not None:
        arguments.append(f"--port={port}")
    if root and "--allow-root" not in extra:
        arguments.append("--allow-root")
    return [*arguments, *extra]


def find_notebooks(here: Path) -> Path:
    """The folder to open: that of the checkout, or a copy of the packaged notebooks in `here`."""
    checkout = _PACKAGE.parent / "notebooks"
    if (_PACKAGE.parent / "pyproject.toml").is_file() and (checkout / QUICKSTART).is_file():
        return checkout
    packaged = _PACKAGE / "notebooks"
    if not (packaged / QUICKSTART).is_file():
        raise Refusal("no notebooks in this installation", "a wheel or a checkout of divexplore", "Install it again.")
    folder = here / _FOLDER
    try:
        kept = copy_notebooks(packaged, folder)
    except OSError as error:
        raise Refusal(
            f"a copy of the notebooks in {folder} ({error.strerror})", "a folder that can be written", "Change folder."
        ) from error
    for name in kept:
        _say(f"kept your {folder.name}/{name}; rename it to get the packaged one again")
    return folder


def copy_notebooks(packaged: Path, folder: Path) -> list[str]:
    """Copy the packaged files to `folder`, except over a file that differs; returns the names of those kept.

    A notebook that was run differs as well, for its outputs are in it: nothing that a person made is ever lost.
    """
    kept = []
    for source in sorted(_files(packaged)):
        name = source.relative_to(packaged)
        target = folder / name
        content = source.read_bytes()
        if target.exists():
            if target.read_bytes() != content:
                kept.append(name.as_posix())
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
    return kept


def _files(folder: Path) -> Iterator[Path]:
    for path in folder.rglob("*"):
        hidden = any(part.startswith((".", "__")) for part in path.relative_to(folder).parts)
        if path.is_file() and not hidden:
            yield path


def _is_root() -> bool:
    return hasattr(os, "geteuid") and os.geteuid() == 0


def _say(line: str) -> None:
    sys.stderr.write(f"divexplore: {line}\n")
