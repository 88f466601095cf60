"""Earlier maximums of HPAs, by which they may still act: an HPA does not say what it has seen of its spec.

Nor which workload it scales: for a while after it was told to follow another one, it may still change the one before.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

from pdinference.planning.observed import AutoscalerState, Grant

SETTLE: Final = timedelta(seconds=60)
"""How long an HPA may act by what it was told before: four of its controller's rounds. HPAs do not say what they have
seen (Kubernetes 1.34 never sets their observedGeneration)."""


def grant_for(
    hpa: AutoscalerState | None, workload: str, maximum: int, now: datetime, settle: timedelta = SETTLE
) -> Grant | None:
    """What an HPA is to carry when it gets this workload and this maximum; as it is while both stay."""
    if hpa is None:
        return None
    if maximum >= hpa.maximum and workload == hpa.workload:
        return hpa.grant
    until = (now + settle).replace(microsecond=0) + timedelta(seconds=1)
    return Grant(highest_maximum(hpa, now), until)


def highest_maximum(hpa: AutoscalerState | None, now: datetime) -> int:
    """By how high a maximum an HPA may still act on what it follows."""
    return max(hpa.maximum, earlier_maximum(hpa, now)) if hpa else 0


def earlier_maximum(hpa: AutoscalerState | None, now: datetime) -> int:
    """By how high a maximum an HPA may still act on what it followed before; 0 when it no longer can."""
    return max((grant.maximum for grant in open_grants([hpa], now)), default=0)


def open_grants(hpas: Iterable[AutoscalerState | None], now: datetime) -> tuple[Grant, ...]:
    """Those that still count."""
    return tuple(hpa.grant for hpa in hpas if hpa is not None and hpa.grant is not None and hpa.grant.until > now)
