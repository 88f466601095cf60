"""Gauges of how long the pods of a role take to start.

Tests: tests/runtime/test_load_monitor.py
"""

from collections.abc import Iterator
from typing import Final

from pdinference.api.names import ENGINE_ROLES, Role
from pdinference.api.v1alpha1.status import RolesStatus, RoleStatus
from pdinference.loadmetrics.objective_gauges import GaugeSample
from pdinference.planning.scaling.gauges import LABEL_ROLE

_LAST: Final = "pdinference_role_last_start_seconds"
_TYPICAL: Final = "pdinference_role_typical_start_seconds"
_SCHEDULING: Final = "pdinference_role_start_scheduling_seconds"
_PREPARATION: Final = "pdinference_role_start_preparation_seconds"
_ENGINE: Final = "pdinference_role_start_engine_seconds"
HELP: Final = {
    _LAST: "Seconds from the creation of a role's last pod until it was ready, as in status.roles.",
    _TYPICAL: "The same, as a mean in which later pods count more.",
    _SCHEDULING: "Of that mean: until pods had a node.",
    _PREPARATION: "Of that mean: from then on until vLLM's container started, with images, volumes and the model.",
    _ENGINE: "Of that mean: from then on until they were ready.",
}
"""The gauges, and what they are."""


def typical_start_seconds(roles: RolesStatus, role: Role) -> float | None:
    """How long pods of a role take until they are ready; None if no start was seen."""
    status: RoleStatus = getattr(roles, role)
    return None if status.start is None else status.start.typical_seconds


def start_samples(roles: RolesStatus) -> Iterator[GaugeSample]:
    """The samples of one resource; none of a role without a start."""
    for role in ENGINE_ROLES:
        status: RoleStatus = getattr(roles, role)
        if status.start is not None:
            yield GaugeSample(_LAST, (LABEL_ROLE, role), status.start.last_seconds)
            yield GaugeSample(_TYPICAL, (LABEL_ROLE, role), status.start.typical_seconds)
            if (phases := status.start.typical_phases) is not None:
                yield GaugeSample(_SCHEDULING, (LABEL_ROLE, role), phases.scheduling)
                yield GaugeSample(_PREPARATION, (LABEL_ROLE, role), phases.preparation)
                yield GaugeSample(_ENGINE, (LABEL_ROLE, role), phases.engine)
