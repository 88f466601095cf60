"""`status.transfer`: the numbers of the KV transfer, rounded, and when they are worth a write.

Tests: tests/planning/test_transfer_measurements.py
"""

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final, Literal

from pdinference.api.v1alpha1.status import TransferStatus, VerificationStatus
from pdinference.memory.link_speeds import GIGA
from pdinference.planning.status.figures import appeared, figures, is_far
from pdinference.planning.transfer_measurements import Path, Rates, TransferFacts

_OLDEST_S: Final = 1e9
_POINTS: Final = 10
_RATIO: Final = 1.3


def transfer_numbers(
    facts: TransferFacts, found: Rates | None, path: Path, known: TransferStatus | None, now: datetime
) -> TransferStatus:
    """The numbers to write; those of the last window with requests if there are none now."""
    fresh: dict[str, Any] = {
        "revision": facts.revision,
        "observed_time": now.replace(microsecond=0),
        "verification": VerificationStatus(
            state=facts.canary.state,
            revision=facts.canary.revision,
            decode_pod=facts.canary.decode,
            parameter_pod=facts.canary.parameter,
            completion_time=_ago(facts.canary.age, now),
            prompt_tokens=_whole(facts.canary.tokens),
            distance=figures(facts.canary.distance),
            limit=figures(facts.canary.limit),
        ),
    }
    if found is None:
        return (known or TransferStatus()).model_copy(update=fresh)
    return TransferStatus(
        **fresh,
        path=known.path if known else "",
        path_reason=known.path_reason if known else "",
        from_parameter_percent=round(100 * found.from_parameter),
        by_decode_percent=round(100 * found.by_decode),
        failed_percent=_small(found.failed),
        expired_percent=_small(found.expired),
        gigabytes_per_second=figures(found.speed, GIGA),
        carried_gigabytes_per_second=figures(found.carried, GIGA),
        asked_gigabytes_per_second=figures(found.asked, GIGA),
        gigabytes_per_transfer=figures(found.size, GIGA),
        concurrent_transfers=figures(found.under_way),
        busy_percent=None if found.busy is None else round(100 * found.busy),
        first_token_percent=None if found.of_first_token is None else round(100 * found.of_first_token),
        inferred_transport=_transport(found, path),
    )


def has_moved(fresh: TransferStatus, known: TransferStatus) -> bool:
    """Whether numbers differ so far from the written ones that they are written again."""
    if fresh.path_reason != known.path_reason or _found(fresh.verification) != _found(known.verification):
        return True
    return any(far(getattr(known, name), getattr(fresh, name)) for name, far in _DISTANCES.items())


def _found(verification: VerificationStatus) -> tuple[str, str, str]:
    return verification.state, verification.decode_pod, verification.parameter_pod


def _far_in_points(old: float | None, new: float | None) -> bool:
    return appeared(old, new) or abs((old or 0) - (new or 0)) >= _POINTS


def _far_in_failures(old: float | None, new: float | None) -> bool:
    return appeared(old, new) or ((old or 0) > 0) != ((new or 0) > 0) or abs((old or 0) - (new or 0)) >= 1


def _far_in_ratio(old: float | None, new: float | None) -> bool:
    return is_far(old, new, _RATIO)


_DISTANCES: Final[Mapping[str, Callable[[float | None, float | None], bool]]] = {
    "from_parameter_percent": _far_in_points,
    "by_decode_percent": _far_in_points,
    "failed_percent": _far_in_failures,
    "expired_percent": _far_in_failures,
    "gigabytes_per_second": _far_in_ratio,
    "busy_percent": _far_in_points,
    "first_token_percent": _far_in_points,
}
"""When a number has moved so far that it is written again."""


def _ago(seconds: float | None, now: datetime) -> datetime | None:
    """The time that is `seconds` ago; None if they are unknown, or longer than any router runs."""
    if seconds is None or not 0 <= seconds <= _OLDEST_S:
        return None
    return (now - timedelta(seconds=seconds)).replace(microsecond=0)


def _whole(number: float | None) -> int | None:
    return None if number is None else round(number)


def _small(share: float | None) -> float | None:
    """A share in percent, in steps of 0.1; not 0 if it is not 0."""
    return None if share is None else max(round(100 * share, 1), 0.1 if share > 0 else 0.0)


def _transport(found: Rates, path: Path) -> Literal["", "TCP", "NVLinkOrRDMA"]:
    """The transport that the speed leaves; empty where both are possible."""
    if not path.gpus:
        return ""
    limit = GIGA * path.fastest_tcp
    if found.speed is not None and found.speed > limit:
        return "NVLinkOrRDMA"
    return "TCP" if found.fastest is not None and found.fastest <= limit and not path.rdma else ""
