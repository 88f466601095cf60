"""When P and D have no pods (`spec.autoscaling.scaleToZero`).

There is no state besides the number of pods: a pair without pods sleeps. So it does after the operator was away, too.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Activity:
    """What all router pods of a resource tell of its requests.

    Attributes:
        held: Whether requests wait for pods.
        idle_seconds: Time since the last request; 0 while there is one.
    """

    held: bool
    idle_seconds: float


def sleeps(after_seconds: float, *, asleep: bool, settled: bool, activity: Activity | None) -> bool:
    """Whether P and D are to have no pods.

    Args:
        after_seconds: How long no request may have come before.
        asleep: Whether they have none now.
        settled: Whether every router pod is of the wanted revision, and ready. One that is not, has never had a P and a
            D pod to send requests to, and gets ready only with those.
        activity: What is known of the requests; None changes nothing.
    """
    if not settled:
        return False
    if activity is None:
        return asleep
    if asleep:
        return not activity.held
    return not activity.held and activity.idle_seconds >= after_seconds


def seconds_until_sleep(after_seconds: float, activity: Activity | None) -> float | None:
    """After how many seconds a pair that is awake might be put to sleep; None when its requests are not known."""
    return None if activity is None else max(1.0, after_seconds - activity.idle_seconds)
