"""Sleep in a reconcile (`scaleToZero`): whether P and D are to have no pods, and when to look again."""

from pdinference.cluster.cache import Cache
from pdinference.cluster.records import ResourceRecord
from pdinference.controller.desired import Desired
from pdinference.controller.scaling import asleep_now
from pdinference.planning.observed import WorkloadState
from pdinference.planning.scaling.sleep import Activity, next_look, sleeps


def sleeps_now(
    cache: Cache, resource: ResourceRecord, desired: Desired, router: WorkloadState | None, activity: Activity | None
) -> bool:
    """Whether P and D are to have no pods, because nobody asks."""
    if desired.sleeps_after is None:
        return False
    return sleeps(
        desired.sleeps_after,
        asleep=asleep_now(cache, resource, desired),
        settled=router is not None and router.complete and router.revision == desired.revision,
        activity=activity,
    )


def seconds_to_sleep(
    cache: Cache, resource: ResourceRecord, desired: Desired, activity: Activity | None
) -> float | None:
    """When a pair that is awake might be put to sleep; None when that is not to be expected."""
    if desired.sleeps_after is None or asleep_now(cache, resource, desired):
        return None
    return next_look(desired.sleeps_after, activity)
