"""JupyterLab, Notebook 7 and Voila in an isolated home: start a server, open a notebook, run it, see its errors."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["Server", "close_kernels", "open_notebook", "open_rendered", "run_all", "server", "text_outputs"]

START_SECONDS = 90
TOKEN_FLAGS = ("--no-browser", "--allow-root", "--ip=127.0.0.1", "--port=0", "--ServerApp.terminals_enabled=False")
QUIET_LAB = ("--LabApp.news_url=", "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate")
EXPOSED = {"lab": "--LabApp.expose_app_in_browser=True", "notebook": "--JupyterNotebookApp.expose_app_in_browser=True"}
MODULES = {"lab": "jupyterlab", "notebook": "notebook"}
PAGES = {
    "lab": "/doc/tree/{name}?token={token}&reset",
    "notebook": "/notebooks/{name}?token={token}",
    "voila": "/voila/render/{name}?token={token}",
}
PINGS = {"lab": "/api/status", "notebook": "/api/status", "voila": "/voila/tree"}
RENDER_MS = 60_000  # Voila runs the notebook while it answers: a fresh kernel and its imports

# A synchronous predicate: Playwright takes the promise of an async one for true, at once.
READY = """(name) => {
  const panel = window.jupyterapp?.shell.currentWidget;
  const session = panel?.sessionContext;
  return !!panel && panel.context?.path.split('/').pop() === name && panel.context.isReady
    && session.isReady && session.session?.kernel?.connectionStatus === 'connected'
    && session.session.kernel.status === 'idle';
}"""
CODE_OUTPUTS = """() => window.jupyterapp.shell.currentWidget.content.widgets
  .filter(cell => cell.model.type === 'code').flatMap(cell => cell.model.outputs.toJSON())"""


@dataclass(frozen=True)
class Server:
    """A running Jupyter server: its kind (``lab``, ``notebook``, ``voila``), address, token, folder and log."""

    kind: str
    url: str
    token: str
    root: Path
    log: Path

    def ask(self, path: str, method: str = "GET") -> Any:
        """One request to its REST interface; the decoded answer, or ``None`` where it is empty."""
        body = self.fetch(path, method)
        return json.loads(body) if body else None

    def fetch(self, path: str, method: str = "GET") -> bytes:
        """One request; the body of the answer."""
        headers = {"Authorization": f"token {self.token}"}
        request = urllib.request.Request(f"{self.url}{path}", method=method, headers=headers)
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.read()


@contextlib.contextmanager
def server(kind: str, root: Path, settings: dict[str, dict[str, Any]] | None = None) -> Iterator[Server]:
    """Start a server on a free port and end it afterwards.

    Parameters
    ----------
    kind
        ``lab``, ``notebook`` or ``voila``.
    root
        Folder that it serves.
    settings
        User settings of JupyterLab by plugin, such as ``{"@jupyterlab/apputils-extension:themes": {"theme": …}}``.
    """
    home = Path(tempfile.mkdtemp(prefix="divexplore-jupyter-"))
    token = secrets.token_hex(16)
    port = _free_port() if kind == "voila" else None  # Voila tells nobody which port it took
    command = _jupyter(kind, root, token) if port is None else _voila(root, token, port)
    log = home / "server.log"
    with log.open("wb") as sink:
        process = subprocess.Popen(
            command, env=_isolated(home, settings or {}), stdout=sink, stderr=subprocess.STDOUT, cwd=root
        )
    try:
        url = _address(process, home, log) if port is None else f"http://127.0.0.1:{port}"
        started = Server(kind, url, token, root, log)
        _wait_until_it_answers(started, process)
        yield started
    finally:
        process.terminate()  # Jupyter servers and Voila end their kernels first
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        shutil.rmtree(home, ignore_errors=True)


def _jupyter(kind: str, root: Path, token: str) -> list[str]:
    command = [sys.executable, "-m", MODULES[kind], *TOKEN_FLAGS, *QUIET_LAB, EXPOSED[kind]]
    return [*command, f"--IdentityProvider.token={token}", f"--ServerApp.root_dir={root}"]


def _voila(root: Path, token: str, port: int) -> list[str]:
    where = ("--no-browser", "--Voila.ip=127.0.0.1", f"--Voila.port={port}", "--Voila.port_retries=0")
    return [sys.executable, "-m", "voila", str(root), *where, f"--Voila.token={token}"]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _isolated(home: Path, settings: dict[str, dict[str, Any]]) -> dict[str, str]:
    """The environment of a server that neither reads nor writes anything of the user's."""
    environment = dict(os.environ)
    if "DIVEXPLORE_CACHE" not in environment:  # the cache is found through HOME, and is the one thing to share
        from divexplore.models.catalog import cache_folder

        environment["DIVEXPLORE_CACHE"] = str(cache_folder())
    for name in (
        "JUPYTER_CONFIG_DIR",
        "JUPYTER_DATA_DIR",
        "JUPYTER_RUNTIME_DIR",
        "JUPYTERLAB_SETTINGS_DIR",
        "JUPYTERLAB_WORKSPACES_DIR",
        "IPYTHONDIR",
    ):
        environment[name] = str(home / name.lower())
        Path(environment[name]).mkdir()
    environment["HOME"] = str(home)
    quiet = {
        "@jupyterlab/apputils-extension:notification": {"fetchNews": "false", "checkForUpdates": False},
        "@jupyterlab/notebook-extension:tracker": {"windowingMode": "none"},  # else off-screen outputs leave the page
    }
    for plugin, values in {**quiet, **settings}.items():
        extension, _, name = plugin.partition(":")
        path = home / "jupyterlab_settings_dir" / extension / f"{name}.jupyterlab-settings"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(values), encoding="utf-8")
    return environment


def _address(process: subprocess.Popen[bytes], home: Path, log: Path) -> str:
    """The server's address, from the file that it writes once it knows its port."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        for facts in (home / "jupyter_runtime_dir").glob("jpserver-*.json"):
            with contextlib.suppress(ValueError):  # half written
                return json.loads(facts.read_text(encoding="utf-8"))["url"].rstrip("/")
        time.sleep(0.1)
    raise RuntimeError(f"the server did not start: {log.read_text(errors='replace')[-3000:]}")


def _wait_until_it_answers(started: Server, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            started.fetch(PINGS[started.kind])
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            time.sleep(0.1)
        else:
            return
    raise RuntimeError(f"the server does not answer: {started.log.read_text(errors='replace')[-3000:]}")


def open_notebook(page: Any, on: Server, name: str) -> None:
    """Open a notebook and wait until its kernel is connected and idle."""
    page.goto(on.url + PAGES[on.kind].format(name=name, token=on.token))
    page.wait_for_function(READY, arg=name)


def open_rendered(page: Any, on: Server, name: str) -> None:
    """Open a notebook in Voila, which runs all of it before the page is whole."""
    page.goto(on.url + PAGES[on.kind].format(name=name, token=on.token), timeout=RENDER_MS)


def run_all(page: Any) -> None:
    """Run every cell, wait for the kernel, and assert that no cell shows an error."""
    page.evaluate("() => window.jupyterapp.commands.execute('notebook:run-all-cells')")
    outputs = page.evaluate(CODE_OUTPUTS)
    errors = [f"{out['ename']}: {out['evalue']}" for out in outputs if out["output_type"] == "error"]
    assert not errors, errors


def text_outputs(page: Any) -> str:
    """What the cells printed."""
    outputs = page.evaluate(CODE_OUTPUTS)
    return "".join("".join(out["text"]) for out in outputs if out["output_type"] == "stream")


def close_kernels(on: Server) -> None:
    """End every session of a server, so that the next test starts with a fresh kernel and its memory."""
    for session in on.ask("/api/sessions"):
        on.ask(f"/api/sessions/{session['id']}", "DELETE")
