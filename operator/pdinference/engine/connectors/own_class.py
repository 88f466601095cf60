"""Connector classes of this project, which vLLM imports from a file in the pod."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pdinference.engine.command import script_program

_IMPORTS: Final = "with_modules"


@dataclass(frozen=True)
class OwnClass:
    """A subclass of a connector class of vLLM.

    Attributes:
        name: Name of the class.
        script: Its file in engine/scripts, which is also the name of the module in the pod.
        settings: Its settings in `kv_connector_extra_config`.
        imports: Other files there that this module imports.
    """

    name: str
    script: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    imports: tuple[str, ...] = ()

    def config(self) -> dict[str, Any]:
        """Its members of `--kv-transfer-config`."""
        settings = {"kv_connector_extra_config": dict(self.settings)} if self.settings else {}
        return {"kv_connector": self.name, "kv_connector_module_path": self.script, **settings}

    def program(self, program: tuple[str, ...]) -> tuple[str, ...]:
        """The program with which vLLM and its child processes can import the module."""
        return (*script_program(_IMPORTS), *program)

    @property
    def scripts(self) -> tuple[str, ...]:
        """The files that this program needs."""
        return (_IMPORTS, self.script, *self.imports)
