"""Which module may import which, and what a light command must not load."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import divexplore

PACKAGE = Path(divexplore.__file__).parent

LAYERS = (
    ("errors", "ulp", "visible"),
    ("config", "trace", "environment"),
    ("models",),
    ("engine",),
    ("comparison", "sources", "testing"),
    ("view",),
    ("lab",),
    ("cli",),
)
LEVEL = {room: level for level, rooms in enumerate(LAYERS) for room in rooms}
FREE_NAMES = {"__version__"}  # what any room may take from the package itself
HOOKS = {("comparison", "view")}  # a comparison displays as a view; it names it in a string, and imports it on display
HEAVY = ("torch", "transformers", "polars", "altair", "ipywidgets", "scipy")


def room_of(module: str) -> str:
    """The first part below the package: ``divexplore.view.assets`` is in the room ``view``."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else ""


def modules() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        names = path.relative_to(PACKAGE).with_suffix("").parts
        if names[0] == "notebooks":
            continue
        name = ".".join(["divexplore", *(part for part in names if part != "__init__")])
        yield name, ast.parse(path.read_text(encoding="utf-8"))


def imports_of(tree: ast.Module) -> Iterator[tuple[str, str, bool]]:
    """Module, name (or empty) and whether the import is a string, for every import, in functions too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, "", False
        elif isinstance(node, ast.Attribute) and ast.unparse(node.value) == "divexplore":  # after import divexplore
            yield "divexplore", node.attr, False
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                yield node.module or "", alias.name, False
        elif isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in (
            "import_module",
            "__import__",
        ):
            for argument in node.args:
                if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                    yield argument.value, "", True


def upward_imports(name: str, tree: ast.Module) -> list[str]:
    room = room_of(name)
    found = []
    for module, imported, by_string in imports_of(tree):
        if module.partition(".")[0] != "divexplore":
            continue
        target = room_of(module)
        if not target:  # from divexplore import room, or a public name, behind which every room may stand
            if not imported or imported in FREE_NAMES or room == "cli":
                continue
            target = imported
        if target == room or (by_string and (room, target) in HOOKS):
            continue
        if LEVEL.get(target, len(LAYERS)) >= LEVEL[room]:
            found.append(f"{name} imports {module}{f'.{imported}' if imported else ''}")
    return found


def test_every_room_has_a_level():
    rooms = {room_of(name) for name, _ in modules()} - {""}
    assert rooms <= set(LEVEL), "a new room: say in LAYERS where it stands"


def test_no_import_points_up():
    assert [line for name, tree in modules() if room_of(name) for line in upward_imports(name, tree)] == []


@pytest.mark.parametrize(
    ("room", "source"),
    [
        ("divexplore.engine.run", "from divexplore.comparison.compare import compare"),
        ("divexplore.models.load", "def late():\n    import divexplore.engine.run"),
        ("divexplore.trace", "from divexplore import compare"),
        ("divexplore.trace", "import divexplore\ndivexplore.compare()"),
        ("divexplore.config", "from divexplore.trace import Trace"),
        ("divexplore.engine.run", "importlib.import_module('divexplore.view.assets')"),
        ("divexplore.view.assets", "from divexplore.cli import main"),
    ],
)
def test_an_import_that_points_up_is_seen(room, source):
    assert len(upward_imports(room, ast.parse(source))) == 1


def test_no_relative_imports():
    """They would pass the reader of arrows unseen."""
    assert [
        name for name, tree in modules() for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.level
    ] == []


def loaded_by(code: str) -> list[str]:
    """Heavy modules that a fresh interpreter holds after `code`."""
    probe = f"import json, sys\n{code}\nsys.stderr.write(json.dumps([m for m in {HEAVY!r} if m in sys.modules]))"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, timeout=60, check=True)
    return json.loads(done.stderr.splitlines()[-1])  # below what the command said


@pytest.mark.parametrize(
    "code",
    [
        "import divexplore",
        "import divexplore; dir(divexplore); divexplore.RunConfig(dtype='bfloat16'); divexplore.PRESETS",
        "from divexplore.cli import main; main(['--help'])",
        "from divexplore.cli import main; main(['compare', '--help'])",
        "from divexplore.cli import main; main(['--version'])",
        "from divexplore.cli import main; main(['models'])",
        "from divexplore.cli import main; main(['compare', 'Hello', '--max-new-tokens', '0'])",
        "from divexplore.cli import main; main(['compare', ' '])",
        "from divexplore.cli import main; main(['scan', '--max-new-tokens', '0'])",
    ],
)
def test_light_use_loads_nothing_heavy(code):
    assert loaded_by(code) == []


def test_the_probe_sees_a_heavy_module():
    assert loaded_by("import polars") == ["polars"]


def test_an_explorer_opens_before_torch_is_loaded():
    """It takes seconds, which a person at the panel need not wait for; the first run does."""
    assert not {"torch", "transformers"} & set(loaded_by("import divexplore; divexplore.Explorer()"))
