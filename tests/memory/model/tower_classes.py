"""Counts the parameters of vLLM's classes with a vision tower, in a process of its own.

These classes import torchvision, which vLLM for CPU does not bring. Nothing of it is called while a class is made, so
stand-ins do; transformers remembers that it found them, which no other test may see.

    python -m tests.memory.model.tower_classes FOLDER < {NAME: config.json}    # prints {NAME: {ranks: number}}
"""

import json
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

from tests.memory.model.vllm_classes import allocated, one_process

_MODULES = (
    "torchvision", "torchvision.io", "torchvision.ops", "torchvision.transforms", "torchvision.transforms.functional",
    "torchvision.transforms.v2", "torchvision.transforms.v2.functional",
)  # fmt: skip
RANKS = (1, 2, 4)


class _Members(type):
    """A class that has whatever is asked of it."""

    def __getattr__(cls, name: str) -> str:
        if name.startswith("__"):
            raise AttributeError(name)
        return name


class _StandIn(ModuleType):
    """A module that has whatever is imported from it."""

    __version__ = "0.25.0"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return sys.modules.get(f"{self.__name__}.{name}") or _Members(name, (), {})


def main() -> None:
    """Count and print."""
    for name in _MODULES:
        module = sys.modules[name] = _StandIn(name)
        module.__spec__, module.__path__ = ModuleSpec(name, None), []
    folder = Path(sys.argv[1])
    counted: dict[str, dict[int, int]] = {}
    with one_process(folder):
        for name, config in json.load(sys.stdin).items():
            own = folder / name
            own.mkdir()
            counted[name] = {ranks: allocated(own, config, tensor=ranks).parameters for ranks in RANKS}
    sys.stdout.write(f"{json.dumps(counted)}\n")


if __name__ == "__main__":
    main()
