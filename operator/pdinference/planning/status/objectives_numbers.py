"""`status.objectives`: how far requests kept the objectives, rounded, and when the numbers are worth a write.

Tests: tests/planning/test_objectives.py
"""

import math
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final

from pdinference.api.names import Role
from pdinference.api.v1alpha1.status import AttainmentStatus, ObjectivesStatus, RoleUseStatus
from pdinference.planning.objectives import Attainment, Kind
from pdinference.planning.status.figures import figures, is_far
from pdinference.planning.status.inputs import StatusInputs
from pdinference.planning.utilization import Limit, RoleUse

_POINTS: Final = 10
"""Percentage points of a role's use."""
_RATIO: Final = 1.5


def objectives_numbers(
    found: Mapping[Kind, Attainment],
    inputs: StatusInputs,
    known: ObjectivesStatus | None,
    now: datetime,
    limit: Limit,
) -> ObjectivesStatus:
    """The numbers to write; those of the last minutes with requests if there are none now.

    Args:
        found: How far each was kept; empty without requests.
        inputs: The objectives, and the observed state.
        known: The numbers as last written for the same objectives; None if there are none.
        now: The time.
        limit: What limits.
    """
    stated = "" if inputs.desired.objectives is None else inputs.desired.objectives.stated
    if not found:
        at_rest = known or ObjectivesStatus(stated=stated)
        return at_rest.model_copy(update={"observed_time": now.replace(microsecond=0), "limit": ""})
    streams, use = inputs.observations.streams, inputs.observations.utilization
    seconds = streams.seconds if streams is not None else 0.0
    return ObjectivesStatus(
        stated=stated,
        since=(now - timedelta(seconds=seconds)).replace(microsecond=0),
        observed_time=now.replace(microsecond=0),
        requests=round(min(2**53, max(one.requests for one in found.values()))),
        ttft=_attainment(found.get("ttft")),
        tpot=_attainment(found.get("tpot")),
        limit=limit,
        parameter=_use(use.roles.get(Role.PARAMETER)),
        decode=_use(use.roles.get(Role.DECODE)),
        cost_per_million_tokens=figures(use.cost_per_million),
    )


def has_moved(fresh: ObjectivesStatus, known: ObjectivesStatus) -> bool:
    """Whether numbers differ so far from the written ones that they are written again."""
    return (
        _attained_otherwise(fresh.ttft, known.ttft)
        or _attained_otherwise(fresh.tpot, known.tpot)
        or _used_otherwise(fresh.parameter, known.parameter)
        or _used_otherwise(fresh.decode, known.decode)
        or is_far(known.cost_per_million_tokens, fresh.cost_per_million_tokens, _RATIO)
    )


def _attained_otherwise(fresh: AttainmentStatus | None, known: AttainmentStatus | None) -> bool:
    if fresh is None or known is None:
        return fresh is not None
    less, more = sorted((100 - fresh.kept_percent, 100 - known.kept_percent))
    return more > _RATIO * less + 1 or is_far(known.milliseconds, fresh.milliseconds, _RATIO)


def _used_otherwise(fresh: RoleUseStatus | None, known: RoleUseStatus | None) -> bool:
    if fresh is None or known is None:
        return fresh is not None
    if fresh.busy_percent is not None and known.busy_percent is None:
        return True
    moved = abs((fresh.busy_percent or 0) - (known.busy_percent or 0))
    return (fresh.busy_percent is not None and moved >= _POINTS) or is_far(
        known.tokens_per_second_per_gpu, fresh.tokens_per_second_per_gpu, _RATIO
    )


def _attainment(found: Attainment | None) -> AttainmentStatus | None:
    if found is None:
        return None
    measured = None if found.seconds is None else figures(1000 * found.seconds)
    # Rounded down, so that it says 100 only if all requests kept it.
    return AttainmentStatus(kept_percent=max(0.0, math.floor(10_000 * found.kept) / 100), milliseconds=measured)


def _use(use: RoleUse | None) -> RoleUseStatus | None:
    if use is None:
        return None
    return RoleUseStatus(
        busy_percent=None if use.busy is None else round(100 * min(1.0, max(0.0, use.busy))),
        tokens_per_second_per_gpu=figures(use.tokens_per_gpu),
    )
