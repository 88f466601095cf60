"""What a module of a KV connector decides. A connector overrides what differs from the defaults here."""

from abc import ABC
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from pdinference.api.names import Role
from pdinference.api.v1alpha1 import PDInference
from pdinference.api.v1alpha1.transfer import Transfer
from pdinference.engine.command import EnvironmentVariable
from pdinference.engine.connectors.own_class import OwnClass

Handover = Literal["nixl", "mooncake", "moriio"]
"""What vllm-router 0.1.17 sends (`--kv-connector`).

nixl: the request to P first, then to D with the `kv_transfer_params` of P's answer. It also serves connectors that find
KV cache by the prompt. mooncake: both get the same `transfer_id`, and D the engine and the address that the router has
from P's bootstrap server. moriio: no connector here needs it yet.
"""


@dataclass(frozen=True)
class Port:
    """A port that the pods announce.

    Attributes:
        name: Its name in the pod.
        number: Its number, which vLLM gets by a variable.
        router: Whether the router calls it too, besides the other role.
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
        path: Where it is mounted.
    """

    name: str
    claim: str
    path: str


class Connector(ABC):
    """All that the operator decides for one connector, but its limits (api/v1alpha1/connectors.py).

    Attributes:
        vllm_names: vLLM's names of the classes that it stands for. The first is what vLLM gets, unless `config` says
            otherwise. Empty: vLLM has no class of its own for it.
        handover: What the router sends to P and D.
        tried: How far it was tried, as in docs/resource.md.
    """

    vllm_names: ClassVar[tuple[str, ...]]
    handover: ClassVar[Handover] = "nixl"
    tried: ClassVar[str]

    def config(self, resource: PDInference, role: Role) -> dict[str, Any]:
        """The members of `--kv-transfer-config` that name it, for a role: `kv_connector` and its own settings."""
        own = self.own_class(resource, role)
        return own.config() if own else {"kv_connector": self.vllm_names[0]}

    def own_class(self, _resource: PDInference, _role: Role) -> OwnClass | None:
        """The subclass of ours that a role runs; None where vLLM's own class is used."""
        return None

    def options(self) -> dict[str, Any]:
        """Options of vLLM that it needs, for both roles; they win over the user's."""
        return {}

    def environment(self, _transfer: Transfer) -> list[EnvironmentVariable]:
        """Variables that vLLM needs, for both roles. Those that must not be overridden are in its limits, too."""
        return []

    def ports(self, _role: Role) -> tuple[Port, ...]:
        """The ports that the pods of a role announce for it."""
        return ()

    def annotations(self, _role: Role) -> dict[str, str]:
        """Annotations on the pods of a role, which the router reads."""
        return {}

    def volume(self, _transfer: Transfer) -> SharedVolume | None:
        """The volume that KV cache goes through."""
        return None

    def converted(self, _environment: Mapping[str, str]) -> Mapping[str, Any] | None:
        """Fields of `spec.transfer` that a vLLM's environment gives (`pdinference convert`).

        None where it gives too little for this connector.
        """
        return {}
