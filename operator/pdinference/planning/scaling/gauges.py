"""The computed signals as Prometheus gauges: their labels, and the queries that read them.

The operator exports one gauge for each metric of `signals.METRICS`. KEDA and prometheus-adapter read these gauges, so
each signal is computed once, in Python.
"""

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from pdinference.api import names
from pdinference.api.names import ENGINE_ROLES, Role

LABEL_NAMESPACE: Final = "inference_namespace"
"""Not `namespace`: Prometheus sets that label on every target, and renames a metric's own (`exported_namespace`)."""
LABEL_NAME: Final = "inference_name"
LABEL_ROLE: Final = "inference_role"
NAMESPACE_OF_TARGET: Final = "namespace"
"""The label that Prometheus sets for a scraped pod. A pod cannot set it, unlike the labels of its own metrics."""

_METRIC_NAME: Final = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*", re.ASCII)
_LABEL_NAME: Final = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*", re.ASCII)


class UnsafeNameError(ValueError):
    """A name that is not valid in PromQL; the message says which names are."""


def gauge_labels(name: str, role: Role) -> dict[str, str]:
    """The labels that select the gauges of one role within its namespace."""
    return {LABEL_NAME: name, LABEL_ROLE: str(role)}


def gauge_query(metric: str, namespace: str, name: str, role: Role, operator_namespace: str = "") -> str:
    """The value of one gauge.

    Every replica of the operator exports it. The highest value counts: a replica that has just started reports a lower
    load, or none, and must not cause scale-down.

    Args:
        metric: One of `signals.METRICS`.
        namespace: Namespace of the resource.
        name: Name of the resource.
        role: Parameter or decode.
        operator_namespace: Where the operator's pods are, so that no other pod can export the gauge in its place;
            empty when unknown.
    """
    own = {LABEL_NAMESPACE: namespace, **gauge_labels(name, role)}
    return f"max({_selector(metric, own | ({NAMESPACE_OF_TARGET: operator_namespace} if operator_namespace else {}))})"


def sum_query(metric: str, labels: Mapping[str, str], namespace: str) -> str:
    """The sum of a user's metric over the pods of one namespace.

    The namespace is one more matcher. Labels that name another namespace select nothing.

    Raises:
        UnsafeNameError: The name of the metric or of a label is not valid in PromQL.
    """
    return f"sum({_selector(metric, labels, f'{NAMESPACE_OF_TARGET}={_quoted(namespace)}')})"


def selected_role(labels: Mapping[str, str]) -> tuple[str, Role] | None:
    """The resource's name and the role that labels of an operator's metric select; None for anything else."""
    if labels.keys() != {names.LABEL_NAME, names.LABEL_ROLE} or labels[names.LABEL_ROLE] not in ENGINE_ROLES:
        return None
    return labels[names.LABEL_NAME], Role(labels[names.LABEL_ROLE])


def adapter_rules(operator_namespace: str) -> dict[str, Any]:
    """The configuration with which prometheus-adapter serves the gauges as external metrics, under the same names.

    Args:
        operator_namespace: Where the operator's pods are.
    """
    ours = f"{NAMESPACE_OF_TARGET}={_quoted(operator_namespace)}"
    return {
        "externalRules": [
            {
                "seriesQuery": f'{{__name__=~"^pdinference_.+",{LABEL_NAMESPACE}!="",{ours}}}',
                "resources": {"overrides": {LABEL_NAMESPACE: {"resource": "namespace"}}},
                "metricsQuery": f"max(<<.Series>>{{<<.LabelMatchers>>,{ours}}})",
            }
        ]
    }


def _selector(metric: str, labels: Mapping[str, str], *further: str) -> str:
    if not _METRIC_NAME.fullmatch(metric):
        raise UnsafeNameError("Names of Prometheus metrics contain only letters, digits, underscores and colons.")
    for label in labels:
        if not _LABEL_NAME.fullmatch(label):
            raise UnsafeNameError(
                f"Names of Prometheus labels contain only letters, digits and underscores, unlike {label}."
            )
    matchers = (*(f"{label}={_quoted(value)}" for label, value in labels.items()), *further)
    return f"{metric}{{{','.join(matchers)}}}"


def _quoted(value: str) -> str:
    """A PromQL string: in double quotes, with Go's escapes, of which JSON's are a subset."""
    return json.dumps(value, ensure_ascii=False)
