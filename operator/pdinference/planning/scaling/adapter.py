"""The rules by which prometheus-adapter serves the scaling signals as external metrics."""

from itertools import product
from typing import Any, Final

from pdinference.api.names import ENGINE_ROLES, Role
from pdinference.planning.scaling.queries import (
    DEFAULT_WINDOW_SECONDS,
    LABEL_NAME,
    LABEL_NAMESPACE,
    LABEL_ROLE,
    UNSPEAKABLE,
    Query,
    adapter_metric,
)
from pdinference.planning.scaling.signals import Signal
from pdinference.planning.scaling.vllm_metrics import VllmMetric

_MATCHERS: Final = "<<.LabelMatchers>>"
"""Where the adapter puts the namespace that it is asked for, and the selector of the metric."""


def adapter_rules(window_seconds: int = DEFAULT_WINDOW_SECONDS) -> dict[str, Any]:
    """The adapter's configuration, as far as we are concerned.

    Args:
        window_seconds: Over how long rates are taken.
    """
    signals = [signal for signal in Signal if signal not in UNSPEAKABLE]
    return {"externalRules": [_rule(signal, role, window_seconds) for role, signal in product(ENGINE_ROLES, signals)]}


def _rule(signal: Signal, role: Role, window_seconds: int) -> dict[str, Any]:
    return {
        # Any metric that each pod of the role has: by it the adapter finds out where there are values.
        "seriesQuery": f'{VllmMetric.KV_USAGE}{{{LABEL_NAME}!="",{LABEL_ROLE}="{role}"}}',
        "resources": {"overrides": {LABEL_NAMESPACE: {"resource": "namespace"}}},
        "name": {"as": adapter_metric(signal, role)},
        "metricsQuery": Query(signal, role, _MATCHERS, window_seconds).promql(),
    }
