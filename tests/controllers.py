"""Pods as the controllers of Kubernetes make them."""

import copy
from typing import Any

from pdinference.api import names

Json = dict[str, Any]

HASH = "6d5f7c9b8"


def owner(api_version: str, kind: str, name: str) -> Json:
    """The reference that a controller writes into its pods."""
    identity = {"apiVersion": api_version, "kind": kind, "name": name, "uid": f"uid-{name}"}
    return {**identity, "controller": True, "blockOwnerDeletion": True}


def replica_set(deployment: str) -> Json:
    """The reference to the ReplicaSet of a Deployment."""
    return owner("apps/v1", "ReplicaSet", f"{deployment}-{HASH}")


def stateful_set(name: str) -> Json:
    """The reference to a StatefulSet."""
    return owner("apps/v1", "StatefulSet", name)


def job(name: str) -> Json:
    """The reference to a Job."""
    return owner("batch/v1", "Job", name)


def pod_of(workload: Json) -> Json:
    """A pod of a Deployment, StatefulSet or Job."""
    name, namespace = workload["metadata"]["name"], workload["metadata"]["namespace"]
    pod: Json = copy.deepcopy(workload["spec"]["template"])
    match workload["kind"]:
        case "Deployment":
            own, reference, labels = f"{name}-{HASH}-x2b7k", replica_set(name), {"pod-template-hash": HASH}
        case "StatefulSet":
            own, reference, labels = f"{name}-0", stateful_set(name), {"apps.kubernetes.io/pod-index": "0"}
        case _:
            own, reference, labels = f"{name}-x2b7k", job(name), {"batch.kubernetes.io/job-name": name}
    pod["metadata"] |= {"name": own, "namespace": namespace, "uid": f"uid-{own}", "resourceVersion": "1"}
    pod["metadata"] |= {"labels": pod["metadata"]["labels"] | labels, "ownerReferences": [reference]}
    return pod


def owned(metadata: Json) -> Json:
    """The metadata of a pod with what its controllers add to its labels, which a test has chosen."""
    labels = metadata["labels"]
    added, reference = _controlled(labels, labels.get(names.LABEL_NAME, ""), labels.get(names.LABEL_REVISION, ""))
    return {**metadata, "labels": {**labels, **added}, "ownerReferences": [reference]}


def _controlled(labels: dict[str, str], name: str, revision: str) -> tuple[dict[str, str], Json]:
    match labels.get(names.LABEL_ROLE):
        case "parameter":
            return {}, stateful_set(f"{name}-parameter-{revision}")
        case "parameter-node":
            return {}, stateful_set(f"{name}-node{labels.get(names.LABEL_NODE_RANK, '')}-{revision}")
        case "decode":
            return {"pod-template-hash": HASH}, replica_set(f"{name}-decode-{revision}")
        case "router":
            return {"pod-template-hash": HASH}, replica_set(f"{name}-router")
        case "model":
            return {"batch.kubernetes.io/job-name": f"{name}-model-r"}, job(f"{name}-model-r")
        case _:
            return {}, job(f"{labels[names.LABEL_BATCH]}-batch")
