"""How long pods took to start: the last one, and what is typical.

Tests: tests/planning/test_starts.py
"""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

from pdinference.api.names import ENGINE_ROLES, Role
from pdinference.api.v1alpha1.status import RolesStatus, RoleStatus, StartStatus, Status
from pdinference.planning.observed import PodSummary

_LATELY: Final = timedelta(minutes=10)
_WEIGHT: Final = 0.3
"""Of the last start in what is typical."""


def start_status(
    pods: Iterable[PodSummary], role: Role, previous: StartStatus | None, now: datetime
) -> StartStatus | None:
    """The starts of a role, with pods that are ready and were created after the one that was counted last.

    Each pod counts once, and only soon after it became ready: later the time of its condition may be that of a pause.

    Args:
        pods: All live pods of the resource, of any revision.
        role: The role. Of an instance of several nodes, the first node counts.
        previous: What was known before; it stays while there are no pods.
        now: The present time.
    """
    found = sorted(
        (datetime.fromisoformat(pod.created), datetime.fromisoformat(pod.ready_since))
        for pod in pods
        if pod.role is role and pod.node_rank == 0 and pod.created and pod.ready_since and not pod.restarted
    )
    known = previous
    for created, ready in found:
        if now - ready < _LATELY and (known is None or created > known.pod_creation_time):
            seconds = max(0, round((ready - created).total_seconds()))
            typical = seconds if known is None else known.typical_seconds + _WEIGHT * (seconds - known.typical_seconds)
            known = StartStatus(pod_creation_time=created, last_seconds=seconds, typical_seconds=round(typical))
    return known


def with_starts(roles: RolesStatus, pods: Iterable[PodSummary], previous: Status, now: datetime) -> RolesStatus:
    """The status of the roles with the starts of P and of D."""
    known = tuple(pods)
    changes = {}
    for role in ENGINE_ROLES:
        before: RoleStatus = getattr(previous.roles, role)
        changes[role.value] = getattr(roles, role).model_copy(
            update={"start": start_status(known, role, before.start, now)}
        )
    return roles.model_copy(update=changes)


def typical_start(roles: RolesStatus) -> int | None:
    """Seconds until P and D are ready, which start together; None if that is not known."""
    found = [
        status.start.typical_seconds for role in ENGINE_ROLES if (status := getattr(roles, role)).start is not None
    ]
    return max(found, default=None)
