"""The Vega runtime as one gzip-packed ES module, made by vl-convert and kept on disk."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

from divexplore.errors import Refusal
from divexplore.models.catalog import cache_folder

__all__ = ["runtime"]

# In a process of its own: the bundler starts a V8 that would hold 130 MB of the kernel for good.
_BUNDLE = (
    "import sys, vl_convert; sys.stdout.buffer.write(vl_convert.javascript_bundle(sys.argv[1], sys.argv[2]).encode())"
)
_SNIPPET = "export default vegaEmbed;"  # a module, so that a notebook page gets no global names


def runtime() -> bytes:
    """The runtime, gzip-packed (about 0.3 MB); its default export is ``vegaEmbed``. Made at first use (about 1 s).

    Raises
    ------
    Refusal
        Where vl-convert cannot make it.
    """
    lite = _vega_lite_version()
    path = cache_folder() / f"vega-{version('vl-convert-python')}-{lite}.js.gz"
    if path.is_file():
        return path.read_bytes()
    made = subprocess.run(
        [sys.executable, "-c", _BUNDLE, _SNIPPET, lite], capture_output=True, check=False, timeout=120
    )
    if made.returncode or not made.stdout:
        reason = made.stderr.decode(errors="replace").strip().splitlines()[-1:] or ["no output"]
        raise Refusal(
            f"the chart runtime ({reason[0]})",
            "an installed vl-convert-python",
            "Reinstall it; all but the charts works.",
        )
    packed = gzip.compress(made.stdout, 9, mtime=0)
    _write(path, packed)
    return packed


def _vega_lite_version() -> str:
    from altair.vegalite import SCHEMA_VERSION

    return ".".join(SCHEMA_VERSION.removeprefix("v").split(".")[:2])


def _write(path: Path, content: bytes) -> None:
    """Whole or not at all: two kernels may start at once. A folder that cannot be written costs only the next start."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            file.write(content)
        Path(file.name).chmod(0o644)  # a temporary file is for its owner alone, a cache may be shared
        os.replace(file.name, path)
    except OSError:
        return
