from __future__ import annotations

import re

from divexplore.view import assets


def sources() -> dict[str, str]:
    return {name: (assets.FOLDER / name).read_text(encoding="utf-8") for name in assets.MODULES}


def test_no_two_modules_share_a_top_level_name():
    owner: dict[str, str] = {}
    for module, source in sources().items():
        for name in assets.top_level_names(source):
            assert name not in owner, f"{name} is declared by {owner.get(name)} and by {module}"
            owner[name] = module
    assert len(owner) > 50


def test_each_module_comes_after_those_it_imports_and_imports_what_they_export():
    before: dict[str, set[str]] = {}
    for module, source in sources().items():
        for names, target in re.findall(r'^import \{([^}]*)\} from "\./([^"]+)";', source, re.MULTILINE):
            wanted = {name.strip() for name in names.split(",")}
            assert target in before, f"{module} comes before {target}"
            assert wanted <= before[target], f"{module} imports {wanted - before[target]} from {target}"
            body = source.split(f'"./{target}";', 1)[1]
            unused = {name for name in wanted if not re.search(rf"\b{name}\b", body)}
            assert not unused, f"{module} does not use {unused}"
        before[module] = set(re.findall(r"^export (?:async )?(?:function|const|class) (\w+)", source, re.MULTILINE))


def test_every_module_of_the_folder_is_joined_or_is_the_page_of_its_own():
    assert {path.name for path in assets.FOLDER.glob("*.js")} == {*assets.MODULES, "standalone.js"}


def test_the_joined_module_imports_nothing_and_exports_its_last_default_only():
    joined = assets.esm()
    assert not re.search(r"^import\b", joined, re.MULTILINE)
    assert re.findall(r"^export .*", joined, re.MULTILINE) == ["export default { render };"]


def test_no_markup_is_ever_made_from_text():
    for name, source in {**sources(), "standalone.js": assets.standalone()}.items():
        for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "https://"):
            assert word not in source, f"{word} in {name}"
