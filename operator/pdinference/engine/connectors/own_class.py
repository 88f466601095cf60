"""Connector classes of this project. A launcher gets one as an argument, writes it to a file, and executes vLLM."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pdinference.engine.command import literal, script, script_program

_FOLDER = "/tmp/pdinference"  # noqa: S108 - /tmp is a volume of the pod


@dataclass(frozen=True)
class OwnClass:
    """A subclass of a connector class of vLLM.

    Attributes:
        name: Name of the class.
        script: Its file in engine/scripts.
        settings: Its settings in `kv_connector_extra_config`.
    """

    name: str
    script: str
    settings: Mapping[str, Any]

    def config(self) -> dict[str, Any]:
        """Its members of `--kv-transfer-config`."""
        return {
            "kv_connector": self.name,
            "kv_connector_module_path": self._module,
            "kv_connector_extra_config": dict(self.settings),
        }

    def program(self, program: tuple[str, ...]) -> tuple[str, ...]:
        """The launcher of vLLM. vLLM and its child processes can then import the script by its module name."""
        return (*script_program("with_module"), self._module, literal(script(self.script)), _FOLDER, *program)

    @property
    def _module(self) -> str:
        return f"pdinference_{self.script}"
