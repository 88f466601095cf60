"""Why an HPA changed a number of pods: it changes the number first, and tells the load that it saw a moment later."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from pdinference.api.names import Role
from pdinference.planning.observed import AutoscalerState, WorkloadState
from pdinference.planning.scaling.condition import loads_text

_SOON: Final = timedelta(seconds=1)
"""Within this time an HPA tells; a number that a person changed has no reason that anybody tells."""


@dataclass(frozen=True, slots=True)
class Change:
    """A number of pods that the status does not tell yet, and when it was noticed.

    Attributes:
        counts: The number of each role that has changed.
    """

    counts: Mapping[Role, int]
    noticed: datetime

    def waits_until(self, now: datetime) -> datetime | None:
        """How long its reason is worth waiting for; None when it has been long enough, or the clock was put back."""
        until = self.noticed + _SOON
        return until if self.noticed <= now < until else None


def unexplained(
    hpas: Mapping[Role, AutoscalerState | None], workloads: Mapping[Role, WorkloadState], told: Mapping[Role, int]
) -> dict[Role, int]:
    """The numbers of pods that changed and that the HPA, which sees the load, does not speak of yet.

    Args:
        hpas: The live HPA of each autoscaled role.
        workloads: What the status is about.
        told: The numbers in the status so far.
    """
    followed = {role: (hpa, workloads[role].desired) for role, hpa in _following(hpas, workloads).items()}
    return {
        role: count
        for role, (hpa, count) in followed.items()
        if count != told[role] and hpa.sees and hpa.desired not in {None, count}
    }


def reasons(hpas: Mapping[Role, AutoscalerState | None], workloads: Mapping[Role, WorkloadState]) -> dict[Role, str]:
    """The loads that made HPAs decide on the numbers of pods that there are, where their last look was that one."""
    return {
        role: loads_text(hpa)
        for role, hpa in _following(hpas, workloads).items()
        if any(load.tenths is not None for load in hpa.loads) and hpa.desired == workloads[role].desired != hpa.replicas
    }


def _following(
    hpas: Mapping[Role, AutoscalerState | None], workloads: Mapping[Role, WorkloadState]
) -> dict[Role, AutoscalerState]:
    """HPAs of these very workloads."""
    return {
        role: hpa
        for role, hpa in hpas.items()
        if hpa is not None and role in workloads and workloads[role].name == hpa.workload
    }
