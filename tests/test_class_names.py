"""A reader who meets the name of a class knows which one it is."""

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import combinations

from tests.conftest import REPOSITORY

_PLACES = (REPOSITORY / "operator", REPOSITORY / "operator" / "advise")
_ALONE = ("pdinference.engine.scripts", "pdinference_advise.commands.calibrate.measure_steps")
"""Programs that run in pods, without our packages."""


def _modules() -> Iterator[tuple[str, ast.Module]]:
    for place in _PLACES:
        for package in sorted(place.glob("pdinference*")):
            for file in sorted(package.rglob("*.py")):
                name = file.relative_to(place).with_suffix("").as_posix().replace("/", ".").removesuffix(".__init__")
                yield name, ast.parse(file.read_text(encoding="utf-8"))


def _layer(module: str) -> str:
    return ".".join(module.split(".")[:2])


def _imports(modules: Mapping[str, ast.Module]) -> dict[str, set[str]]:
    """The layers that each layer imports from, and itself."""
    found: dict[str, set[str]] = defaultdict(set)
    for name, tree in modules.items():
        found[_layer(name)].add(_layer(name))
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module is not None:
                found[_layer(name)].add(_layer(node.module))
    return found


def test_no_two_classes_have_one_name_in_layers_that_meet() -> None:
    modules = dict(_modules())
    imports = _imports(modules)
    homes: dict[str, list[str]] = defaultdict(list)
    for name, tree in modules.items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_") and not name.startswith(_ALONE):
                homes[node.name].append(name)
    assert homes["Role"] == ["pdinference.api.names"]
    twice = [
        (name, one, other)
        for name, places in homes.items()
        for one, other in combinations(places, 2)
        if _layer(other) in imports[_layer(one)] or _layer(one) in imports[_layer(other)]
    ]
    assert not twice
