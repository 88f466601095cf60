"""The conditions of a PDInference: one table, from which the CRD and docs/resource.md are made.

The operator's reconciler is the only writer of all of them. To add one, see docs/contributing.md.
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

IMAGE_PULL: Final = "ImagePullBackOff"
CRASH_LOOPING: Final = "CrashLooping"
NO_MODEL: Final = "NoUsableModel"
UNSCHEDULABLE: Final = "Unschedulable"
PODS_NOT_CREATED: Final = "PodsNotCreated"
DEADLINE_EXCEEDED: Final = "ProgressDeadlineExceeded"
ROLLOUT_COMPLETE: Final = "RolloutComplete"
INVALID: Final = "InvalidSpec"

FINAL_REASONS: Final = frozenset({IMAGE_PULL, "InvalidImageName", "ErrImageNeverPull", CRASH_LOOPING, NO_MODEL})
"""Pod problems that stop a roll-out at once: waiting alone does not solve them."""
DEADLINE_REASONS: Final = frozenset({UNSCHEDULABLE, PODS_NOT_CREATED})
"""Pod problems that the cluster may solve; past the deadline of progress they are the reason of `Progressing`."""


@dataclass(frozen=True, slots=True)
class ConditionType:
    """One row of the table.

    Attributes:
        name: The condition's type.
        when: What each status means; a status that is left out does not occur.
        reasons: The reasons of each status.
        foreign: Whose reasons occur besides, word for word; empty for none.
        present: When the condition is there; empty for always.
        good: The status of a resource with which nothing is wrong.
        module: The module of `pdinference.planning` that decides it.
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
    # What the kubelet says of containers that stopped, before it is known that they stop again and again.
    "Error",
    "OOMKilled",
    "ContainerCannotRun",
    "StartError",
    "CrashLoopBackOff",
}
"""What keeps a pod from getting ready, as far as the operator knows it by name."""
_ROLE: Final = POD_REASONS | {"ModelNotReady", "GpuBudget", "Asleep", "ScaledToZero"}
_CHILD: Final = frozenset({"NameConflict", "NotServed"})
_NO_VALID_SPEC: Final = "No valid spec of the resource is known."
_KUBELET: Final = "the kubelet"
_API_SERVER: Final = "the API server"
_WORKS: Final = frozenset({"RollingOut", "NotAllReady", "GpuBudget"})
_STOPPED: Final = FINAL_REASONS | DEADLINE_REASONS | _CHILD | {DEADLINE_EXCEEDED, INVALID}


def _role(name: str, word: str) -> ConditionType:
    return ConditionType(
        name=name,
        when={
            "True": f"Every wanted {word} pod of the current revision is ready.",
            "False": "One is missing or not ready; the message says what to do.",
            "Unknown": _NO_VALID_SPEC,
        },
        reasons={"True": frozenset({"AllReady"}), "False": _ROLE, "Unknown": frozenset({INVALID})},
        foreign=_KUBELET,
        module="status.roles",
    )


TABLE: Final = (
    ConditionType(
        name=READY,
        when={
            "True": "Requests are answered, by the current revision or by an earlier one; or P and D are asleep "
            "(`Asleep`) and the next request starts them.",
            "False": "No request is answered.",
            "Unknown": "P and D are asleep, and a router pod does not report whether a request waits. "
            f"{_NO_VALID_SPEC}",
        },
        reasons={
            "True": frozenset({"Serving", "Asleep"}),
            "False": _ROLE | _CHILD | {INVALID},
            "Unknown": frozenset({"Asleep", INVALID}),
        },
        foreign=f"{_KUBELET}, {_API_SERVER}",
        module="status.ready",
    ),
    _role(PARAMETER_READY, "P"),
    _role(DECODE_READY, "D"),
    _role(ROUTER_READY, "router"),
    ConditionType(
        name=MODEL_READY,
        when={
            "True": "The Job has downloaded or inspected the model, or pods found its files complete.",
            "False": "The Job is not done, or pods found a fault in the files (`NoUsableModel`). P and D pods of a new "
            "revision wait for a download.",
            "Unknown": "No pod has checked the files yet.",
        },
        reasons={
            "True": frozenset({"Downloaded", "Inspected", "Checked"}),
            "False": POD_REASONS | {"Waiting", "Asking", "Downloading", "Verifying", "Ready", "Failed"},
            "Unknown": frozenset({"NotChecked"}),
        },
        foreign=f"the Job, {_KUBELET}",
        present="a Job or the pods look at the model",
        module="status.model",
    ),
    ConditionType(
        name=PROGRESSING,
        when={
            "True": "The operator rolls the spec out (`RollingOut`), waits for GPUs of the budget (`GpuBudget`), or "
            "waits for pods of a revision that is rolled out (`NotAllReady`).",
            "False": f"The roll-out is done (`{ROLLOUT_COMPLETE}`), or it is stuck for any other reason. The old "
            "revision then serves on.",
        },
        reasons={"True": _WORKS, "False": _STOPPED | {ROLLOUT_COMPLETE}},
        good="False",
        foreign=f"{_API_SERVER}, the Job for the model",
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
        when={"True": f"`{PROGRESSING}` is False, but the roll-out is not done. It resumes when the cause is gone."},
        reasons={"True": _STOPPED},
        good="False",
        foreign=f"{_API_SERVER}, the Job for the model",
        present="the roll-out is stuck",
        module="status.progressing",
    ),
    ConditionType(
        name=MEMORY_FITS,
        when={
            "True": "The model and one request of the longest length fit the devices of both roles.",
            "False": "They do not.",
            "Unknown": "The model's shape or a device's memory is not known.",
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
            "True": "P's pods run only on products that the spec names, or claim exact devices.",
            "False": "They may run on any node that has the extended resource, which is valid.",
        },
        reasons={"True": frozenset({"Pinned"}), "False": frozenset({"NotPinned"})},
        present="P has an accelerator",
        module="pinning",
    ),
    ConditionType(
        name=AUTOSCALING,
        when={
            "True": "Replica counts follow the load, within the limits that the reason names.",
            "False": "The load is not known, or the count cannot be changed. It stays as it is.",
            "Unknown": "The load was not read yet.",
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
            "False": frozenset({"AmbiguousSelector", "ScalingDisabled"}),
            "Unknown": frozenset({"Starting", INVALID}),
        },
        foreign="the HorizontalPodAutoscaler",
        present="a role has `autoscaling`",
        module="status.autoscaling",
    ),
)

BY_NAME: Final = {row.name: row for row in TABLE}


def description() -> str:
    """What the CRD says of `status.conditions`."""
    always = _names(row for row in TABLE if not row.present)
    sometimes = _names(row for row in TABLE if row.present)
    return f"Conditions: {always}; where they apply, {sometimes}."


def _names(rows: Iterable[ConditionType]) -> str:
    return ", ".join(row.name for row in rows)
