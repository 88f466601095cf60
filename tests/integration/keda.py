"""Plays KEDA for the operator: its real CRD of ScaledObjects, and its handling of them."""

import json
import subprocess
from contextlib import suppress
from pathlib import Path

import yaml

from pdinference.api.names import Role
from pdinference.cluster.client import Json
from pdinference.cluster.errors import ApiError
from pdinference.cluster.kinds import AUTOSCALER, SCALED_OBJECT
from tests.integration.world import World, until

_MODULE = "github.com/kedacore/keda/v2@v2.20.2"
_SUM = "h1:SR60v8uIcelbveS8n/1jcl8tLdBBIbHMxmdOHw8tKqA="
_CRD = "config/crd/bases/keda.sh_scaledobjects.yaml"
_CRD_PATH = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/scaledobjects.keda.sh"
_FINALIZER = "finalizer.keda.sh"


class Keda:
    """Plays KEDA (controllers/keda/hpa.go and scaledobject_finalizer.go of its release 2.20)."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._object = self._path(Role.DECODE)
        self.autoscaler = "keda-hpa-llama-decode"

    async def install(self) -> None:
        """Its definition of a ScaledObject."""
        await self._world.api.apply(_CRD_PATH, _definition(), manager="test")

        # Not only established: an operator that starts looks at what the API server says it serves, which comes later.
        async def served() -> bool:
            with suppress(ApiError):  # each of the two answers may come before the other
                groups = (await self._world.api.get("/apis"))["groups"]
                found = (await self._world.api.get(f"/apis/{SCALED_OBJECT.api_version}"))["resources"]
                return any(group["name"] == SCALED_OBJECT.group for group in groups) and any(
                    resource["name"] == SCALED_OBJECT.plural for resource in found
                )
            return False

        await until(served, "ScaledObjects are served")

    async def take_up(self) -> Json:
        """Make an HPA of the ScaledObject, with its labels, and hold the ScaledObject by a finalizer."""
        await self.hold(Role.DECODE)
        scaled = await self._world.api.get(self._object)
        spec, metadata = scaled["spec"], scaled["metadata"]
        owner = {
            "apiVersion": scaled["apiVersion"],
            "kind": scaled["kind"],
            "name": metadata["name"],
            "uid": metadata["uid"],
            "controller": True,
            "blockOwnerDeletion": True,
        }
        body = {
            "apiVersion": AUTOSCALER.api_version,
            "kind": AUTOSCALER.name,
            "metadata": {"name": self.autoscaler, "labels": metadata["labels"], "ownerReferences": [owner]},
            "spec": {
                "scaleTargetRef": spec["scaleTargetRef"],
                "minReplicas": spec["minReplicaCount"],
                "maxReplicas": spec["maxReplicaCount"],
                "metrics": [
                    {
                        "type": "External",
                        "external": {
                            "metric": {"name": f"s{number}-prometheus"},
                            "target": {"type": "AverageValue", "averageValue": trigger["metadata"]["threshold"]},
                        },
                    }
                    for number, trigger in enumerate(spec["triggers"])
                ],
                "behavior": spec["advanced"]["horizontalPodAutoscalerConfig"]["behavior"],
            },
        }
        return await self._world.api.create(AUTOSCALER.path(self._world.namespace), body)

    async def hold(self, role: Role) -> None:
        """Keep a ScaledObject until KEDA removes its finalizer."""
        await self._world.api.merge(self._path(role), {"metadata": {"finalizers": [_FINALIZER]}})

    async def let_go(self, role: Role = Role.DECODE) -> None:
        """Give up the ScaledObject once it is deleted; garbage collection takes the HPA."""

        async def deleted() -> bool:
            scaled = await self._world.api.get(self._path(role))
            return "deletionTimestamp" in scaled["metadata"]

        await until(deleted, "the ScaledObject is deleted")
        await self._world.api.merge(self._path(role), {"metadata": {"finalizers": None}})

    def _path(self, role: Role) -> str:
        return SCALED_OBJECT.path(self._world.namespace, f"llama-{role}")


def _definition() -> Json:
    answer = subprocess.run(["go", "mod", "download", "-json", _MODULE], check=True, capture_output=True, text=True)
    module = json.loads(answer.stdout)
    assert module["Sum"] == _SUM
    definition: Json = yaml.safe_load((Path(module["Dir"]) / _CRD).read_text(encoding="utf-8"))
    return definition


WITH_KEDA = (
    "--keda-prometheus=http://prometheus.monitoring:9090",
    "--keda-authentication=TriggerAuthentication/prom",
    "--keda-auth-mode=basic",
)
TARGETS = {
    "decodeLoad": 90,
    "prefillLoad": 90,
    "kvUsage": 80,
    "kvDemand": 80,
    "waitingRequests": 4,
    "runningRequests": 32,
    "queuedPromptTokens": 8000,
    "promptTokensPerSecond": 20000,
    "generationTokensPerSecond": 2000,
}
