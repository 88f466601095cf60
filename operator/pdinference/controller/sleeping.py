"""Sleep in a reconcile (`scaleToZero`): whether P and D are to have no pods, and when to look again."""

from pdinference.controller.desired import Desired
from pdinference.planning.observed import WorkloadState
from pdinference.planning.scaling.sleep import Activity, next_look, sleeps


def sleeps_now(desired: Desired, router: WorkloadState | None, activity: Activity | None, *, asleep: bool) -> bool:
    """Whether P and D are to have no pods, because nobody asks."""
    if desired.sleeps_after is None:
        return False
    return sleeps(
        desired.sleeps_after,
        asleep=asleep,
        settled=router is not None and router.complete and router.revision == desired.revision,
        activity=activity,
    )


def seconds_to_sleep(desired: Desired, activity: Activity | None, *, asleep: bool) -> float | None:
    """When a pair that is awake might be put to sleep; None when that is not to be expected."""
    if desired.sleeps_after is None or asleep:
        return None
    return next_look(desired.sleeps_after, activity)
