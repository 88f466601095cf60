"""Every group, label, annotation, port and child name, each stated once."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

GROUP = "pdinference.io"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
KIND = "PDInference"
PLURAL = "pdinferences"
SINGULAR = "pdinference"
SHORT_NAME = "pdi"

BATCH_KIND = "PDBatch"
BATCH_PLURAL = "pdbatches"
BATCH_SINGULAR = "pdbatch"
BATCH_SHORT_NAME = "pdib"  # pdb is PodDisruptionBudget's

SCALER_KIND = "PDScaler"
SCALER_PLURAL = "pdscalers"
SCALER_SINGULAR = "pdscaler"
SCALER_SHORT_NAME = "pds"

FIELD_MANAGER = "pdinference-operator"
"""The server-side-apply manager of all manifests, and the component that Events name."""


class Role(StrEnum):
    """What a pod does; the value of `LABEL_ROLE`."""

    PARAMETER = "parameter"  # P: prefill, KV producer
    DECODE = "decode"  # D: decode, KV consumer
    ROUTER = "router"
    MODEL = "model"  # downloads or inspects the model, and ends


ENGINE_ROLES = (Role.PARAMETER, Role.DECODE)
SERVING_ROLES = (*ENGINE_ROLES, Role.ROUTER)

# Kubernetes' recommended labels, for people and dashboards ...
LABEL_APP = "app.kubernetes.io/name"
LABEL_APP_INSTANCE = "app.kubernetes.io/instance"
LABEL_APP_COMPONENT = "app.kubernetes.io/component"
LABEL_MANAGED_BY = "app.kubernetes.io/managed-by"
APP = "pdinference"

# ... and our own, which selectors use, so that nobody else's tooling can change what they match.
LABEL_NAME = f"{GROUP}/name"
LABEL_ROLE = f"{GROUP}/role"
LABEL_REVISION = f"{GROUP}/revision"
LABEL_BATCH = f"{GROUP}/batch"
"""On the children of a PDBatch, instead of `LABEL_NAME` and `LABEL_ROLE`: nothing of a PDInference selects them."""

LABEL_NODE_RANK = f"{GROUP}/node-rank"
"""Which part of a P instance of several nodes a pod is."""

FURTHER_NODE = "parameter-node"
"""The value of `LABEL_ROLE` on the pods of a P instance's nodes but the first. Not `parameter`: what selects P (router,
headless Service, autoscaler, status) is to see an instance once, at the pod that answers for it."""

LABEL_POD_INDEX = "apps.kubernetes.io/pod-index"
"""Set by the StatefulSet controller: a pod's ordinal, which is the number of its P instance."""

LABEL_QUEUE = "kueue.x-k8s.io/queue-name"
"""Kueue's label for the queue that admits a pod."""

MANAGED_SELECTOR = f"{LABEL_MANAGED_BY}={FIELD_MANAGER}"
"""Selects every object that the operator made, in any namespace."""

LABEL_SPEC = f"{GROUP}/spec"
"""On the ControllerRevisions of a PDInference's history alone: identity of the spec without D's replica count."""

HISTORY_SELECTOR = f"{MANAGED_SELECTOR},{LABEL_SPEC}"
"""Selects every history entry. StatefulSets have ControllerRevisions of their own, with the labels of their pods."""

ANNOTATION_APPLIED_HASH = f"{GROUP}/applied-hash"
"""Hash of the manifest that was last applied to a child."""

ANNOTATION_DEFAULTS = f"{GROUP}/engine-defaults"
"""On P and D pods: the options of vLLM that the operator chose because the spec does not."""

ANNOTATION_MODEL = f"{GROUP}/model"
"""On a Job: how far its download is, and what is known of the model, as JSON; its own pod writes it."""

ENGINE_PORT = 8000
ENGINE_PORT_NAME = "http"
GROUP_BROKEN_EXIT = 75
"""How a container ends when another node of its P instance did."""
GROUP_PORT = 29600
"""Where the nodes of a P instance hold together (engine/scripts/group_member.py)."""
RENDEZVOUS_PORT = 29501
"""Where their ranks find one another (vLLM's default for --master-port)."""
ROUTER_PORT = 8080
ROUTER_PORT_NAME = "http"
ROUTER_BEHIND_PORT = 8081
"""Where vllm-router listens when the activator stands in front of it."""
ACTIVATOR_STATE_PORT = 8082
ACTIVATOR_STATE_PORT_NAME = "activator"
METRIC_HELD_REQUESTS = "pdinference_activator_held_requests"
"""Gauge of an activator: requests that wait for P and D to start."""
METRIC_IDLE_SECONDS = "pdinference_activator_idle_seconds"
"""Gauge of an activator: time since it had a request; 0 while it has one."""
ROUTER_METRICS_PORT = 29000
ROUTER_METRICS_PORT_NAME = "metrics"

OPERATOR_TLS_PORT = 8443
"""Where the operator answers the API server: admission, and whatever else goes through its proxy."""

DEVICE_CLAIM = "accelerators"
"""Name, within a pod, of its claim to devices."""
RUNNER_METRICS_PORT = 8080
RUNNER_METRICS_PORT_NAME = "metrics"
METRIC_BATCH_REQUESTS = "pdinference_batch_requests"
"""Gauge of a batch runner: its requests by `state` (total, completed, failed); the operator reads it while one runs."""

ENGINE_CONTAINER = "vllm"
ROUTER_CONTAINER = "router"
ACTIVATOR_CONTAINER = "activator"
MODEL_CONTAINER = "pdinference-model"
RUNNER_CONTAINER = "runner"
RUNNER_COMPONENT = "batch"

DISK_TIER_CONTAINER = "kv-disk-tier"

DEFAULT_OPERATOR_IMAGE = "ghcr.io/pdinference/operator:0.1.0"
"""Image of batch runners when the operator's installation names none; it is the operator's own."""
DEFAULT_ROUTER_IMAGE = "ghcr.io/pdinference/router:0.1.0"
"""Router image when neither the resource nor the operator's installation names one."""

DEFAULT_MODEL_IMAGE = "ghcr.io/pdinference/operator:0.1.0"
"""Image that downloads and checks models when the operator's installation names none. Raised only when that part
changes, not with each release: P and D pods with a cache, or with a model on a volume, have it and would restart."""

REVISION_LENGTH = 8
NAME_MAX_LENGTH = 33
"""Longest PDInference name. `<name>-parameter-<revision>` must be at most 52 characters, because the StatefulSet
controller appends `-<10 characters>` to it and writes the result into a label, which holds 63."""


def parameter_workload(name: str, revision: str) -> str:
    """The StatefulSet of one revision of P."""
    return f"{name}-{Role.PARAMETER}-{revision}"


def node_workload(name: str, node_rank: int, revision: str) -> str:
    """The StatefulSet of one further node of each P instance, of one revision."""
    return f"{name}-node{node_rank}-{revision}"


def decode_workload(name: str, revision: str) -> str:
    """The Deployment of one revision of D."""
    return f"{name}-{Role.DECODE}-{revision}"


def device_claim_template(name: str, role: Role, revision: str) -> str:
    """The ResourceClaimTemplate from which each pod of one revision of P or D gets a claim of its own."""
    return f"{name}-{role}-{revision}"


def model_job(name: str, digest: str) -> str:
    """The Job that downloads or inspects the model."""
    return f"{name}-{Role.MODEL}-{digest}"


def history_entry(name: str, digest: str) -> str:
    """The ControllerRevision that keeps one valid spec of a PDInference."""
    return f"{name}-{digest}"


WORKLOAD_KINDS = {Role.PARAMETER: "StatefulSet", Role.DECODE: "Deployment", Role.ROUTER: "Deployment"}
"""What runs the pods of a role."""


def engine_workload(name: str, role: Role, revision: str) -> str:
    """What runs one revision of P or of D."""
    return parameter_workload(name, revision) if role is Role.PARAMETER else decode_workload(name, revision)


def role_object(name: str, role: Role) -> str:
    """Any child that a role has once, whatever the revision: headless Service, disruption budget, policy, router."""
    return f"{name}-{role}"


def keda_autoscaler(name: str, role: Role) -> str:
    """The HorizontalPodAutoscaler that KEDA makes of a role's ScaledObject."""
    return f"keda-hpa-{role_object(name, role)}"


def router_service(name: str) -> str:
    """The Service that clients talk to; it has the name of the PDInference itself."""
    return name


def batch_object(name: str) -> str:
    """Any child of a PDBatch."""
    return f"{name}-{RUNNER_COMPONENT}"


def batch_labels(name: str) -> dict[str, str]:
    """The labels on every child and pod of a PDBatch."""
    return {
        LABEL_APP: APP,
        LABEL_APP_INSTANCE: name,
        LABEL_APP_COMPONENT: RUNNER_COMPONENT,
        LABEL_MANAGED_BY: FIELD_MANAGER,
        LABEL_BATCH: name,
    }


def instance_labels(name: str) -> dict[str, str]:
    """The labels on every child of a PDInference."""
    return {
        LABEL_APP: APP,
        LABEL_APP_INSTANCE: name,
        LABEL_MANAGED_BY: FIELD_MANAGER,
        LABEL_NAME: name,
    }


def role_labels(name: str, role: Role) -> dict[str, str]:
    """The labels on the children and pods of one role."""
    return {**instance_labels(name), LABEL_APP_COMPONENT: str(role), LABEL_ROLE: str(role)}


def node_labels(node_rank: int) -> dict[str, str]:
    """What tells the pods of one node of P's instances from those of the others."""
    return {LABEL_ROLE: str(Role.PARAMETER) if node_rank == 0 else FURTHER_NODE, LABEL_NODE_RANK: str(node_rank)}


def node_of(labels: Mapping[str, str]) -> tuple[Role, int] | None:
    """The role of a pod or workload and the node rank within its instance, by its labels; None for other objects."""
    role = labels.get(LABEL_ROLE, "")
    if role == FURTHER_NODE:
        rank = labels.get(LABEL_NODE_RANK, "")
        return (Role.PARAMETER, int(rank)) if rank.isdecimal() else None
    return (Role(role), 0) if role in set(Role) else None


def pods_of(name: str, role: Role, *, nodes: int) -> dict[str, Any]:
    """A label selector of all pods of a role, those of P's further nodes included, as in the Kubernetes API."""
    if role is not Role.PARAMETER or nodes == 1:
        return {"matchLabels": role_selector(name, role)}
    roles = {"key": LABEL_ROLE, "operator": "In", "values": [str(role), FURTHER_NODE]}
    return {"matchLabels": {LABEL_NAME: name}, "matchExpressions": [roles]}


def role_selector(name: str, role: Role, revision: str | None = None) -> dict[str, str]:
    """The labels that select the pods of one role, of all revisions or of one."""
    selector = {LABEL_NAME: name, LABEL_ROLE: str(role)}
    return selector if revision is None else {**selector, LABEL_REVISION: revision}


def selector_text(selector: Mapping[str, str]) -> str:
    """A label selector as text."""
    return ",".join(f"{key}={value}" for key, value in selector.items())
