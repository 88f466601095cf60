"""Workloads that adopt the pods which a test has made, so that these are real pods of theirs."""

from typing import Any, Final

from pdinference.api.names import ENGINE_CONTAINER
from pdinference.cluster.client import ApiServer, Json
from pdinference.cluster.kinds import POD, STATEFUL_SET, Kind
from tests.waiting import until

HASH: Final = "pod-template-hash"
REPLICA_SET: Final = Kind("ReplicaSet", "apps", "v1", "replicasets")


async def replica_set(api: ApiServer, namespace: str, deployment: str, labels: dict[str, str], *, pods: int) -> None:
    """The ReplicaSet of a Deployment with these pods, whose labels are the given ones and `HASH`: `test`."""
    path = REPLICA_SET.path(namespace)
    await _adopting(api, path, f"{deployment}-test", {**labels, HASH: "test"}, pods)


async def stateful_set(api: ApiServer, namespace: str, name: str, labels: dict[str, str], *, pods: int) -> None:
    """A StatefulSet with these pods, which have its names. It replaces none that differs from its template."""
    own = {"serviceName": "none", "updateStrategy": {"type": "OnDelete"}}
    await _adopting(api, STATEFUL_SET.path(namespace), name, labels, pods, **own)


async def _adopting(api: ApiServer, path: str, name: str, labels: dict[str, str], pods: int, **spec: Any) -> None:
    containers = [{"name": ENGINE_CONTAINER, "image": "example/vllm"}]
    template = {"metadata": {"labels": labels}, "spec": {"containers": containers, "schedulerName": "none"}}
    spec |= {"replicas": pods, "selector": {"matchLabels": labels}, "template": template}
    made = (await api.create(path, {"metadata": {"name": name}, "spec": spec}))["metadata"]

    async def all_adopted() -> bool:
        selector = ",".join(f"{key}={value}" for key, value in labels.items())
        found = (await api.get(POD.path(made["namespace"]), labelSelector=selector))["items"]
        return [made["uid"]] * pods == [controller(pod).get("uid") for pod in found]

    await until(all_adopted, f"{name} has its pods")


def controller(pod: Json) -> Json:
    """The controller's reference in a pod; empty without one."""
    references = pod["metadata"].get("ownerReferences") or ()
    return next((reference for reference in references if reference.get("controller")), {})
