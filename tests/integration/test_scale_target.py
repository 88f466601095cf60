"""What the real HPA controller does with a PDScaler whose status differs from its spec (docs/adr/0001)."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from pdinference.cluster.kinds import POD
from tests.integration.external_metrics import ExternalMetrics
from tests.integration.scale_target import ScaleTarget
from tests.integration.scaling_world import QUICK, hpa_looks
from tests.integration.world import World

Claim = Callable[[ScaleTarget], Coroutine[Any, Any, None]]
CLAIMS: list[Claim] = []
ONE_AT_A_TIME = {
    "stabilizationWindowSeconds": 0,
    "policies": [{"type": "Pods", "value": 1, "periodSeconds": 3}],
}


def claim(holds: Claim) -> Claim:
    """One more claim, to be checked on a PDScaler of its own."""
    CLAIMS.append(holds)
    return holds


async def test_all_claims_about_the_hpa_controller_hold(world: World, tmp_path: Path) -> None:
    """All at once, because each one waits for the controller most of the time."""
    async with ExternalMetrics(world, tmp_path) as metrics, asyncio.TaskGroup() as checks:
        for holds in CLAIMS:
            name = holds.__name__.replace("_", "-")
            checks.create_task(holds(ScaleTarget(world, metrics, name)), name=name)


@claim
async def more_load_than_pods_raises_the_recommendation_alone(target: ScaleTarget) -> None:
    """Limited by a GPU budget: `status.replicas` is 3, whatever is recommended."""
    await target.create(3, pods=3)
    await target.scale("8")
    await target.recommends(8)
    await target.stays(8)
    assert (await target.hpa())["status"]["desiredReplicas"] == 8


@claim
async def load_that_fits_the_pods_lowers_it_to_their_count(target: ScaleTarget) -> None:
    """Within the tolerance, the answer is status.replicas; above it, what the whole load needs."""
    await target.create(8, pods=3)
    await target.scale("3.2")
    await target.recommends(3)
    target.load("3.4")
    await target.recommends(4)
    target.load("1.5")
    await target.recommends(2)


@claim
async def a_value_within_its_tolerance_keeps_what_was_recommended(target: ScaleTarget) -> None:
    """Of a target of type Value, as of CPU utilisation, the count in question is spec.replicas, not the pods."""
    external = {"metric": {"name": target.name}, "target": {"type": "Value", "value": "100"}}
    await target.create(8, pods=3)
    await target.scale("105", metrics=[{"type": "External", "external": external}])
    await target.sees()
    await target.stays(8)
    await target.recommend(3)
    await target.stays(3)


@claim
async def more_pods_than_recommended_change_no_recommendation(target: ScaleTarget) -> None:
    """The ratio pulls pods along: the load of all pods is what counts, and the pods only for the tolerance."""
    await target.create(2, pods=5)
    await target.scale("2")
    await target.stays(2)
    target.load("2.5")
    await target.recommends(3)
    target.load("4.6")
    await target.recommends(5)


@claim
async def asleep_nothing_is_written_without_a_metric(target: ScaleTarget) -> None:
    await target.create(1, pods=0)
    await target.scale()
    await target.says("ScalingActive", "FailedGetExternalMetric")
    await target.stays(1)


@claim
async def asleep_no_load_keeps_the_minimum(target: ScaleTarget) -> None:
    await target.create(1, pods=0)
    await target.scale("0")
    await target.sees()
    await target.stays(1)
    (current,) = (await target.hpa())["status"]["currentMetrics"]
    assert current["external"]["current"]["averageValue"] == "-9223372036854775808m", "divided by no pods"


@claim
async def asleep_load_raises_the_recommendation(target: ScaleTarget) -> None:
    await target.create(1, pods=0)
    await target.scale("2")
    await target.recommends(2)
    await target.recommend(1)
    target.load("0")
    await target.sees()


@claim
async def a_recommendation_of_none_turns_the_hpa_off(target: ScaleTarget) -> None:
    await target.create(0, pods=0)
    await target.scale("5")
    await target.says("ScalingActive", "ScalingDisabled")
    await target.stays(0)
    await target.recommend(1)
    await target.recommends(5)


@claim
async def at_a_rate_a_limited_role_works_off_what_it_never_had(target: ScaleTarget) -> None:
    """Rate policies count from the recommendation, not from the pods."""
    await target.create(8, pods=3)
    await target.scale("8", behavior={**QUICK, "scaleDown": ONE_AT_A_TIME})
    await target.sees()
    assert await target.steps(2, load="2") == [8, 7, 6, 5, 4, 3, 2]


@claim
async def a_lower_maximum_takes_it_down_at_once(target: ScaleTarget) -> None:
    await target.create(8, pods=3)
    await target.scale("8", maxReplicas=4, behavior={**QUICK, "scaleDown": ONE_AT_A_TIME})
    await target.recommends(4)
    assert await target.steps(2, load="2") == [4, 3, 2]


@claim
async def a_count_that_another_writes_is_where_the_hpa_goes_on(target: ScaleTarget) -> None:
    """So the operator could trim the recommendation once it falls: what is still needed is recommended again."""
    await target.create(8, pods=3)
    await target.scale("8", behavior={**QUICK, "scaleDown": ONE_AT_A_TIME})
    await target.sees()
    target.load("6.5")
    await target.recommends(7)
    await target.recommend(3)
    await target.recommends(7)
    target.load("2")
    await target.recommend(3)
    assert set(await target.steps(2)) <= {3, 2}


@claim
async def the_window_holds_the_largest_recommendation(target: ScaleTarget) -> None:
    await target.create(8, pods=3)
    await target.scale("8", behavior={**QUICK, "scaleDown": {**QUICK["scaleDown"], "stabilizationWindowSeconds": 8}})
    await target.sees()
    target.load("2")
    await target.says("AbleToScale", "ScaleDownStabilized")
    assert await target.steps(2) == [8, 2]


@claim
async def a_rollout_is_other_pods_behind_the_same_target(target: ScaleTarget) -> None:
    await target.create(3, pods=3)
    await target.scale("3")
    await target.sees()
    await target.report(3, "r2")
    await target.stays(3)
    await target.report(2, "r2")
    await target.stays(3)
    await target.sees()


@claim
async def without_a_count_there_is_no_scale(target: ScaleTarget) -> None:
    """A PDScaler before the operator has written to it."""
    await target.create()
    await target.scale("3")
    await target.says("AbleToScale", "FailedGetScale", 'the spec replicas field ".spec.replicas" does not exist')
    await hpa_looks(target.world, 2)
    assert await target.recommended() is None


@claim
async def without_a_selector_nothing_is_recommended(target: ScaleTarget) -> None:
    await target.create(1)
    await target.scale("3")
    await target.says("ScalingActive", "InvalidSelector")
    await target.stays(1)
    await target.report(1)
    await target.recommends(3)


@claim
async def two_hpas_stop_each_other_once_there_are_pods(target: ScaleTarget) -> None:
    await target.create(1, pods=1)
    await target.scale("1")
    await target.scale("1", name="another")
    labels = {"pdinference.io/name": target.name, "pdinference.io/revision": "r1"}
    spec = {"containers": [{"name": "vllm", "image": "example/vllm"}]}
    body = {"metadata": {"name": "pod", "labels": labels}, "spec": spec}
    await target.world.api.create(POD.path(target.world.namespace), body)
    for name in (target.name, "another"):
        await target.says("ScalingActive", "AmbiguousSelector", name=name)
