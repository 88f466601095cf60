"""What an upgrade may not change: the pods of the revision that serves, or their number if it rolls out a new one."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from e2e.kubectl import Kubectl
from e2e.upgrade.resources import Document
from pdinference.api.names import LABEL_NAME, LABEL_REVISION, LABEL_ROLE, Role


@dataclass(frozen=True)
class State:
    """What the serving revision of a PDInference runs.

    Attributes:
        revision: Its name.
        workloads: UID and generation of each workload of P and D. Any write to its spec raises the generation, also one
            that is taken back.
        replicas: The replica count of each workload of P and D, by the workload's name without the revision.
        pods: UID and restarts of each pod of P and D.
        routers: UIDs of the router pods.
    """

    revision: str
    workloads: Mapping[str, tuple[str, int]]
    replicas: Mapping[str, int]
    pods: Mapping[str, tuple[str, int]]
    routers: frozenset[str]


def state(kubectl: Kubectl, name: str) -> State:
    """What the serving revision of a PDInference runs at the moment, without pods that end."""
    revision = kubectl.get("pdi", name)["status"]["servingRevision"]
    selector = f"{LABEL_NAME}={name},{LABEL_REVISION}={revision}"
    workloads = kubectl.get("statefulsets,deployments", "-l", f"{selector},{LABEL_ROLE}!={Role.ROUTER}")["items"]
    pods = staying(kubectl, selector)
    return State(
        revision=revision,
        workloads={_name(each): (each["metadata"]["uid"], each["metadata"]["generation"]) for each in workloads},
        replicas={_name(each).removesuffix(f"-{revision}"): each["spec"]["replicas"] for each in workloads},
        pods={_name(pod): (pod["metadata"]["uid"], _restarts(pod)) for pod in pods if not _is_router(pod)},
        routers=frozenset(pod["metadata"]["uid"] for pod in pods if _is_router(pod)),
    )


def staying(kubectl: Kubectl, selector: str) -> list[Document]:
    """The pods that a selector matches and that are not about to end."""
    found = kubectl.get("pods", "-l", selector)["items"]
    return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]


def differences(before: State, after: State) -> list[str]:
    """What is not as it was, apart from router pods: each as one line."""
    return [
        *_differences("UID and generation of workload", before.workloads, after.workloads),
        *_differences("replica count of", before.replicas, after.replicas),
        *_differences("UID and restarts of pod", before.pods, after.pods),
    ]


def differences_by_revision(before: State, after: State, *, rollout: bool | None = None) -> list[str]:
    """What is not as it has to be: the pods if the same revision serves, their number if another one does.

    Args:
        before: Before the upgrade.
        after: After it.
        rollout: Whether another revision has to serve; None if both is right.
    """
    same = before.revision == after.revision
    found = differences(before, after) if same else _differences("replica count of", before.replicas, after.replicas)
    if rollout is same:
        seen = f"{before.revision} still serves" if same else f"{after.revision} serves after {before.revision}"
        return [f"revision {seen}, although {'a' if rollout else 'no'} roll-out was expected", *found]
    return list(found)


def _differences(what: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    for name in sorted(before.keys() | after.keys()):
        if before.get(name) != after.get(name):
            yield f"{what} {name}: {before.get(name, 'absent')} before, {after.get(name, 'absent')} after"


def _name(each: Document) -> str:
    name: str = each["metadata"]["name"]
    return name


def _is_router(pod: Document) -> bool:
    is_router: bool = pod["metadata"]["labels"][LABEL_ROLE] == Role.ROUTER
    return is_router


def _restarts(pod: Document) -> int:
    return sum(status["restartCount"] for status in pod["status"].get("containerStatuses", []))
