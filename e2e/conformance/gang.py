"""`gang_scheduling`: Kueue admits the P and D pods of a PDInference together, or neither."""

import copy
from typing import Any, Final

from e2e.conformance.bench import Bench, served
from e2e.conformance.evidence import Verdict
from e2e.conformance.notes import Notes
from e2e.install import remove_at_once
from e2e.kubectl import Kubectl, KubectlError
from e2e.waiting import conditions, wait_until
from pdinference.api.names import ENGINE_ROLES, LABEL_NAME, LABEL_QUEUE

_GROUP: Final = "kueue.x-k8s.io"
GROUP_LABEL: Final = f"{_GROUP}/pod-group-name"
COUNT_ANNOTATION: Final = f"{_GROUP}/pod-group-total-count"
VALUES: Final = (f"policy.labels={{{GROUP_LABEL}}}", f"policy.annotations={{{COUNT_ANNOTATION}}}")
"""Of the operator's chart, without which no podTemplate may make a group of its pods."""
_QUEUES: Final = f"clusterqueues.{_GROUP}"
_NAME: Final = "conformance-gang"
_AMPLE: Final = "1000Gi"
"""Of whatever the pods request: the number of pods alone limits them."""
_SECONDS: Final = 120
_MAKERS: Final = "statefulsets,deployments,replicasets"


def gang_scheduling(bench: Bench, notes: Notes) -> None:
    """The test plan of KAR-0053, with P and D as the pods that need each other."""
    if not served(bench.kubectl, _QUEUES):
        notes.lacks(Verdict.NOT_SHOWN, "The cluster has no Kueue.")
        return
    version = notes.run("get", "crd", _QUEUES, "-o", "jsonpath={.spec.versions[?(@.storage==true)].name}")
    try:
        for kind, document in _queues(bench, f"{_GROUP}/{version}", pods=1).items():
            notes.apply(document, keep=kind)
        if not _applied(bench, notes):
            return
        _neither(bench, notes)
        notes.apply(_queues(bench, f"{_GROUP}/{version}", pods=2)["clusterqueue"], keep="clusterqueue-larger")
        _both(bench, notes)
    finally:
        remove(bench.kubectl)


def _applied(bench: Bench, notes: Notes) -> bool:
    """Apply the PDInference; an operator that was there before may not allow its labels."""
    try:
        notes.apply(gang(bench), keep="resource")
    except KubectlError as error:
        if "policy.labels" not in str(error):
            raise
        values = " ".join(f"--set '{value}'" for value in VALUES)
        notes.lacks(Verdict.NOT_SHOWN, f"The installation of the operator does not allow groups of pods: {values}")
        return False
    return True


def remove(kubectl: Kubectl) -> None:
    """Delete what the check made. Kueue holds the pods of a group until its Workload is deleted, too."""
    remove_at_once(kubectl, _NAME)
    if served(kubectl, _QUEUES):
        owned = ("-l", f"{LABEL_NAME}={_NAME}")
        wait_until(
            "nobody to make its pods again", lambda: not kubectl.run("get", _MAKERS, *owned, "-o", "name"), _SECONDS
        )
        kubectl.run("delete", "pods", *owned, "--grace-period=2", "--wait=false")
        for kind in ("workload", "localqueue", "clusterqueue", "resourceflavor"):
            kubectl.run("delete", f"{kind}.{_GROUP}", _NAME, "--ignore-not-found", "--wait=false")


def _queues(bench: Bench, api_version: str, pods: int) -> dict[str, dict[str, Any]]:
    """A queue with room for so many pods."""
    names = sorted({"cpu", "memory"} | {name for pod in bench.engines(bench.name) for name in _requested(pod)})
    quotas = [{"name": "pods", "nominalQuota": pods}, *({"name": name, "nominalQuota": _AMPLE} for name in names)]
    group = {"coveredResources": ["pods", *names], "flavors": [{"name": _NAME, "resources": quotas}]}
    specs: dict[str, tuple[str, dict[str, Any]]] = {
        "resourceflavor": ("ResourceFlavor", {}),
        "clusterqueue": ("ClusterQueue", {"namespaceSelector": {}, "resourceGroups": [group]}),
        "localqueue": ("LocalQueue", {"clusterQueue": _NAME}),
    }
    return {
        key: {"apiVersion": api_version, "kind": kind, "metadata": {"name": _NAME}, "spec": spec}
        for key, (kind, spec) in specs.items()
    }


def _requested(pod: dict[str, Any]) -> list[str]:
    containers = [*pod["spec"]["containers"], *pod["spec"].get("initContainers", [])]
    return [name for one in containers for name in one.get("resources", {}).get("requests", {})]


def gang(bench: Bench) -> dict[str, Any]:
    """The PDInference with `queueName`, whose P and D pods are one group of Kueue."""
    document = copy.deepcopy(bench.document)
    document["metadata"]["name"] = _NAME
    group = {
        "labels": {GROUP_LABEL: _NAME},
        "annotations": {COUNT_ANNOTATION: str(len(ENGINE_ROLES))},
    }
    for role in ENGINE_ROLES:
        fields = document["spec"].setdefault(role.value, {})
        fields.setdefault("placement", {})["queueName"] = _NAME
        fields["podTemplate"] = {**fields.get("podTemplate", {}), "metadata": group}
    return document


def _neither(bench: Bench, notes: Notes) -> None:
    def waiting() -> dict[str, Any] | None:
        reserved = _workload(bench).get("QuotaReserved", {})
        pods = bench.engines(_NAME)
        return reserved if reserved.get("status") == "False" and len(pods) == len(ENGINE_ROLES) else None

    reserved = wait_until("Kueue to look at P and D", waiting, _SECONDS)
    pods = notes.get("pods", "-l", f"{LABEL_QUEUE}={_NAME}", keep="pods-waiting")["items"]
    notes.get(f"workloads.{_GROUP}", keep="workloads-waiting")
    gated = [pod["metadata"]["name"] for pod in pods if pod["spec"].get("schedulingGates")]
    neither = len(gated) == len(ENGINE_ROLES) and not any(pod["spec"].get("nodeName") for pod in pods)
    notes.saw(
        "with room for one pod, neither P nor D starts", neither, f"gated: {', '.join(gated)}. {reserved['message']}"
    )


def _both(bench: Bench, notes: Notes) -> None:
    def placed() -> list[dict[str, Any]] | None:
        pods = bench.engines(_NAME)
        both = len(pods) == len(ENGINE_ROLES) and all(pod["spec"].get("nodeName") for pod in pods)
        return pods if both else None

    pods = wait_until("P and D to be placed", placed, _SECONDS)
    notes.get("pods", "-l", f"{LABEL_QUEUE}={_NAME}", keep="pods-admitted")
    notes.get(f"workloads.{_GROUP}", keep="workloads-admitted")
    admitted = _workload(bench).get("Admitted", {})
    places = ", ".join(f"{pod['metadata']['name']} on {pod['spec']['nodeName']}" for pod in pods)
    notes.saw("with room for two, both start", admitted.get("status") == "True", f"{admitted.get('message')} {places}")


def _workload(bench: Bench) -> dict[str, dict[str, Any]]:
    """The conditions of Kueue's Workload for the group; empty while there is none."""
    found = bench.kubectl.get(f"workloads.{_GROUP}")["items"]
    group = next((one for one in found if one["metadata"]["name"] == _NAME), None)
    return conditions(group) if group is not None else {}
