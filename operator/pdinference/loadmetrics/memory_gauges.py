"""Gauges of the memory plan of a resource: weights and KV cache of a device of each role.

Tests: tests/runtime/test_load_monitor.py
"""

from collections.abc import Iterator
from typing import Final

from pdinference.api.names import ENGINE_ROLES
from pdinference.api.v1alpha1.status import PlanStatus
from pdinference.loadmetrics.objective_gauges import GaugeSample
from pdinference.planning.scaling.gauges import LABEL_ROLE

_WEIGHTS: Final = "pdinference_role_weights_bytes"
_KV_CACHE: Final = "pdinference_role_kv_cache_bytes"
HELP: Final = {
    _WEIGHTS: "Weights on one device of a role, as in status.plan. They are the same at any load.",
    _KV_CACHE: "Size of the KV cache of one device of a role, as in status.plan.",
}
"""The gauges, and what they are."""


def memory_samples(plan: PlanStatus | None) -> Iterator[GaugeSample]:
    """The samples of one resource, without those of unknown values."""
    for role in ENGINE_ROLES:
        memory = getattr(plan, role, None)
        if memory is None:
            continue
        for metric, value in ((_WEIGHTS, memory.weights_bytes), (_KV_CACHE, memory.kv_bytes)):
            if value is not None:
                yield GaugeSample(metric, (LABEL_ROLE, role), value)
