"""The cluster and the PDInference that the checks share."""

import copy
from dataclasses import dataclass
from typing import Any, Final

from e2e.kubectl import Kubectl
from pdinference.api.names import ENGINE_ROLES, LABEL_NAME, LABEL_ROLE, Role

NAMESPACE: Final = "pdinference-conformance"
CHART_NAME: Final = "pdinference-operator"
"""`app.kubernetes.io/name` of the operator's objects."""


@dataclass(frozen=True)
class Bench:
    """What the checks work on.

    Attributes:
        kubectl: In the namespace of the checks.
        document: The PDInference that serves.
        client: An image with Python, for clients in the cluster.
        installed: The command that installed the operator; empty if the operator was there before.
    """

    kubectl: Kubectl
    document: dict[str, Any]
    client: str
    installed: str = ""

    @property
    def name(self) -> str:
        """Of the PDInference."""
        return str(self.document["metadata"]["name"])

    @property
    def model(self) -> str:
        """The name that requests give the model."""
        return str(self.document["spec"]["model"].get("name", self.name))

    def edited(self, **roles: dict[str, Any]) -> dict[str, Any]:
        """The document with other fields of roles."""
        document = copy.deepcopy(self.document)
        for role, fields in roles.items():
            document["spec"].setdefault(role, {}).update(fields)
        return document

    def pods(self, name: str, role: Role) -> list[dict[str, Any]]:
        """The pods of a role that are to stay."""
        found = self.kubectl.get("pods", "-l", f"{LABEL_NAME}={name},{LABEL_ROLE}={role}")["items"]
        return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]

    def engines(self, name: str) -> list[dict[str, Any]]:
        """The pods of P and D that are to stay."""
        return [pod for role in ENGINE_ROLES for pod in self.pods(name, role)]

    def accelerated(self) -> bool:
        """Whether the pods that serve hold accelerators."""
        return all(devices(pod) for pod in self.engines(self.name))


def devices(pod: dict[str, Any]) -> list[str]:
    """How a pod requests devices: extended resources with their counts, and claims."""
    limits = [container.get("resources", {}).get("limits", {}) for container in pod["spec"]["containers"]]
    counted = [f"{name}: {count}" for one in limits for name, count in one.items() if "/" in name]
    claims = pod["spec"].get("resourceClaims") or []
    return [*counted, *(f"claim {claim['name']}" for claim in claims)]


def served(kubectl: Kubectl, definition: str) -> bool:
    """Whether the API server has a definition of this name."""
    return bool(kubectl.run("get", "crd", definition, "--ignore-not-found", "-o", "name").strip())
