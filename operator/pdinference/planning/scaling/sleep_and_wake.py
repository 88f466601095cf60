"""Scale to zero (`spec.autoscaling.scaleToZero`): when P and D have no pods.

The replica counts are the only state: P and D are asleep if they have no replicas. This survives operator restarts.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ReportedActivity:
    """The requests of a resource, as all its router pods report them.

    Attributes:
        held: Whether requests wait for pods.
        idle_seconds: Time since the last request; 0 while one is in progress.
    """

    held: bool
    idle_seconds: float


def sleeps(after_seconds: float, *, asleep: bool, settled: bool, activity: ReportedActivity | None) -> bool:
    """Whether P and D scale to zero, or stay there.

    Args:
        after_seconds: Time without a request before P and D scale to zero.
        asleep: Whether they have no pods now.
        settled: Whether every router pod is of the target revision, and ready. A new router pod becomes ready only with
            a ready P and D pod of its revision.
        activity: The requests; None when unknown, which changes nothing.
    """
    if not settled:
        return False
    if activity is None:
        return asleep
    if asleep:
        return not activity.held
    return not activity.held and activity.idle_seconds >= after_seconds


def seconds_until_sleep(after_seconds: float, activity: ReportedActivity | None) -> float | None:
    """Seconds until P and D may scale to zero; None when the requests are unknown."""
    return None if activity is None else max(1.0, after_seconds - activity.idle_seconds)
