"""A reader who meets the name of a class knows which one it is."""

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import combinations

from tests import found
from tests.conftest import REPOSITORY

_ALONE = ("pdinference.engine.scripts", "pdinference_advise.commands.calibrate.measure_steps")
"""Programs that run in pods, without our packages."""


def _modules() -> Iterator[tuple[str, ast.Module]]:
    for file, _ in found.modules():
        name = ".".join(file.relative_to(REPOSITORY / "operator").with_suffix("").parts)
        yield name.removeprefix("advise."), ast.parse(file.read_text(encoding="utf-8"))


def _layer(module: str) -> str:
    return ".".join(module.split(".")[:2])


def _imports(modules: Mapping[str, ast.Module]) -> dict[str, set[str]]:
    """The layers that each layer imports from, and itself."""
    known: dict[str, set[str]] = defaultdict(set)
    for name, tree in modules.items():
        known[_layer(name)].add(_layer(name))
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module is not None:
                known[_layer(name)].add(_layer(node.module))
    return known


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
