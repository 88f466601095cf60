"""Scheduling fields of an overlay, restricted so that they do not affect other tenants.

Tests: tests/manifests/test_pod_rules.py, tests/manifests/test_policy.py
"""

from collections.abc import Iterator
from typing import Any

from pdinference.api.validation import Problem
from pdinference.manifests.pod_rules.selectors import EXPRESSIONS, LABEL_SELECTOR
from pdinference.manifests.pod_rules.shapes import (
    DOMAIN,
    LABEL_VALUE,
    Allowance,
    Check,
    both,
    list_of,
    listed,
    map_of,
    object_of,
    only,
    qualified_name,
    whole,
)

PRIORITY_CLASS = both(DOMAIN, listed("priorityClasses", "the PriorityClass", "system-"))
RUNTIME_CLASS = both(DOMAIN, listed("runtimeClasses", "the RuntimeClass"))
SCHEDULER_NAME = both(DOMAIN, listed("schedulerNames", "the scheduler"))
_TOLERATED_KEY = listed("tolerations", "pods to tolerate the taint", "node-role.kubernetes.io/")
NODE_SELECTOR: Check = map_of(qualified_name, LABEL_VALUE, most=32)
_KEYS = list_of(qualified_name, most=16)
_NODE_TERM = object_of({"matchExpressions": EXPRESSIONS, "matchFields": EXPRESSIONS})
_WEIGHT = whole(1, 100)
_NODE = object_of(
    {
        "requiredDuringSchedulingIgnoredDuringExecution": object_of(
            {"nodeSelectorTerms": list_of(_NODE_TERM, most=16)}
        ),
        "preferredDuringSchedulingIgnoredDuringExecution": list_of(
            object_of({"weight": _WEIGHT, "preference": _NODE_TERM}, required=("weight", "preference")), most=16
        ),
    }
)
# The scheduler applies the anti-affinity of existing pods to new pods. Across namespaces, one pod could block a node or
# a whole zone for all others.
_OWN_NAMESPACE = {
    "namespaces": "it could block nodes for pods of other namespaces",
    "namespaceSelector": "it could block nodes for pods of other namespaces",
}
_POD_TERM = object_of(
    {
        "topologyKey": qualified_name,
        "labelSelector": LABEL_SELECTOR,
        "matchLabelKeys": _KEYS,
        "mismatchLabelKeys": _KEYS,
    },
    _OWN_NAMESPACE,
    required=("topologyKey",),
)
_PODS = object_of(
    {
        "requiredDuringSchedulingIgnoredDuringExecution": list_of(_POD_TERM, most=16),
        "preferredDuringSchedulingIgnoredDuringExecution": list_of(
            object_of({"weight": _WEIGHT, "podAffinityTerm": _POD_TERM}, required=("weight", "podAffinityTerm")),
            most=16,
        ),
    }
)
AFFINITY: Check = object_of({"nodeAffinity": _NODE, "podAffinity": _PODS, "podAntiAffinity": _PODS})
TOPOLOGY_SPREAD: Check = list_of(
    object_of(
        {
            "topologyKey": qualified_name,
            "maxSkew": whole(1),
            "minDomains": whole(1),
            "whenUnsatisfiable": only("DoNotSchedule", "ScheduleAnyway"),
            "labelSelector": LABEL_SELECTOR,
            "matchLabelKeys": _KEYS,
            "nodeAffinityPolicy": only("Honor", "Ignore"),
            "nodeTaintsPolicy": only("Honor", "Ignore"),
        },
        required=("topologyKey", "maxSkew", "whenUnsatisfiable"),
    ),
    key="topologyKey",
    most=16,
)


def _taint(value: Any, path: str, allowance: Allowance) -> Iterator[Problem]:
    """The key of a taint; empty for every taint."""
    if value != "":
        yield from qualified_name(value, path, allowance)


_TOLERATION = object_of(
    {
        "key": _taint,
        "operator": only("Exists", "Equal"),
        "value": LABEL_VALUE,
        "effect": only("", "NoSchedule", "PreferNoSchedule", "NoExecute"),
        "tolerationSeconds": whole(),
    }
)


def toleration(value: Any, path: str, allowance: Allowance) -> Iterator[Problem]:
    """A toleration of a taint that the policy allows."""
    if found := tuple(_TOLERATION(value, path, allowance)):
        yield from found
    else:
        yield from tolerated_key(value.get("key"), path, allowance)


def tolerated_key(key: str | None, path: str, allowance: Allowance) -> Iterator[Problem]:
    """The key of a toleration. Without a key, it tolerates all taints, including those of control plane nodes."""
    if key:
        yield from _TOLERATED_KEY(key, f"{path}.key", allowance)
    elif "" not in allowance.policy.tolerations:
        yield Problem(
            f"{path}.key",
            "Set the key of the taint: without a key, pods tolerate all taints, including those of control plane "
            "nodes. An empty entry in the chart value policy.tolerations allows this.",
        )
