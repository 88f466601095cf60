"""Fake nodes on which the pods of a resource fit."""

from collections.abc import Iterable, Mapping
from typing import Any

from pdinference.manifests import Manifest
from tests.integration.fleet import Device, Fleet

COPIES = 4
ENOUGH = "64"
NATIVE = {"cpu", "memory", "ephemeral-storage"}
GPUS = "gpu.nvidia.com"
UUIDS = ("GPU-6b1a8f2e-0d5c-4a7e-9c39-2f6d1e0b7a11", "GPU-0c9e47d3-58b2-4f1a-8e60-b3a2c5d4e922")
"""The devices that examples/exact-devices.yaml asks for."""

PodSpec = Mapping[str, Any]


async def add_fitting_nodes(fleet: Fleet, name: str, objects: Iterable[Manifest]) -> None:
    """Nodes of each kind that the pods ask for, all of them in one zone, rack and the like."""
    pods = [item["spec"]["template"]["spec"] for item in objects if "template" in item.get("spec", {})]
    near = {key: "here" for pod in pods for key in _topology_keys(pod)}
    offered: dict[tuple[tuple[str, str], ...], dict[str, str]] = {}
    for pod in pods:
        offered.setdefault(tuple(_labels(pod).items()), {}).update(dict.fromkeys(_extended(pod), ENOUGH))
    for number, (labels, amounts) in enumerate(offered.items()):
        for copy in range(COPIES):
            await fleet.add(f"{name}-{number}-{copy}", labels={**near, **dict(labels)}, amounts=amounts)


async def add_exact_devices(fleet: Fleet) -> None:
    """Nodes with the devices of the examples that claim some: for P and for D; for both in one pod."""
    exact = [Device(f"gpu-{n}", "NVIDIA H200", "141Gi", uuid=uuid, driver=GPUS) for n, uuid in enumerate(UUIDS)]
    others = [Device(f"gpu-{n}", "NVIDIA H100 NVL", "93Gi", driver=GPUS) for n in (2, 3)]
    await fleet.add("exact", amounts={"rdma/ib": "8"}, devices=[*exact, *others], taints=["nvidia.com/gpu"])
    alike = [Device(f"gpu-{n}", "NVIDIA H200", "141Gi", driver=GPUS) for n in range(4)]
    await fleet.add("alike", devices=alike, taints=["nvidia.com/gpu"])


async def add_volume(fleet: Fleet, namespace: str, claim: str) -> None:
    """A claim that is bound, as far as the scheduler cares."""
    shared = {"accessModes": ["ReadOnlyMany"], "storageClassName": ""}
    volume = {
        **shared,
        "capacity": {"storage": "1Ti"},
        "claimRef": {"namespace": namespace, "name": claim},
        "nfs": {"server": "nfs.example.com", "path": "/models"},
    }
    wish = {**shared, "volumeName": f"{namespace}-{claim}", "resources": {"requests": {"storage": "1Ti"}}}
    await fleet.create("/api/v1/persistentvolumes", "v1", "PersistentVolume", f"{namespace}-{claim}", volume)
    path = f"/api/v1/namespaces/{namespace}/persistentvolumeclaims"
    await fleet.create(path, "v1", "PersistentVolumeClaim", claim, wish)


def volume_claims(objects: Iterable[Manifest]) -> set[str]:
    """Names of the PersistentVolumeClaims that pods mount."""
    pods = [item["spec"]["template"]["spec"] for item in objects if "template" in item.get("spec", {})]
    volumes = [volume for pod in pods for volume in pod.get("volumes", ())]
    return {v["persistentVolumeClaim"]["claimName"] for v in volumes if "persistentVolumeClaim" in v}


def _labels(pod: PodSpec) -> dict[str, str]:
    """Labels that a node needs: of alternatives, the first."""
    affinity = pod.get("affinity", {}).get("nodeAffinity", {})
    terms = affinity.get("requiredDuringSchedulingIgnoredDuringExecution", {}).get("nodeSelectorTerms", [])
    wanted = terms[0]["matchExpressions"] if terms else []
    return {**pod.get("nodeSelector", {}), **{e["key"]: e["values"][0] for e in wanted if e["operator"] == "In"}}


def _extended(pod: PodSpec) -> set[str]:
    """Extended resources that the pod requests."""
    return {
        name
        for container in pod["containers"]
        for name in container.get("resources", {}).get("limits", {})
        if name not in NATIVE
    }


def _topology_keys(pod: PodSpec) -> set[str]:
    affinity = pod.get("affinity", {}).get("podAffinity", {})
    terms = affinity.get("requiredDuringSchedulingIgnoredDuringExecution", [])
    return {term["topologyKey"] for term in terms} - {"kubernetes.io/hostname"}
