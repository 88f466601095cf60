"""Recorded objects of an earlier operator version, written again in the same way."""

from pathlib import Path

import yaml

from pdinference.api import names
from pdinference.api.names import Role
from pdinference.cluster.client import Json
from pdinference.cluster.errors import ApiError
from pdinference.cluster.kinds import CHILD_BY_NAME, DEPLOYMENT, POD, RESOURCE, STATEFUL_SET, Kind
from tests.integration.world import READY_STATUS, World
from tests.waiting import until

FOLDER = Path(__file__).parent / "upgrade"
_SCALE = {"apiVersion": "autoscaling/v1", "kind": "Scale"}
_WORKLOADS = (STATEFUL_SET, DEPLOYMENT)


class Earlier:
    """The objects of one recorded resource.

    Attributes:
        replicas: The pods of each workload, by its name.
    """

    def __init__(self, world: World, recording: str) -> None:
        self._world = world
        text = (FOLDER / f"{recording}.yaml").read_text(encoding="utf-8")
        self._recorded: Json = yaml.safe_load(text.replace("NAMESPACE", world.namespace))
        self.replicas: dict[str, int] = self._recorded["replicas"]
        self.revision: str = self._recorded["status"]["revision"]
        self.serving: str = self._recorded["status"]["servingRevision"]

    async def install(self) -> None:
        """Write everything in the recorded order, by the recorded field managers."""
        uid = ""
        for write in self._recorded["writes"]:
            if "ready" in write:
                await self.make_ready(write["ready"])
            elif "scale" in write:
                kind = next(kind for kind in _WORKLOADS if kind.plural == write["scale"])
                await scale(self._world, kind, write["name"], write["replicas"])
            else:
                written = await self._apply(write, uid)
                if written["kind"] == names.KIND:
                    uid = written["metadata"]["uid"]
        await self._world.api.merge(
            RESOURCE.path(self._world.namespace, "llama") + "/status", {"status": self._recorded["status"]}
        )
        assert await counts(self._world) == self.replicas
        engines = sum(count for name, count in self.replicas.items() if name != "llama-router")

        async def all_there() -> bool:
            return len(await engine_pods(self._world)) == engines

        await until(all_there, "Kubernetes has created the P and D pods")

    async def _apply(self, write: Json, uid: str) -> Json:
        for owner in write["object"]["metadata"].get("ownerReferences", ()):
            owner["uid"] = uid
        return await self._world.api.apply(write["path"], write["object"], manager=write["manager"])

    async def make_ready(self, revision: str) -> None:
        """Play the kubelet until all pods of a revision that its workloads ask for are there and ready."""

        async def all_there() -> bool:
            templates = [workload["spec"] for workload in (await workloads(self._world)).values()]
            wanted: int = sum(spec["replicas"] for spec in templates if _revision(spec["template"]) == revision)
            for pod in (pods := await self._pods(revision)):
                await self._run(pod)
            return len(pods) >= wanted  # while the router's pods are replaced, there are more

        await until(all_there, f"all pods of {revision} are ready")

    async def _run(self, pod: Json) -> None:
        try:
            path = POD.path(self._world.namespace, pod["metadata"]["name"]) + "/status"
            await self._world.api.merge(path, {"status": READY_STATUS})
        except ApiError as error:
            if error.status != 404:  # it has just been deleted
                raise

    async def _pods(self, revision: str) -> list[Json]:
        selector = f"{names.LABEL_NAME}=llama,{names.LABEL_REVISION}={revision}"
        found = await self._world.api.get(POD.path(self._world.namespace), labelSelector=selector)
        return list(found["items"])


def _revision(template: Json) -> str | None:
    revision: str | None = template["metadata"]["labels"].get(names.LABEL_REVISION)
    return revision


async def workloads(world: World) -> dict[str, Json]:
    """All StatefulSets and Deployments by name."""
    found = [item for kind in _WORKLOADS for item in (await world.api.get(kind.path(world.namespace)))["items"]]
    return {item["metadata"]["name"]: item for item in found}


async def counts(world: World) -> dict[str, int]:
    """The pods that each workload asks for."""
    return {name: workload["spec"]["replicas"] for name, workload in (await workloads(world)).items()}


async def engine_pods(world: World, revision: str | None = None) -> set[str]:
    """The UIDs of all P and D pods, of one revision or of all; further nodes included."""
    selector = f"{names.LABEL_ROLE}!={Role.ROUTER}" + (f",{names.LABEL_REVISION}={revision}" if revision else "")
    pods = (await world.api.get(POD.path(world.namespace), labelSelector=selector))["items"]
    return {pod["metadata"]["uid"] for pod in pods}


async def scale(world: World, kind: Kind, name: str, count: int) -> None:
    """What the HPA controller does: it writes the scale subresource."""
    body = {**_SCALE, "metadata": {"name": name, "namespace": world.namespace}, "spec": {"replicas": count}}
    await world.api.replace(kind.path(world.namespace, name) + "/scale", body)


def scale_target(hpa: Json) -> tuple[Kind, str]:
    """What an HPA scales, and its name."""
    target = hpa["spec"]["scaleTargetRef"]
    return CHILD_BY_NAME[target["kind"]], target["name"]
