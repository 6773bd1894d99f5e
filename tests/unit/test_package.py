"""What holds for every file of the project, and for the names that it gives away."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

import divexplore

PACKAGE = Path(divexplore.__file__).parent
ROOT = PACKAGE.parent
PYTORCH_INDEX = "download.pytorch.org/whl/cpu"  # PyTorch's public index of CPU wheels
INDEX_MAY_STAND_IN = {"binder/requirements.txt", "README.md", "tests/unit/test_package.py"}
MACHINE_PATHS = re.compile(r"(?<![\w.\-/])/(?:home|root|Users|work|opt|mnt|tmp)/\w[\w.\-]*")
REGISTRY_HOSTS = re.compile(
    r"\b(?:[\w-]+\.)*(?:pypi\.org|pythonhosted\.org|npmjs\.(?:org|com)|debian\.org|pytorch\.org)\b"
)
SOURCES = sorted(path for path in PACKAGE.rglob("*.py") if "notebooks" not in path.parts)


def tracked_texts() -> dict[str, str]:
    """Text of every tracked file of the checkout, by its path from the root."""
    if not (ROOT / ".git").exists():
        pytest.skip("not in a checkout")
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, text=True).stdout
    texts = {}
    for name in filter(None, listed.split("\0")):
        path = ROOT / name
        if path.is_file() and path.suffix not in {".safetensors", ".png", ".parquet", ".gz"}:
            texts[name] = path.read_text(encoding="utf-8")
    return texts


@pytest.fixture(scope="module")
def texts():
    return tracked_texts()


@pytest.mark.parametrize("name", divexplore.__all__)
def test_public_names_can_be_had(name):
    assert getattr(divexplore, name) is not None
    assert name in dir(divexplore)


def test_the_public_names_are_those_of_the_table():
    assert sorted(divexplore.__all__) == sorted(divexplore._HOMES)


def test_no_public_name_is_also_a_module():
    """The import system would put the module in the name's place at its second use."""
    modules = {path.stem for path in PACKAGE.iterdir() if path.suffix == ".py" or path.is_dir()}
    assert modules & set(divexplore.__all__) == set()


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="comparee"):
        _ = divexplore.comparee


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_public_names_of_a_module_are_listed(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    defined = {
        node.name
        for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef) and not node.name.startswith("_")
    }
    if not defined or path.name == "__init__.py":
        return
    listed = [node for node in tree.body if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"]
    assert listed, f"{path.name} defines {sorted(defined)} and has no __all__"


def test_listed_names_exist():
    for path in SOURCES:
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        if parts[-1] in ("__init__", "recipe"):
            continue
        module = importlib.import_module(".".join(["divexplore", *parts]))
        missing = [name for name in getattr(module, "__all__", ()) if not hasattr(module, name)]
        assert missing == [], module.__name__


def test_no_file_is_longer_than_500_lines(texts):
    code = {name: text for name, text in texts.items() if Path(name).suffix in {".py", ".js", ".css", ".toml"}}
    assert [name for name, text in code.items() if text.count("\n") > 500] == []


def test_no_path_of_a_machine_is_in_the_project(texts):
    allowed = re.compile(r"/(?:work|home|root|tmp|opt)/(?:me|you|user|someone|nobody)\b")  # invented ones, for examples
    found = {
        name: hits
        for name, text in texts.items()
        if (hits := [hit for hit in MACHINE_PATHS.findall(text) if not allowed.match(hit)])
    }
    assert found == {}


def test_no_registry_is_named_but_the_one_that_binder_needs(texts):
    found = {}
    for name, text in texts.items():
        if name in INDEX_MAY_STAND_IN:
            text = text.replace(PYTORCH_INDEX, "")
        if name != "tests/unit/test_package.py" and (hits := REGISTRY_HOSTS.findall(text)):
            found[name] = hits
    assert found == {}


def test_the_readme_names_the_index_at_most_once(texts):
    assert texts["README.md"].count(PYTORCH_INDEX) <= 1


def test_bounds_never_cap_torch():
    """Installing divexplore must not replace the torch that a user came to debug."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    torch = [bound for bound in project["dependencies"] if re.match(r"torch\b", bound)]
    assert torch == ["torch>=2.6"]
    assert {"test", "dask", "endpoints", "gpu", "gguf"} <= set(project["optional-dependencies"])
