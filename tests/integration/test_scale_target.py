"""What the real HPA controller does with a PDScaler whose status differs from its spec (docs/adr/0001)."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pdinference.cluster.kinds import AUTOSCALER, POD
from tests.integration.external_metrics import ExternalMetrics
from tests.integration.scale_target import AT_ONCE, NAME, ONE_AT_A_TIME, ScaleTarget
from tests.integration.scaling_world import hpa_looks
from tests.integration.world import World


@pytest.fixture
async def target(world: World, tmp_path: Path) -> AsyncIterator[ScaleTarget]:
    async with ExternalMetrics(world, tmp_path) as metrics:
        target = ScaleTarget(world, metrics)
        yield target
        for item in (await world.api.get(AUTOSCALER.path(world.namespace)))["items"]:
            await world.delete(AUTOSCALER, item["metadata"]["name"])


class TestFewerPodsThanRecommended:
    """Limited by a GPU budget: `status.replicas` is 3, whatever is recommended."""

    async def test_more_load_raises_the_recommendation_alone(self, target: ScaleTarget) -> None:
        await target.create(3)
        await target.report(3)
        target.load("8")
        await target.scale()
        await target.recommends(8)
        await target.stays(8)
        assert (await target.hpa())["status"]["desiredReplicas"] == 8

    async def test_load_that_fits_the_pods_lowers_it_to_their_count(self, target: ScaleTarget) -> None:
        """Within the tolerance, the answer is status.replicas; above it, what the whole load needs."""
        await target.create(8)
        await target.report(3)
        target.load("3.2")
        await target.scale()
        await target.recommends(3)
        target.load("3.4")
        await target.recommends(4)
        target.load("1.5")
        await target.recommends(2)


async def test_a_value_within_its_tolerance_keeps_what_was_recommended(target: ScaleTarget) -> None:
    """Of a target of type Value, as of CPU utilisation, the count in question is spec.replicas, not the pods."""
    external = {"metric": {"name": "load"}, "target": {"type": "Value", "value": "100"}}
    await target.create(8)
    await target.report(3)
    target.load("105")
    await target.scale(metrics=[{"type": "External", "external": external}])
    await target.says("ScalingActive", "ValidMetricFound")
    await target.stays(8)
    await target.recommend(3)
    await target.stays(3)


async def test_more_pods_than_recommended_change_no_recommendation(target: ScaleTarget) -> None:
    """The ratio pulls pods along: the load of all pods is what counts, and the pods only for the tolerance."""
    await target.create(2)
    await target.report(5)
    target.load("2")
    await target.scale()
    await target.stays(2)
    target.load("2.5")
    await target.recommends(3)
    target.load("4.6")
    await target.recommends(5)


class TestAsleep:
    """No pods (`status.replicas` 0), and at least one recommended."""

    async def test_without_a_metric_nothing_is_written(self, target: ScaleTarget) -> None:
        await target.create(1)
        await target.report(0)
        await target.scale()
        await target.says("ScalingActive", "FailedGetExternalMetric")
        await target.stays(1)

    async def test_no_load_keeps_the_minimum(self, target: ScaleTarget) -> None:
        await target.create(1)
        await target.report(0)
        target.load("0")
        await target.scale()
        await target.says("ScalingActive", "ValidMetricFound")
        await target.stays(1)
        (current,) = (await target.hpa())["status"]["currentMetrics"]
        assert current["external"]["current"]["averageValue"] == "-9223372036854775808m", "divided by no pods"

    async def test_load_raises_the_recommendation_and_starts_no_pod(self, target: ScaleTarget) -> None:
        await target.create(1)
        await target.report(0)
        target.load("2")
        await target.scale()
        await target.recommends(2)
        await target.recommend(1)
        target.load("0")
        await target.says("ScalingActive", "ValidMetricFound")

    async def test_a_recommendation_of_none_turns_the_hpa_off(self, target: ScaleTarget) -> None:
        await target.create(0)
        await target.report(0)
        target.load("5")
        await target.scale()
        await target.says("ScalingActive", "ScalingDisabled")
        await target.stays(0)
        await target.recommend(1)
        await target.recommends(5)


class TestRates:
    """Rate policies count from the recommendation, not from the pods."""

    async def test_a_limited_role_works_off_what_it_never_had(self, target: ScaleTarget) -> None:
        await target.create(8)
        await target.report(3)
        target.load("8")
        await target.scale(behavior={"scaleUp": AT_ONCE, "scaleDown": ONE_AT_A_TIME})
        await target.says("ScalingActive", "ValidMetricFound")
        target.load("2")
        assert await target.steps(2) == [8, 7, 6, 5, 4, 3, 2]

    async def test_a_lower_maximum_takes_it_down_at_once(self, target: ScaleTarget) -> None:
        await target.create(8)
        await target.report(3)
        target.load("8")
        await target.scale(maxReplicas=4, behavior={"scaleUp": AT_ONCE, "scaleDown": ONE_AT_A_TIME})
        await target.recommends(4)
        target.load("2")
        assert await target.steps(2) == [4, 3, 2]

    async def test_a_count_that_another_writes_is_where_the_hpa_goes_on(self, target: ScaleTarget) -> None:
        """So the operator could trim the recommendation once it falls: what is still needed is recommended again."""
        await target.create(8)
        await target.report(3)
        target.load("8")
        await target.scale(behavior={"scaleUp": AT_ONCE, "scaleDown": ONE_AT_A_TIME})
        await target.says("ScalingActive", "ValidMetricFound")
        target.load("6.5")
        await target.recommends(7)
        await target.recommend(3)
        await target.recommends(7)
        target.load("2")
        await target.recommend(3)
        assert set(await target.steps(2)) <= {3, 2}

    async def test_the_window_holds_the_largest_recommendation(self, target: ScaleTarget) -> None:
        window = {"stabilizationWindowSeconds": 8, "policies": AT_ONCE["policies"]}
        await target.create(8)
        await target.report(3)
        target.load("8")
        await target.scale(behavior={"scaleUp": AT_ONCE, "scaleDown": window})
        await target.says("ScalingActive", "ValidMetricFound")
        target.load("2")
        await target.says("AbleToScale", "ScaleDownStabilized")
        assert await target.steps(2) == [8, 2]


async def test_a_rollout_is_other_pods_behind_the_same_target(target: ScaleTarget) -> None:
    await target.create(3)
    await target.report(3, "r1")
    target.load("3")
    await target.scale()
    await target.says("ScalingActive", "ValidMetricFound")
    await target.report(3, "r2")
    await target.stays(3)
    await target.report(2, "r2")
    await target.stays(3)
    await target.says("ScalingActive", "ValidMetricFound")


class TestIncomplete:
    """A scaler before the operator has written to it."""

    async def test_without_a_count_there_is_no_scale(self, target: ScaleTarget) -> None:
        await target.create()
        target.load("3")
        await target.scale()
        said = await target.says("AbleToScale", "FailedGetScale")
        assert 'the spec replicas field ".spec.replicas" does not exist' in said["message"]
        await hpa_looks(target.world, 2)
        assert await target.recommended() is None

    async def test_without_a_selector_nothing_is_recommended(self, target: ScaleTarget) -> None:
        await target.create(1)
        target.load("3")
        await target.scale()
        await target.says("ScalingActive", "InvalidSelector")
        await target.stays(1)
        await target.report(1)
        await target.recommends(3)

    async def test_two_hpas_stop_each_other_once_there_are_pods(self, target: ScaleTarget) -> None:
        await target.create(1)
        await target.report(1)
        target.load("1")
        await target.scale()
        await target.scale("another")
        metadata = {"name": "pod", "labels": {"pdinference.io/revision": "r1"}}
        spec = {"containers": [{"name": "vllm", "image": "example/vllm"}]}
        await target.world.api.create(POD.path(target.world.namespace), {"metadata": metadata, "spec": spec})
        for name in (NAME, "another"):
            await target.says("ScalingActive", "AmbiguousSelector", name)
