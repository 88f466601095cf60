"""Base class of KV connectors. A connector overrides the defaults that do not apply to it.

Tests: tests/engine/connectors/test_configuration.py, tests/engine/connectors/test_registry.py
"""

from abc import ABC
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from pdinference.api.engines import Slot
from pdinference.api.names import Role
from pdinference.api.v1alpha1 import PDInference
from pdinference.api.v1alpha1.transfer import Transfer
from pdinference.engine.command import EnvironmentVariable
from pdinference.engine.connectors.handover import Handover
from pdinference.engine.connectors.known_fault import KnownFault
from pdinference.engine.connectors.own_class import OwnClass


@dataclass(frozen=True)
class Port:
    """A container port.

    Attributes:
        name: Name of the port.
        number: Port number. vLLM gets it in a variable.
        router: Whether the router connects to it, besides the other role.
    """

    name: str
    number: int
    router: bool = False


@dataclass(frozen=True)
class SharedVolume:
    """A PersistentVolumeClaim that the pods of both roles mount and write to.

    Attributes:
        name: Name of the volume in the pod.
        claim: Name of the claim.
        path: Mount path.
    """

    name: str
    claim: str
    path: str


class Connector(ABC):
    """Settings of one connector. Its limits are in api/v1alpha1/connectors.py.

    Attributes:
        vllm_names: Names of its classes in vLLM. The first is the default of `kv_connector`. Empty if vLLM has no class
            for it.
        handover: What the router sends to P and D; None if it sends whole requests to D.
        tried: Extent of its tests, as in docs/kv-transfer.md.
        is_measured: Whether it moves KV cache as engine/scripts/measure_transfer.py does, so that the way is known and
            `pdinference doctor --bandwidth` measures it.
        known_faults: Faults of releases of vLLM that admission warns of.
    """

    vllm_names: ClassVar[tuple[str, ...]]
    handover: ClassVar[Handover | None]
    tried: ClassVar[str]
    is_measured: ClassVar[bool] = False
    known_faults: ClassVar[tuple[KnownFault, ...]] = ()

    def config(self, resource: PDInference, role: Role) -> dict[str, Any]:
        """Its members of `--kv-transfer-config` for a role: `kv_connector` and its settings."""
        own = self.own_class(resource, role)
        return own.config() if own else {"kv_connector": self.vllm_names[0]}

    def own_class(self, _resource: PDInference, _role: Role) -> OwnClass | None:
        """The subclass for a role; None if vLLM's own class is used."""
        return None

    def options(self) -> dict[str, Any]:
        """Required options of vLLM for both roles. They take precedence over the user's."""
        return {}

    def environment(self, _transfer: Transfer, _slot: Slot | None = None) -> list[EnvironmentVariable]:
        """Required variables of vLLM for both roles. Its limits list the variables that users may not override.

        With the path HostLocal, they depend on the slot of the engine in its pod.
        """
        return []

    def ports(self, _role: Role, _slot: Slot | None = None) -> tuple[Port, ...]:
        """Container ports of a role's pods for this connector, or of one engine in a pod of several."""
        return ()

    def volume(self, _transfer: Transfer) -> SharedVolume | None:
        """The volume that transfers KV cache; None without one."""
        return None

    def converted(self, _environment: Mapping[str, str]) -> Mapping[str, Any] | None:
        """Fields of `spec.transfer` from the environment of a vLLM process (`pdinference convert`).

        None if the environment is not sufficient for this connector.
        """
        return {}
