"""The table of conditions of a PDInference. The CRD and docs/reference/conditions.md are generated from it.

The operator writes all of them. docs/contributing.md describes how to add one.

Tests: tests/api/test_conditions.py
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

Truth = Literal["True", "False", "Unknown"]

READY: Final = "Ready"
PARAMETER_READY: Final = "ParameterReady"
DECODE_READY: Final = "DecodeReady"
ROUTER_READY: Final = "RouterReady"
MODEL_READY: Final = "ModelReady"
PROGRESSING: Final = "Progressing"
RECONCILING: Final = "Reconciling"
STALLED: Final = "Stalled"
MEMORY_FITS: Final = "MemoryFits"
PINNED: Final = "Pinned"
AUTOSCALING: Final = "Autoscaling"
CLIENTS_AUTHENTICATED: Final = "ClientsAuthenticated"
DECODE_COMPUTES_PROMPTS: Final = "DecodeComputesPrompts"
ROUTE_ACCEPTED: Final = "RouteAccepted"
KV_TRANSFER: Final = "KVTransfer"
OBJECTIVES_MET: Final = "ObjectivesMet"

IMAGE_PULL: Final = "ImagePullBackOff"
CRASH_LOOPING: Final = "CrashLooping"
CONTAINER_CONFIG: Final = "CreateContainerConfigError"
NO_MODEL: Final = "NoUsableModel"
UNSCHEDULABLE: Final = "Unschedulable"
PODS_NOT_CREATED: Final = "PodsNotCreated"
NOT_ANSWERING: Final = "NotAnswering"
DEADLINE_EXCEEDED: Final = "ProgressDeadlineExceeded"
ROLLOUT_COMPLETE: Final = "RolloutComplete"
INVALID: Final = "InvalidSpec"
PAUSED: Final = "Paused"

AT_REST: Final = frozenset({ROLLOUT_COMPLETE, PAUSED})
"""Reasons of `Progressing` when it is False and nothing is stalled."""

FINAL_REASONS: Final = frozenset({IMAGE_PULL, "InvalidImageName", "ErrImageNeverPull", CRASH_LOOPING, NO_MODEL})
"""Pod problems that stall a roll-out at once, because waiting does not solve them."""
DEADLINE_REASONS: Final = frozenset({UNSCHEDULABLE, PODS_NOT_CREATED})
"""Pod problems that the cluster may solve. After the progress deadline they are the reason of `Progressing`."""


@dataclass(frozen=True, slots=True)
class ConditionType:
    """One row of the table.

    Attributes:
        name: The condition's type.
        when: Meaning of each status that occurs.
        reasons: The reasons of each status.
        foreign: Components whose reasons are copied verbatim; empty for none.
        present: When the condition is present; empty for always.
        good: The status of a healthy resource.
        module: The module of `pdinference.planning` that computes it.
    """

    name: str
    when: Mapping[Truth, str]
    reasons: Mapping[Truth, frozenset[str]]
    module: str
    good: Truth = "True"
    present: str = ""
    foreign: str = ""


POD_REASONS: Final = FINAL_REASONS | {
    "Starting",
    "PreparingModel",
    UNSCHEDULABLE,
    PODS_NOT_CREATED,
    # Reasons of the kubelet for terminated containers, until repeated failures are known.
    "Error",
    "OOMKilled",
    "ContainerCannotRun",
    "StartError",
    "CrashLoopBackOff",
    # A reason of the kubelet for a container that waits for a Secret or a ConfigMap.
    CONTAINER_CONFIG,
}
"""Reasons, known to the operator, for which a pod is not ready."""
_ROLE: Final = POD_REASONS | {NOT_ANSWERING, "ModelNotReady", "GpuBudget", "Asleep", "ScaledToZero"}
_CHILD: Final = frozenset({"NameConflict", "NotServed"})
_NO_VALID_SPEC: Final = "No valid spec of the resource is known."
_KUBELET: Final = "the kubelet"
_API_SERVER: Final = "the API server"
_WORKS: Final = frozenset({"RollingOut", "NotAllReady", "GpuBudget", PAUSED})
_METRICS_API: Final = frozenset({"MetricsApiElsewhere", "MetricsApiMissing", "MetricsApiOff", "MetricsApiUnavailable"})
_STOPPED: Final = FINAL_REASONS | DEADLINE_REASONS | _CHILD | {DEADLINE_EXCEEDED, INVALID}


def _role(name: str, word: str, without: str = "") -> ConditionType:
    return ConditionType(
        name=name,
        when={
            "True": f"All desired {word} pods of the current revision are ready{without}.",
            "False": "At least one pod is missing, not ready, or gives the routers no answers. The message says what "
            "to do.",
            "Unknown": _NO_VALID_SPEC,
        },
        reasons={
            "True": frozenset({"AllReady"} | ({"Aggregated", "HostLocal"} if without else set())),
            "False": _ROLE,
            "Unknown": frozenset({INVALID, PAUSED}),
        },
        foreign=_KUBELET,
        module="status.roles",
    )


TABLE: Final = (
    ConditionType(
        name=READY,
        when={
            "True": "The current or an earlier revision answers requests, or P and D are asleep (`Asleep`) and the "
            "next request starts them.",
            "False": "Requests are not answered.",
            "Unknown": f"P and D are asleep, and a router pod does not report its waiting requests. {_NO_VALID_SPEC}",
        },
        reasons={
            "True": frozenset({"Serving", "Asleep"}),
            "False": _ROLE | _CHILD | {INVALID, PAUSED},
            "Unknown": frozenset({"Asleep", INVALID, PAUSED}),
        },
        foreign=f"{_KUBELET} and {_API_SERVER}",
        module="status.ready",
    ),
    _role(
        PARAMETER_READY,
        "P",
        without=", or there are none: spec.mode is `Aggregated`, or P runs in the pods of D (`HostLocal`)",
    ),
    _role(DECODE_READY, "D"),
    _role(ROUTER_READY, "router"),
    ConditionType(
        name=MODEL_READY,
        when={
            "True": "The Job has downloaded or inspected the model, or pods have verified its files.",
            "False": "The Job has not completed, or pods found defective files (`NoUsableModel`). P and D pods of a "
            "new revision wait for a download.",
            "Unknown": "No pod has verified the files yet.",
        },
        reasons={
            "True": frozenset({"Downloaded", "Inspected", "Checked"}),
            "False": POD_REASONS | {"Waiting", "Asking", "Downloading", "Verifying", "Ready", "Failed"},
            "Unknown": frozenset({"NotChecked"}),
        },
        foreign=f"the Job and {_KUBELET}",
        present="a Job or the pods verify the model",
        module="status.model",
    ),
    ConditionType(
        name=PROGRESSING,
        when={
            "True": "The operator rolls out the spec (`RollingOut`), waits for GPUs in the budget (`GpuBudget`), "
            f"waits for pods after the roll-out (`NotAllReady`), or holds an edit back (`{PAUSED}`).",
            "False": f"The roll-out is complete (`{ROLLOUT_COMPLETE}`; `{PAUSED}` if edits would be held back), or, "
            "with any other reason, stalled. While it is stalled, the old revision continues to serve.",
        },
        reasons={"True": _WORKS, "False": _STOPPED | AT_REST},
        good="False",
        foreign=f"{_API_SERVER} and the Job for the model",
        module="status.progressing",
    ),
    ConditionType(
        name=RECONCILING,
        when={"True": f"`{PROGRESSING}` is True."},
        reasons={"True": _WORKS},
        good="False",
        present=f"`{PROGRESSING}` is True",
        module="status.progressing",
    ),
    ConditionType(
        name=STALLED,
        when={"True": "The roll-out cannot proceed. It resumes when the cause is removed."},
        reasons={"True": _STOPPED},
        good="False",
        foreign=f"{_API_SERVER} and the Job for the model",
        present="the roll-out is stalled",
        module="status.progressing",
    ),
    ConditionType(
        name=MEMORY_FITS,
        when={
            "True": "The model and one request of maximum length fit the devices of both roles.",
            "False": "They do not fit.",
            "Unknown": "The size of the model or of a device's memory is not known.",
        },
        reasons={
            "True": frozenset({"Fits"}),
            "False": frozenset({"DoesNotFit"}),
            "Unknown": frozenset({"NotKnown"}),
        },
        module="status.model",
    ),
    ConditionType(
        name=PINNED,
        when={
            "True": "P pods run only on products that the spec names, or claim exact devices.",
            "False": "P pods may run on any node with the extended resource. This is valid.",
        },
        reasons={"True": frozenset({"Pinned"}), "False": frozenset({"NotPinned"})},
        present="P has an accelerator",
        module="pinning",
    ),
    ConditionType(
        name=CLIENTS_AUTHENTICATED,
        when={
            "True": "Clients outside the cluster need an API key.",
            "False": "Clients outside the cluster can send requests without an API key. This is valid.",
        },
        reasons={"True": frozenset({"ApiKeys"}), "False": frozenset({"NoApiKeys"})},
        present="`router.service.type`, `router.clients` or `router.route` exposes the router to clients outside the "
        "cluster",
        module="exposure",
    ),
    ConditionType(
        name=AUTOSCALING,
        when={
            "True": "Replica counts follow the load, within the limit that the reason names.",
            "False": "The load is not known, or the replica count cannot be changed. Replica counts do not change.",
            "Unknown": "The load has not been read yet.",
        },
        reasons={
            "True": frozenset(
                {
                    "Active",
                    "Asleep",
                    "GpuBudget",
                    "Ratio",
                    "TooManyReplicas",
                    "TooFewReplicas",
                    "ScaleUpLimit",
                    "ScaleDownLimit",
                    "ScaleDownStabilized",
                }
            ),
            "False": frozenset({"AmbiguousSelector", "ScalingDisabled"}) | _METRICS_API,
            "Unknown": frozenset({"Starting", INVALID, PAUSED}),
        },
        foreign="the HorizontalPodAutoscaler",
        present="a role has `autoscaling`",
        module="status.autoscaling",
    ),
    ConditionType(
        name=DECODE_COMPUTES_PROMPTS,
        when={"True": "In the last minutes, D computed prompts that P pods did not (`router.whenNoPrefill: Serve`)."},
        reasons={"True": frozenset({"PrefillFallback"})},
        good="False",
        present="D has recently computed prompts in place of P",
        module="status.prompts",
    ),
    ConditionType(
        name=KV_TRANSFER,
        when={
            "True": "KV cache gets from P to D. `Verified`: a canary through both got the same answer as from P "
            "alone. `Transferring`: requests show it; its contents were not verified.",
            "False": "KV cache arrives wrong (`WrongAnswers`), transfers fail (`Failing`), D computes the prompts "
            "(`ComputedByDecode`), or the transfer is the bottleneck (`Saturated`) or slower than the hardware "
            "(`Slow`).",
            "Unknown": "Nothing was measured yet.",
        },
        reasons={
            "True": frozenset({"Verified", "Transferring"}),
            "False": frozenset({"WrongAnswers", "Failing", "ComputedByDecode", "Saturated", "Slow"}),
            "Unknown": frozenset({"NoRequestsYet"}),
        },
        present="router pods report the KV transfer",
        module="status.kv_transfer",
    ),
    ConditionType(
        name=OBJECTIVES_MET,
        when={
            "True": "Streamed answers of the last minutes kept `objectives`.",
            "False": "More of them missed an objective than the percentile allows. After 10 minutes the message "
            "says what limits.",
            "Unknown": "No requests, or too few to judge.",
        },
        reasons={
            "True": frozenset({"Met"}),
            "False": frozenset({"Missed"}),
            "Unknown": frozenset({"NoRequestsYet", "NoRequests"}),
        },
        present="`objectives` is set and router pods report latencies",
        module="status.objectives",
    ),
    ConditionType(
        name=ROUTE_ACCEPTED,
        when={
            "True": "Each Gateway in `router.route.parentRefs` accepts the HTTPRoute and finds its Service.",
            "False": "A Gateway does not, or the HTTPRoute cannot be written.",
            "Unknown": "A Gateway has no controller that reports on the current HTTPRoute.",
        },
        reasons={
            "True": frozenset({"Accepted"}),
            "False": _CHILD | {"NotAccepted"},
            "Unknown": frozenset({"Pending"}),
        },
        foreign=f"the Gateway's controller and {_API_SERVER}",
        present="`router.route` is set",
        module="status.route",
    ),
)

BY_NAME: Final = {row.name: row for row in TABLE}


def description() -> str:
    """Description of `status.conditions` in the CRD."""
    always = _names(row for row in TABLE if not row.present)
    sometimes = _names(row for row in TABLE if row.present)
    return f"Conditions: {always}; if they apply, {sometimes}."


def _names(rows: Iterable[ConditionType]) -> str:
    return ", ".join(row.name for row in rows)
