"""Connector classes of ours. vLLM gets one as an argument of a launcher, which writes it to a file and becomes vLLM."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from pdinference.engine.command import literal

_FOLDER = "/tmp/pdinference"  # noqa: S108 - a volume of the pod's own


@dataclass(frozen=True)
class OwnClass:
    """A subclass of a connector class of vLLM.

    Attributes:
        name: The class.
        script: The file of engine/scripts that it is in.
        settings: What it reads of its configuration.
    """

    name: str
    script: str
    settings: Mapping[str, Any]

    def config(self) -> dict[str, Any]:
        """The part of `--kv-transfer-config` that names it."""
        return {
            "kv_connector": self.name,
            "kv_connector_module_path": self._module,
            "kv_connector_extra_config": dict(self.settings),
        }

    def program(self, program: tuple[str, ...]) -> tuple[str, ...]:
        """What runs vLLM where it, and each process that it starts, can import the script under the module's name.

        The image need not have it, and a file would need a ConfigMap, to which the operator has no right.
        """
        launcher, connector = (literal(_script(name)) for name in ("with_module", self.script))
        return ("python3", "-I", "-c", launcher, self._module, connector, _FOLDER, *program)

    @property
    def _module(self) -> str:
        return f"pdinference_{self.script}"


@cache
def _script(name: str) -> str:
    return files("pdinference.engine").joinpath(f"scripts/{name}.py").read_text(encoding="utf-8")
