"""API group, labels, annotations, ports and names of child objects."""

from collections.abc import Mapping
from enum import StrEnum
from importlib.metadata import version
from types import MappingProxyType
from typing import Any, Final

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
BATCH_SHORT_NAME = "pdib"  # pdb is the short name of PodDisruptionBudget

SCALER_KIND = "PDScaler"
SCALER_PLURAL = "pdscalers"
SCALER_SINGULAR = "pdscaler"
SCALER_SHORT_NAME = "pds"

GATEWAY_GROUP = "gateway.networking.k8s.io"
"""API group of the Gateway API."""

FIELD_MANAGER = "pdinference-operator"
"""Field manager of server-side apply, and the reporting component of Events."""


class Role(StrEnum):
    """Role of a pod; the value of `LABEL_ROLE`."""

    PARAMETER = "parameter"  # P: prefill, KV producer
    DECODE = "decode"  # D: decode, KV consumer
    ROUTER = "router"
    MODEL = "model"  # Job that downloads or inspects the model


ENGINE_ROLES = (Role.PARAMETER, Role.DECODE)
SERVING_ROLES = (*ENGINE_ROLES, Role.ROUTER)


class KvSource(StrEnum):
    """Where the KV cache of a prompt token in D is from; the label `source` of `METRIC_KV_PROMPT_TOKENS`."""

    PARAMETER = "parameter"
    """vLLM's connector: from a P pod, a cache server, or a tier of D."""
    DECODE = "decode"
    """D computed it."""
    CACHE = "cache"
    """D had it from an earlier prompt."""


class TransferResult(StrEnum):
    """End of a transfer of KV cache; the label `result` of `METRIC_KV_TRANSFERS`."""

    COMPLETE = "complete"
    FAILED = "failed"
    EXPIRED = "expired"
    """P released KV cache that no D pod had read in time."""


class PodFault(StrEnum):
    """Why a ready P or D pod gives the router no answers; the label `fault` of `METRIC_POD_FAULT`."""

    REFUSES = "refuses"
    """It accepts no connection."""
    HUNG = "hung"
    """Its server does not answer /health."""
    STALLED = "stalled"
    """Its server answers /health, and its engine takes no step although it has requests."""
    STUCK = "stuck"
    """It stalled again minutes after it had stalled, without a step between."""


class Verification(StrEnum):
    """State of the verification of the KV transfer; the label `state` of `METRIC_VERIFICATION`."""

    OFF = "off"
    """The spec turns it off."""
    PENDING = "pending"
    """No canary has ended yet."""
    VERIFIED = "verified"
    """D's answer with the KV cache of P was right, and D computed none of what it could get."""
    WRONG_ANSWER = "wrong_answer"
    """D's answer with the KV cache of P differs from that of P alone."""
    COMPUTED_BY_DECODE = "computed_by_decode"
    """D computed the prompt itself: KV cache does not get from P to D. The answer is right."""
    FAILED = "failed"
    """The canary got no answer."""
    NOT_APPLICABLE = "not_applicable"
    """The model cannot be asked (no completions, or too short), or its answers are right and D has no counters."""


# Kubernetes' recommended labels, for users and dashboards.
LABEL_APP = "app.kubernetes.io/name"
LABEL_APP_INSTANCE = "app.kubernetes.io/instance"
LABEL_APP_COMPONENT = "app.kubernetes.io/component"
LABEL_MANAGED_BY = "app.kubernetes.io/managed-by"
APP = "pdinference"

# Labels of our own for selectors, so that other tools do not change what the selectors match.
LABEL_NAME = f"{GROUP}/name"
LABEL_ROLE = f"{GROUP}/role"
LABEL_REVISION = f"{GROUP}/revision"
LABEL_BATCH = f"{GROUP}/batch"
"""Name of the PDBatch, on its children. They lack `LABEL_NAME` and `LABEL_ROLE`, which PDInferences select by."""

LABEL_NODE_RANK = f"{GROUP}/node-rank"
"""Node rank of a pod within an instance on several nodes."""

FURTHER_NODES: Final[Mapping[Role, str]] = MappingProxyType({role: f"{role}-node" for role in ENGINE_ROLES})
"""Value of `LABEL_ROLE` on the pods of further nodes of an instance. It differs from the role, so that the selectors of
a role (router, headless Service, autoscaler, status) match only the first pod of each instance."""

RANK_PREFIX: Final = "rank-"
"""A router calls a data-parallel rank of a pod `<pod>/rank-<number>`."""

LABEL_POD_INDEX = "apps.kubernetes.io/pod-index"
"""Ordinal of a pod, set by the StatefulSet controller. It is the number of an instance on several nodes."""

LABEL_QUEUE = "kueue.x-k8s.io/queue-name"
"""Kueue's label for the LocalQueue of a pod."""

MANAGED_SELECTOR = f"{LABEL_MANAGED_BY}={FIELD_MANAGER}"
"""Selects all objects of the operator."""

LABEL_SPEC = f"{GROUP}/spec"
"""Digest of the spec without D's replica count, only on the ControllerRevisions of a PDInference's history."""

HISTORY_SELECTOR = f"{MANAGED_SELECTOR},{LABEL_SPEC}"
"""Selects all history entries. ControllerRevisions of StatefulSets have the labels of their pods instead."""

ANNOTATION_SERVED = f"{GROUP}/served"
"""On a history entry: `true` once requests went to its spec, `false` before. Entries of older operators lack it."""

SERVED_MANAGER = f"{FIELD_MANAGER}-served"
"""Field manager of that annotation, so that writing it does not change the time at which the spec was stored."""

ANNOTATION_PAUSED = f"{GROUP}/paused"
"""On a PDInference, with the value `true`: edits of its spec are stored and not rolled out (`kubectl pdi pause`)."""

ANNOTATION_APPLIED_HASH = f"{GROUP}/applied-hash"
"""Hash of the manifest that was last applied to a child."""

ANNOTATION_DEFAULTS = f"{GROUP}/engine-defaults"
"""vLLM options that the operator set by default, on P and D pods."""

ANNOTATION_SCALES_TO_ZERO = f"{GROUP}/scales-to-zero"
"""On router pods of a resource with scaleToZero. The operator reads their requests every second."""

ANNOTATION_MODEL = f"{GROUP}/model"
"""Progress of the download and facts about the model as JSON, on the model Job. The Job's pod writes it."""

ENGINE_PORT = 8000
ENGINE_PORT_NAME = "http"
LAUNCHER_PORT = 8100
"""Probes of the container in which one launcher runs all engines of a pod (engine/scripts/host_engines.py)."""
LAUNCHER_PORT_NAME = "launcher"
GROUP_BROKEN_EXIT = 75
"""Exit code of a container after another node of its instance has stopped."""
GROUP_PORT = 29600
"""Port over which the nodes of an instance monitor each other (engine/scripts/group_member.py)."""
RENDEZVOUS_PORT = 29501
"""Rendezvous port of the ranks of an instance (vLLM's default for --master-port)."""
DATA_PARALLEL_PORT = 29550
"""At the first node of an instance, for the data-parallel ranks of the others (vllm/config/parallel.py)."""
ROUTER_PORT = 8080
ROUTER_PORT_NAME = "http"
ROUTER_STATE_PORT = 29000
"""Port of the router's metrics and probes."""
ROUTER_STATE_PORT_NAME = "metrics"
METRIC_QUEUED_REQUESTS = "pdinference_router_queued_requests"
"""Gauge of a router pod: number of requests that wait for P and D pods."""
METRIC_IDLE_SECONDS = "pdinference_router_idle_seconds"
"""Gauge of a router pod: seconds since its last request ended; 0 during requests."""
METRIC_FALLBACK_AGE_SECONDS = "pdinference_router_last_prefill_fallback_seconds"
"""Gauge of a router pod: seconds since D last computed a prompt in place of P; infinite before."""
METRIC_KV_PROMPT_TOKENS = "pdinference_router_kv_prompt_tokens_total"
"""Counter of a router pod: prompt tokens of D by `source` of their KV cache, a `KvSource`. It and the next three sum
up the counters of vLLM in all P and D pods of the revision since the router started. Absent if vLLM does not count."""
METRIC_KV_TRANSFERS = "pdinference_router_kv_transfers_total"
"""Counter of a router pod: transfers of KV cache by `result`, a `TransferResult`. Only the Nixl connector counts."""
METRIC_KV_BYTES = "pdinference_router_kv_bytes_total"
"""Counter of a router pod: bytes of KV cache in complete transfers."""
METRIC_KV_TRANSFER_SECONDS = "pdinference_router_kv_transfer_seconds_total"
"""Counter of a router pod: sum of the durations of complete transfers."""
METRIC_TOKEN_GAPS = "pdinference_router_token_gaps_total"  # noqa: S105 - no password
"""Counter of a router pod: gaps between the tokens of answers in D pods. A gap is a step of vLLM."""
METRIC_TOKEN_GAP_SECONDS = "pdinference_router_token_gap_seconds_total"  # noqa: S105 - no password
"""Counter of a router pod: sum of these gaps."""
METRIC_PROMPT_LENGTHS = "pdinference_router_prompt_tokens"
"""Histogram of a router pod: prompt tokens of the requests that D pods have finished since the router started. It and
the next one are of all D pods, as the counters above; their buckets are vLLM's."""
METRIC_ANSWER_LENGTHS = "pdinference_router_answer_tokens"
"""Histogram of a router pod: tokens that D pods generated for these requests."""
METRIC_DECODE_WAIT = "pdinference_router_decode_wait_seconds_total"
"""Counter of a router pod: seconds in which at least one request to D waited for its first token."""
METRIC_HANDED_OVER = "pdinference_router_handed_over_requests_total"
"""Counter of a router pod: prompts of requests that P computed, counted before D reads them."""
METRIC_ALONE_PROMPT_TOKENS = "pdinference_router_alone_prompt_tokens_total"
"""Counter of a router pod: prompt tokens of the requests that D served alone by choice (`router.disaggregation`). The
label `source` is a `KvSource`."""
METRIC_WAYS = "pdinference_router_ways_total"
"""Counter of a router pod: requests by `way` and `reason` (`router.disaggregation`)."""
METRIC_WAY_PREDICTED_SECONDS = "pdinference_router_way_predicted_seconds_total"
"""Counter of a router pod: sum of the times to the first token that were predicted for streamed answers, by `way`."""
METRIC_WAY_MEASURED_SECONDS = "pdinference_router_way_measured_seconds_total"
"""Counter of a router pod: sum of the times that they took."""
METRIC_WAY_ERROR_SECONDS = "pdinference_router_way_error_seconds_total"
"""Counter of a router pod: sum of the differences of the two by request."""
METRIC_CACHED_PROMPT_TOKENS = "pdinference_router_cached_prompt_tokens_total"
"""Counter of a router pod: prompt tokens of the requests that one pod served, by `kind`: all (`prompt`), and those that
should have been in the pod's cache (`expected`) and were (`actual`)."""
HEADER_SHOULD_RETRY = "X-Should-Retry"
"""Header of a router pod's response: `false` if the request must not be repeated. The clients of OpenAI and Anthropic
know it, and the batch runner."""
METRIC_STAGES = "pdinference_router_stage_seconds"
"""Histogram of a router pod: duration of the stages of requests."""
METRIC_POD_FAULT = "pdinference_router_pod_fault"
"""Gauge of a router pod: 1 for each `pod` that is ready and gives no answers, with its `fault`, a `PodFault`. An engine
that shares its pod has the pod's name, a slash and its own name."""
METRIC_VERIFICATION = "pdinference_router_verification"
"""Gauge of a router pod: 1 for the `state` that the verification of the KV transfer has, a `Verification`, else 0. The
label `decode` names the D pod with a fault."""
METRIC_PAIR_FAULTS = "pdinference_router_pair_faults"
"""Gauge of a router pod: how many canaries in a row found a fault between the P pod `parameter` and the D pod `decode`;
0 after a good one. Absent for pairs that no canary has tried."""
METRIC_PAIR_FAULT_SECONDS = "pdinference_router_pair_fault_seconds"
"""Gauge of a router pod: seconds from the first to the last of these canaries."""
METRIC_PAIR_AGE_SECONDS = "pdinference_router_pair_age_seconds"
"""Gauge of a router pod: seconds since the last canary between the two pods ended."""
METRIC_ADMISSION_TIME = "pdinference_router_admission_time_seconds"
"""Gauge of a router pod: when requests first went to the D pod `decode` after it had become ready, in Unix time. An
engine that shares its pod, or a rank, has the pod's name, a slash and its own name."""
METRIC_VERIFICATION_AGE_SECONDS = "pdinference_router_verification_age_seconds"
"""Gauge of a router pod: seconds since the canary ended that the state is of; infinite before."""
METRIC_VERIFICATION_TOKENS = "pdinference_router_verification_tokens"
"""Gauge of a router pod: prompt tokens of that canary; 0 before."""
METRIC_VERIFICATION_DISTANCE = "pdinference_router_verification_distance"
"""Gauge of a router pod: distance between the answer through P and D and that of P alone, 0 to 1; NaN if unknown."""
METRIC_VERIFICATION_LIMIT = "pdinference_router_verification_limit"
"""Gauge of a router pod: distance above which the answer counts as wrong; NaN before the first canary."""

OPERATOR_TLS_PORT = 8443
"""HTTPS port of the operator for the API server: admission webhooks and the external metrics API."""

DEVICE_CLAIM = "accelerators"
"""Name of the resource claim within a pod."""
SCRIPTS_VOLUME = "pdinference-scripts"
"""Name of the volume with programs of ours within a P or D pod."""
RUNNER_METRICS_PORT = 8080
RUNNER_METRICS_PORT_NAME = "metrics"
METRIC_BATCH_REQUESTS = "pdinference_batch_requests"
"""Gauge of a batch runner: number of requests by `state` (total, completed, failed). The operator scrapes it."""

ENGINE_CONTAINER = "vllm"
ROUTER_CONTAINER = "router"
MODEL_CONTAINER = "pdinference-model"
RUNNER_CONTAINER = "runner"
RUNNER_COMPONENT = "batch"

DISK_TIER_CONTAINER = "kv-disk-tier"

DEFAULT_OPERATOR_IMAGE = "ghcr.io/pdinference/operator:" + version("pdinference")
"""Default image of batch runners: the operator image."""
DEFAULT_ROUTER_IMAGE = "ghcr.io/pdinference/operator:0.1.0"
"""Default router image: the operator image. Raise it only when the router changes, because another image replaces the
router pods of all resources."""

DEFAULT_MODEL_IMAGE = "ghcr.io/pdinference/operator:0.1.0"
"""Default image that downloads and verifies models. Raise it only when that code changes, not with each release: P and
D pods with a cache or a model on a volume run it and would restart."""

REVISION_LENGTH = 8
NAME_MAX_LENGTH = 33
"""Maximum length of a PDInference's name. `<name>-parameter-<revision>` must not exceed 52 characters: the StatefulSet
controller appends `-<10 characters>` and writes the result to a label, which holds 63."""


def revision_object(name: str, role: Role, revision: str) -> str:
    """Name of what one revision of P or D has: its workload, the ConfigMap with programs, the claim template."""
    return f"{name}-{role}-{revision}"


def node_workload(name: str, role: Role, node_rank: int, revision: str) -> str:
    """Name of the StatefulSet of one further node of each instance of a role, of one revision."""
    return f"{name}-{'node' if role is Role.PARAMETER else role}{node_rank}-{revision}"


def model_job(name: str, digest: str) -> str:
    """Name of the Job that downloads or inspects the model."""
    return f"{name}-{Role.MODEL}-{digest}"


def history_entry(name: str, digest: str) -> str:
    """Name of the ControllerRevision with one valid spec of a PDInference."""
    return f"{name}-{digest}"


def role_object(name: str, role: Role) -> str:
    """Name of the children that a role has once for all revisions: headless Service, disruption budget, router etc."""
    return f"{name}-{role}"


def keda_autoscaler(name: str, role: Role) -> str:
    """Name of the HorizontalPodAutoscaler that KEDA creates for a role's ScaledObject."""
    return f"keda-hpa-{role_object(name, role)}"


def router_service(name: str) -> str:
    """Name of the Service for clients: the name of the PDInference."""
    return name


def batch_object(name: str) -> str:
    """Name of the children of a PDBatch."""
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


def node_labels(role: Role, node_rank: int) -> dict[str, str]:
    """Labels of the pods of one node rank of a role's instances on several nodes."""
    return {LABEL_ROLE: str(role) if node_rank == 0 else FURTHER_NODES[role], LABEL_NODE_RANK: str(node_rank)}


def node_of(labels: Mapping[str, str]) -> tuple[Role, int] | None:
    """Role and node rank of a pod or workload, from its labels; None for other objects."""
    role = labels.get(LABEL_ROLE, "")
    if (of := next((of for of, value in FURTHER_NODES.items() if value == role), None)) is not None:
        rank = labels.get(LABEL_NODE_RANK, "")
        return (of, int(rank)) if rank.isdecimal() else None
    return (Role(role), 0) if role in set(Role) else None


def pods_of(name: str, role: Role, *, nodes: int) -> dict[str, Any]:
    """Label selector, as in the Kubernetes API, of all pods of a role, with those of further nodes."""
    if nodes == 1:
        return {"matchLabels": role_selector(name, role)}
    roles = {"key": LABEL_ROLE, "operator": "In", "values": [str(role), FURTHER_NODES[role]]}
    return {"matchLabels": {LABEL_NAME: name}, "matchExpressions": [roles]}


def role_selector(name: str, role: Role, revision: str | None = None) -> dict[str, str]:
    """The labels that select the pods of one role, of all revisions or of one."""
    selector = {LABEL_NAME: name, LABEL_ROLE: str(role)}
    return selector if revision is None else {**selector, LABEL_REVISION: revision}


def selector_text(selector: Mapping[str, str]) -> str:
    """A label selector as text."""
    return ",".join(f"{key}={value}" for key, value in selector.items())
