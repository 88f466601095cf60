"""Which nodes a pod may run on, and which pods a selector selects, by the rules of Kubernetes."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from pdinference.cluster.client import Json

_HARD: Final = frozenset({"NoSchedule", "NoExecute"})
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"


def may_run(pod: Json, node: Json) -> bool:
    """Whether the scheduler may bind a pod to a node, apart from amounts of resources.

    Args:
        pod: `spec` of the pod.
        node: The node.
    """
    spec, labels = node.get("spec") or {}, node["metadata"].get("labels") or {}
    if spec.get("unschedulable") or not _ready(node):
        return False
    if any(labels.get(key) != value for key, value in (pod.get("nodeSelector") or {}).items()):
        return False
    return _affine(pod, node) and _tolerated(pod.get("tolerations") or (), spec.get("taints") or ())


def selects(selector: Json, labels: Mapping[str, str]) -> bool:
    """Whether a label selector selects an object with these labels."""
    if any(labels.get(key) != value for key, value in (selector.get("matchLabels") or {}).items()):
        return False
    return all(_holds(labels, expression) for expression in selector.get("matchExpressions") or ())


def _ready(node: Json) -> bool:
    conditions = (node.get("status") or {}).get("conditions") or ()
    return all(condition["status"] == "True" for condition in conditions if condition["type"] == "Ready")


def _affine(pod: Json, node: Json) -> bool:
    required = ((pod.get("affinity") or {}).get("nodeAffinity") or {}).get(_REQUIRED)
    if not required:
        return True
    return any(_matches(term, node) for term in required.get("nodeSelectorTerms") or ())


def _matches(term: Json, node: Json) -> bool:
    labels = node["metadata"].get("labels") or {}
    fields = {"metadata.name": node["metadata"]["name"]}
    expressions = [(labels, each) for each in term.get("matchExpressions") or ()]
    expressions += [(fields, each) for each in term.get("matchFields") or ()]
    # A term without expressions matches no node.
    return bool(expressions) and all(_holds(values, each) for values, each in expressions)


def _holds(labels: Mapping[str, str], expression: Json) -> bool:
    return _OPERATORS[expression["operator"]](labels.get(expression["key"]), expression.get("values") or [])


def _compared(value: str | None, values: list[str], greater: bool) -> bool:
    try:
        return (int(value or "") > int(values[0])) if greater else (int(value or "") < int(values[0]))
    except (ValueError, IndexError):
        return False


_OPERATORS: Final[Mapping[str, Callable[[str | None, list[str]], bool]]] = {
    "In": lambda value, values: value in values,
    "NotIn": lambda value, values: value not in values,
    "Exists": lambda value, _: value is not None,
    "DoesNotExist": lambda value, _: value is None,
    "Gt": lambda value, values: _compared(value, values, greater=True),
    "Lt": lambda value, values: _compared(value, values, greater=False),
}


def _tolerated(tolerations: Any, taints: Any) -> bool:
    return all(
        any(_tolerates(toleration, taint) for toleration in tolerations) for taint in taints if taint["effect"] in _HARD
    )


def _tolerates(toleration: Json, taint: Json) -> bool:
    if toleration.get("effect") not in {None, "", taint["effect"]}:
        return False
    if toleration.get("operator", "Equal") == "Exists":
        return toleration.get("key") in {None, "", taint["key"]}
    return (toleration.get("key"), toleration.get("value") or "") == (taint["key"], taint.get("value") or "")
