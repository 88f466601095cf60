"""Sleep in a reconcile (`scaleToZero`): whether P and D are to have no pods, and when to look again."""

from pdinference.examination.desired import Desired
from pdinference.planning.observed import WorkloadState
from pdinference.planning.scaling.sleep import Activity, next_look, sleeps


def sleeps_now(desired: Desired, router: WorkloadState | None, activity: Activity | None, *, asleep: bool) -> bool:
    """Whether P and D are to have no pods, because nobody asks."""
    if desired.sleeps_after is None:
        return False
    settled = router is not None and router.revision == desired.revision and _settled(router, asleep=asleep)
    return sleeps(desired.sleeps_after, asleep=asleep, settled=settled, activity=activity)


def _settled(router: WorkloadState, *, asleep: bool) -> bool:
    """Whether no router pod waits for a pair; of a pair that sleeps, as far as Kubernetes has looked.

    A change that makes no router pod, as that of their number to a lower one, starts no pair either.
    """
    if not asleep:
        return router.complete
    return not router.observed or 0 < router.replicas == router.updated == router.available


def seconds_to_sleep(desired: Desired, activity: Activity | None, *, asleep: bool) -> float | None:
    """When a pair that is awake might be put to sleep; None when that is not to be expected."""
    if desired.sleeps_after is None or asleep:
        return None
    return next_look(desired.sleeps_after, activity)
