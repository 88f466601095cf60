"""How long pods took to start: the last one, and what is typical.

Tests: tests/planning/test_starts.py
"""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

from pdinference.api.names import ENGINE_ROLES, Role
from pdinference.api.v1alpha1.status import RolesStatus, RoleStatus, StartPhases, StartStatus, Status
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
    own = (
        pod
        for pod in pods
        if pod.role is role and pod.node_rank == 0 and pod.created and pod.ready_since and not pod.restarted
    )
    known = previous
    for pod in sorted(own, key=lambda pod: pod.created):
        created, ready = datetime.fromisoformat(pod.created), datetime.fromisoformat(pod.ready_since)
        if now - ready < _LATELY and (known is None or created > known.pod_creation_time):
            seconds, phases = _seconds(created, ready), _phases(pod, created, ready)
            known = StartStatus(
                pod_creation_time=created,
                last_seconds=seconds,
                typical_seconds=seconds if known is None else _mean(known.typical_seconds, seconds),
                last_phases=phases,
                typical_phases=_typical(None if known is None else known.typical_phases, phases),
            )
    return known


def _phases(pod: PodSummary, created: datetime, ready: datetime) -> StartPhases | None:
    """The phases of a ready pod, which make up its start; None if the times of some are not known."""
    if not pod.scheduled or not pod.engine_started:
        return None
    scheduled = min(max(created, datetime.fromisoformat(pod.scheduled)), ready)
    started = min(max(scheduled, datetime.fromisoformat(pod.engine_started)), ready)
    return StartPhases(
        scheduling=_seconds(created, scheduled),
        preparation=_seconds(scheduled, started),
        engine=_seconds(started, ready),
    )


def _typical(before: StartPhases | None, last: StartPhases | None) -> StartPhases | None:
    if before is None or last is None:
        return last or before
    return StartPhases(
        scheduling=_mean(before.scheduling, last.scheduling),
        preparation=_mean(before.preparation, last.preparation),
        engine=_mean(before.engine, last.engine),
    )


def _seconds(begin: datetime, end: datetime) -> int:
    return max(0, round((end - begin).total_seconds()))


def _mean(before: int, last: int) -> int:
    return round(before + _WEIGHT * (last - before))


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
