"""Records that the cache keeps of objects. They are small, because there may be tens of thousands.

Tests: tests/cluster/test_records.py, tests/cluster/test_objects.py, tests/cluster/test_cache.py
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import blake2b
from sys import intern
from typing import Any

import msgspec

from pdinference.api import names
from pdinference.cluster.kinds import (
    AUTOSCALER,
    DEPLOYMENT,
    HTTP_ROUTE,
    JOB,
    RESOURCE_BY_NAME,
    SCALED_OBJECT,
    SCALER,
    STATEFUL_SET,
    WORKLOADS,
    ChildKey,
    Owner,
)
from pdinference.cluster.objects import why_unreadable
from pdinference.cluster.state.autoscalers import autoscaler_state, scaled_object_state
from pdinference.cluster.state.devices import gpus_of
from pdinference.cluster.state.jobs import job_state
from pdinference.cluster.state.routes import route_parents
from pdinference.cluster.state.scalers import scaler_state
from pdinference.planning.observed import AutoscalerState, JobState, PodSummary, RouteParent, WorkloadState
from pdinference.planning.scale_target import ScalerState

Json = Mapping[str, Any]

_BOOKKEEPING = frozenset({"deployment.kubernetes.io/revision"})  # annotations that Kubernetes' own controllers write
_SCALED = frozenset({STATEFUL_SET.name, DEPLOYMENT.name, SCALER.name})
"""Kinds with `spec.replicas`."""
_MAX_CONTENT = 32 * 1024
_AUTOSCALERS = {AUTOSCALER.name: autoscaler_state, SCALED_OBJECT.name: scaled_object_state}
_SERVER_METADATA = frozenset(
    {"managedFields", "resourceVersion", "generation", "creationTimestamp", "uid", "selfLink"}
    | {"deletionTimestamp", "deletionGracePeriodSeconds"}
)


@dataclass(slots=True)
class ResourceRecord:
    """A PDInference or a PDBatch: the stored spec as JSON for validation, and the last status.

    Attributes:
        unreadable: Why the spec is not kept, such as its size; empty otherwise. Such a spec is null.
        paused: Whether edits of the spec are not rolled out.
    """

    owner: Owner
    uid: str
    version: int
    generation: int
    deleting: bool
    spec: bytes
    status: bytes
    unreadable: str = ""
    paused: bool = False

    def body(self) -> dict[str, Any]:
        """The resource in the form that the API models parse."""
        metadata = {
            "name": self.owner.name,
            "namespace": self.owner.namespace,
            "uid": self.uid,
            "generation": self.generation,
        }
        spec = json.loads(self.spec)
        return {"apiVersion": names.API_VERSION, "kind": self.owner.kind, "metadata": metadata, "spec": spec}


@dataclass(slots=True)
class ChildRecord:
    """A child: its owner, the hash of the last applied manifest, and a digest of the live object.

    Attributes:
        digest: Digest of the comparable content: without status, fields that the server sets, and the replica count,
            which is a separate field.
        content: The comparable content as JSON; dropped when it equals `settled`. Not kept for a large child, which is
            applied once after a restart instead.
        settled: The digest that was last found in order; empty if unknown.
        revision: Revision of the P/D set that it belongs to; empty for an object of all revisions.
    """

    key: ChildKey
    uid: str
    version: int
    owner: Owner | None
    owner_uid: str
    applied_hash: str
    digest: bytes
    content: bytes | None
    settled: bytes = b""
    deleting: bool = False
    workload: WorkloadState | None = None
    revision: str = ""
    job: JobState | None = None
    autoscaler: AutoscalerState | None = None
    scaler: ScalerState | None = None
    route: tuple[RouteParent, ...] = ()


@dataclass(slots=True)
class PodRecord:
    """A pod of a PDInference or a PDBatch.

    Attributes:
        address: Its IP address; empty until it has one.
        scales_to_zero: Whether it is a router pod of a resource with scaleToZero.
        started: Whether vLLM has started in the running container, even if it does not respond any more.
        port: Port of vLLM, if it is that of one of several engines.
    """

    namespace: str
    name: str
    uid: str
    version: int
    owner: Owner | None
    summary: PodSummary
    address: str = ""
    started: bool = False
    scales_to_zero: bool = False
    port: int | None = None

    @property
    def serves(self) -> bool:
        """Whether it gets requests, or did until it stopped responding."""
        return self.summary.ready or self.started

    @property
    def by_engine(self) -> tuple["PodRecord", ...]:
        """The pod, or of one with several engines each of them as a pod."""
        if not self.summary.engines:
            return (self,)
        engines = zip(self.summary.engines, self.summary.by_engine, strict=True)
        return tuple(replace(self, summary=one, started=engine.started, port=engine.port) for engine, one in engines)


def version_of(resource_version: str) -> int:
    """A resource version as a number that grows (guaranteed since Kubernetes 1.35, and true for earlier versions).

    Other values become 0, so that the object that arrives last wins.
    """
    return int(resource_version) if resource_version.isdecimal() else 0


def resource_record(kind: str, body: Json) -> ResourceRecord:
    """Record of a PDInference or a PDBatch."""
    metadata = body["metadata"]
    unreadable = why_unreadable(body)
    return ResourceRecord(
        owner=Owner(metadata["namespace"], metadata["name"], kind),
        uid=metadata["uid"],
        version=version_of(metadata["resourceVersion"]),
        generation=metadata.get("generation", 0),
        deleting="deletionTimestamp" in metadata,
        spec=compact(None if unreadable else body.get("spec")),
        status=compact(body.get("status") or {}),
        unreadable=unreadable,
        paused=is_paused(metadata),
    )


def is_paused(metadata: Json) -> bool:
    """Whether the resource with this metadata is paused."""
    return bool((metadata.get("annotations") or {}).get(names.ANNOTATION_PAUSED) == "true")


def child_record(kind: str, body: Json) -> ChildRecord:
    """Record of a child from a list, a watch event or the response to an apply.

    Values that the children of a resource share are interned.
    """
    metadata = body["metadata"]
    owner, owner_uid = controller_of(metadata)
    namespace = intern(metadata["namespace"])
    content = msgspec.json.encode(_settable(kind, body), order="deterministic")
    workload = _workload(kind, metadata, body) if kind in WORKLOADS else None
    return ChildRecord(
        key=ChildKey(kind, namespace, metadata["name"]),
        uid=metadata["uid"],
        version=version_of(metadata["resourceVersion"]),
        owner=owner,
        owner_uid=owner_uid,
        applied_hash=(metadata.get("annotations") or {}).get(names.ANNOTATION_APPLIED_HASH, ""),
        digest=digest(content),
        content=content if len(content) <= _MAX_CONTENT else None,
        deleting="deletionTimestamp" in metadata,
        workload=workload,
        revision=workload.revision if workload else (metadata.get("labels") or {}).get(names.LABEL_REVISION, ""),
        job=job_state(body) if kind == JOB.name else None,
        autoscaler=_AUTOSCALERS[kind](body) if kind in _AUTOSCALERS else None,
        scaler=scaler_state(body) if kind == SCALER.name else None,
        route=route_parents(body) if kind == HTTP_ROUTE.name else (),
    )


def digest(content: bytes) -> bytes:
    """Digest of a content, the same in all processes."""
    return blake2b(content, digest_size=12).digest()


def compact(value: object) -> bytes:
    """Canonical JSON: equal if and only if the values are equal."""
    return json.dumps(value, separators=(",", ":"), sort_keys=True).encode()


def _settable(kind: str, body: Json) -> dict[str, Any]:
    settable = comparable(kind, {key: value for key, value in body.items() if key != "status"})
    metadata = {key: value for key, value in body["metadata"].items() if key not in _SERVER_METADATA}
    if "annotations" in metadata:
        metadata["annotations"] = {k: v for k, v in metadata["annotations"].items() if k not in _BOOKKEEPING}
    settable["metadata"] = metadata
    return settable


def comparable(kind: str, body: Json) -> dict[str, Any]:
    """The part of an object or of a manifest that is compared."""
    found = {key: value for key, value in body.items() if key not in {"apiVersion", "kind"}}
    if kind in _SCALED and isinstance(found.get("spec"), Mapping):
        found["spec"] = {key: value for key, value in found["spec"].items() if key != "replicas"}
    return found


def controller_of(metadata: Json) -> tuple[Owner | None, str]:
    """The PDInference or PDBatch that controls an object, and the uid in its owner reference.

    An owner that does not control it is another client's, who wants it deleted with that owner. An HPA of KEDA is
    controlled by a ScaledObject of the operator. KEDA copies the name of the PDInference from it.
    """
    for reference in metadata.get("ownerReferences") or ():
        if not reference.get("controller"):
            continue
        if reference["kind"] in RESOURCE_BY_NAME and reference["apiVersion"].startswith(f"{names.GROUP}/"):
            owner = Owner(intern(metadata["namespace"]), intern(reference["name"]), intern(reference["kind"]))
            return owner, intern(reference["uid"])
        if reference["kind"] == SCALED_OBJECT.name and (name := (metadata.get("labels") or {}).get(names.LABEL_NAME)):
            return Owner(metadata["namespace"], name), reference["uid"]
    return None, ""


def _workload(kind: str, metadata: Json, body: Json) -> WorkloadState | None:
    labels = metadata.get("labels") or {}
    node = names.node_of(labels)
    if node is None or node[0] not in names.SERVING_ROLES:
        return None
    role, node_rank = node
    template = body["spec"]["template"]
    status = body.get("status") or {}
    failed = [c for c in status.get("conditions") or () if c["type"] == "ReplicaFailure" and c["status"] == "True"]
    return WorkloadState(
        name=metadata["name"],
        kind=kind,
        role=role,
        node_rank=node_rank,
        revision=(template["metadata"].get("labels") or {}).get(names.LABEL_REVISION, ""),
        gpus=gpus_of(template.get("spec") or {}) if role in names.ENGINE_ROLES else 0,
        desired=body["spec"].get("replicas", 1),
        replicas=status.get("replicas", 0),
        updated=status.get("updatedReplicas", 0),
        ready=status.get("readyReplicas", 0),
        available=status.get("availableReplicas", 0),
        observed=status.get("observedGeneration", 0) >= metadata.get("generation", 1),
        failure=failed[0].get("message", "") if failed else "",
    )
