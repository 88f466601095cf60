"""Who scales may change; there are never two at it, none gets lost, and the pods stay."""

from collections.abc import Callable
from typing import Any

import pytest

from pdinference.api import names
from pdinference.api.names import Role
from pdinference.cluster.errors import ApiError
from pdinference.cluster.kinds import AUTOSCALER, CHILD_BY_NAME, DEPLOYMENT, SCALED_OBJECT, STATEFUL_SET
from pdinference.manifests import KedaSettings, RenderSettings
from pdinference.planning.scaling.condition import Measured
from pdinference.planning.scaling.sleep import Activity
from tests.controller.test_reconcile import World
from tests.controller.test_scaling import count, hpa_scales, serving

Json = dict[str, Any]
SCALED = {"replicas": 2, "autoscaling": {"maxReplicas": 6}}
HPA = AUTOSCALER.path("ns", "llama-decode")
KEDA = SCALED_OBJECT.path("ns", "llama-decode")
KEDAS_HPA = AUTOSCALER.path("ns", "keda-hpa-llama-decode")


@pytest.fixture
def world(document: Callable[..., Json]) -> World:
    return World(document(decode=SCALED), RenderSettings(keda=KedaSettings("http://prometheus:9090")))


def scalers(world: World) -> set[str]:
    return {path for path in (HPA, KEDA, KEDAS_HPA) if path in world.api.objects}


def external(number: int, **amount: Json) -> Json:
    """A metric of KEDA's HPA, which has the number of its trigger in its name."""
    return {"type": "External", "external": {"metric": {"name": f"s{number}-prometheus"}, **amount}}


def play_keda(world: World) -> None:
    """What KEDA does: it makes an HPA with our labels, and takes it away a moment after the ScaledObject is gone."""
    if KEDA in world.api.objects:
        scaled = world.api.objects[KEDA]
        owner = {"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject", "name": "llama-decode"}
        metadata = {
            "name": "keda-hpa-llama-decode",
            "namespace": "ns",
            "labels": scaled["metadata"]["labels"],
            "ownerReferences": [{**owner, "uid": scaled["metadata"]["uid"], "controller": True}],
        }
        thresholds = [trigger["metadata"]["threshold"] for trigger in scaled["spec"]["triggers"]]
        spec = {
            "scaleTargetRef": scaled["spec"]["scaleTargetRef"],
            "maxReplicas": 6,
            "metrics": [
                external(number, target={"type": "AverageValue", "averageValue": threshold})
                for number, threshold in enumerate(thresholds)
            ],
        }
        status = world.api.objects.get(KEDAS_HPA, {}).get("status", {})
        world.api.put(KEDAS_HPA, {"metadata": metadata, "spec": spec, "status": status})
    else:
        world.api.objects.pop(KEDAS_HPA, None)
    world.sync()


async def until_at_rest(world: World) -> list[set[str]]:
    """Reconcile until nothing is written any more; what scaled after each."""
    seen = []
    for _ in range(10):
        play_keda(world)
        result = await world.reconcile()
        seen.append(scalers(world))
        if not world.api.writes() and not result.retry:
            return seen
    raise AssertionError(f"it never rests: {seen}")


async def test_a_switch_to_keda_and_back_has_one_at_a_time_and_keeps_the_pods(world: World) -> None:
    first = await serving(world)
    hpa_scales(world, first, 5)
    assert scalers(world) == {HPA}
    world.edit(decode=SCALED, autoscaling={"source": "KEDA"})
    there = await until_at_rest(world)
    assert all(HPA not in found or KEDA not in found for found in there)
    assert there[-1] == {KEDA, KEDAS_HPA}
    assert world.api.objects[KEDA]["spec"]["scaleTargetRef"]["name"] == f"llama-decode-{first}"
    world.edit(decode=SCALED, autoscaling={"source": "Builtin"})
    back = await until_at_rest(world)
    assert all(HPA not in found or len(found) == 1 for found in back)
    assert back[-1] == {HPA}
    assert (world.status["revision"], count(world, first)) == (first, 5)


async def test_what_keda_scaled_is_told_without_a_load_that_nobody_knows(world: World) -> None:
    first = await serving(world)
    world.edit(decode=SCALED, autoscaling={"source": "KEDA"})
    await until_at_rest(world)
    hpa_scales(world, first, 5)
    await world.reconcile()
    (event,) = [b for p, b in world.api.objects.items() if "/events/" in p and b["reason"] == "ScaledUp"]
    assert event["note"] == "decode: 2 to 5 pods."


async def test_keda_itself_may_be_slow(world: World) -> None:
    """Its HPA is still there when the ScaledObject is gone: ours has to wait, and comes."""
    await serving(world)
    world.edit(decode=SCALED, autoscaling={"source": "KEDA"})
    await until_at_rest(world)
    world.edit(decode=SCALED)
    await world.reconcile()
    assert scalers(world) == {KEDAS_HPA}
    for _ in range(3):
        assert (await world.reconcile()).retry
        assert scalers(world) == {KEDAS_HPA}
    play_keda(world)
    assert (await until_at_rest(world))[-1] == {HPA}


@pytest.mark.parametrize("killed_at", [HPA, KEDA])
async def test_a_switch_may_be_interrupted_at_any_write(world: World, killed_at: str) -> None:
    await serving(world)
    world.edit(decode=SCALED, autoscaling={"source": "KEDA"})
    for verb in ("apply", "delete"):
        world.api.fail(verb, killed_at, ApiError(0, "Unreachable", "killed"))
    await world.reconcile()
    world.restart()
    assert (await until_at_rest(world))[-1] == {KEDA, KEDAS_HPA}


@pytest.mark.parametrize(
    ("source", "there"),
    [(None, {HPA}), ("Builtin", {HPA}), ("PrometheusAdapter", {HPA}), ("KEDA", {KEDA, KEDAS_HPA})],
)
async def test_each_source_has_its_own_kind_of_scaler(world: World, source: str | None, there: set[str]) -> None:
    """Whoever serves the API group of external metrics: nothing stands in."""
    world.edit(decode=SCALED, autoscaling={"source": source} if source else {})
    await serving(world)
    for problem in (None, ("MetricsApiElsewhere", "Another server has it.")):
        world.measured = Measured(problem=problem)
        assert (await until_at_rest(world))[-1] == there


async def test_upgrade_from_an_implicit_stand_in_keeps_the_count(world: World) -> None:
    """Before, KEDA scaled a resource without source where another server had the API group."""
    first = await serving(world)
    world.edit(decode=SCALED, autoscaling={"source": "KEDA"})
    await until_at_rest(world)
    hpa_scales(world, first, 5)
    world.edit(decode=SCALED)
    world.restart()
    assert (await until_at_rest(world))[-1] == {HPA}
    assert count(world, first) == 5


async def test_the_condition_says_what_keda_says(world: World) -> None:
    world.edit(decode=SCALED, autoscaling={"source": "KEDA"})
    await serving(world)
    await until_at_rest(world)
    assert world.condition("Autoscaling")["status"] == "Unknown"

    async def told(ready: Json, seen: Json, load: str = "450m") -> Json:
        world.api.put(KEDA, {**world.api.objects[KEDA], "status": {"conditions": [{"type": "Ready", **ready}]}})
        values = [external(number, current={"averageValue": value}) for number, value in enumerate((load, "400m"))]
        status = {"conditions": [{"type": "ScalingActive", **seen}], "currentMetrics": values}
        world.api.put(KEDAS_HPA, {**world.api.objects[KEDAS_HPA], "status": status})
        world.sync()
        await world.reconcile()
        return world.condition("Autoscaling")

    fine, blind = {"status": "True"}, {"status": "False", "reason": "NoMetric", "message": "no answer from Prometheus"}
    assert (await told(fine, fine))["status"] == "True"
    assert world.status["roles"][Role.DECODE]["scaling"] == "decodeLoad 45%/90%, kvUsage 40%/80%; 1-6 pods"
    unseen = await told(fine, blind)
    assert (unseen["status"], unseen["reason"]) == ("False", "NoMetric")
    assert "no answer from Prometheus" in unseen["message"]
    broken = await told({"status": "False", "reason": "Check", "message": "no such secret"}, fine)
    assert "no such secret" in broken["message"]
    del world.api.objects[KEDAS_HPA]
    world.sync()
    await world.reconcile()
    assert "no such secret" in world.condition("Autoscaling")["message"]


async def test_without_keda_in_the_cluster_the_condition_names_what_is_missing(world: World) -> None:
    world.edit(decode=SCALED, autoscaling={"source": "KEDA"})
    world.api.fail("apply", KEDA, *[ApiError(404, "NotFound", "the server could not find it")] * 5)
    await serving(world)
    progressing = world.condition("Progressing")
    assert progressing["reason"] == "NotServed"
    assert "Install KEDA" in progressing["message"]


async def test_an_operator_that_no_longer_uses_keda_tells_that_keda_goes_on(world: World) -> None:
    """It may not see ScaledObjects any more, so it refuses the spec, and leaves pods to KEDA's HPA."""
    first = await serving(world)
    world.edit(decode=SCALED, autoscaling={"source": "KEDA"})
    await until_at_rest(world)
    world.settings = RenderSettings()
    world.restart()
    hold(world)
    await world.reconcile()
    assert world.condition("Progressing")["reason"] == "InvalidSpec"
    assert world.status["roles"][Role.DECODE]["scaling"] == "1-6 pods"
    assert "Nothing scales" not in world.condition("Autoscaling")["message"]
    hpa_scales(world, first, 5)
    await world.reconcile()
    assert world.status["roles"][Role.DECODE]["desired"] == 5


async def test_an_operator_that_no_longer_uses_keda_never_scales_beside_it(world: World) -> None:
    world.edit(decode=SCALED, autoscaling={"source": "KEDA"})
    await serving(world)
    await until_at_rest(world)
    world.settings = RenderSettings()
    world.edit(decode=SCALED)
    world.restart()
    for _ in range(3):
        await world.reconcile()
        assert scalers(world) == {KEDA, KEDAS_HPA}
    assert "no longer installed to use KEDA, delete it" in world.condition("Autoscaling")["message"]
    del world.api.objects[KEDA]
    assert (await until_at_rest(world))[-1] == {HPA}


async def test_each_role_is_told_of_its_own_scaler(world: World) -> None:
    world.edit(parameter={"autoscaling": {"maxReplicas": 3}}, decode=SCALED)
    await serving(world)
    await until_at_rest(world)
    assert world.status["roles"][Role.PARAMETER]["scaling"].endswith("1-3 pods")
    assert world.status["roles"][Role.DECODE]["scaling"].endswith("1-6 pods")


async def test_prometheus_adapters_hpas_share_a_gpu_budget(world: World) -> None:
    world.edit(decode=SCALED, autoscaling={"source": "PrometheusAdapter", "gpuBudget": 4})
    await serving(world)
    await until_at_rest(world)
    assert world.api.objects[HPA]["spec"]["maxReplicas"] == 3, "P has one pod and keeps it"


ASKED, IDLE = Activity(held=True, idle_seconds=0), Activity(held=False, idle_seconds=901)


class TestAPairThatMaySleep:
    """KEDA starts whatever has a ScaledObject and no pods: so there must never be both."""

    @pytest.fixture
    async def world(self, world: World) -> World:
        world.edit(
            parameter=SCALED, decode=SCALED, autoscaling={"source": "KEDA", "scaleToZero": {"afterSeconds": 900}}
        )
        self.first = await serving(world)
        assert (await until_at_rest(world))[-1] == {KEDA, KEDAS_HPA}
        return world

    async def test_pods_go_when_keda_has_let_go_of_them_and_come_before_it_does(self, world: World) -> None:
        hold(world)
        world.activity = IDLE
        for _ in range(3):
            play_keda(world)
            await world.reconcile()
            assert scalers(world) == {KEDA, KEDAS_HPA}
            assert count(world, self.first) == 2
        autoscaling = world.condition("Autoscaling")
        assert (autoscaling["status"], autoscaling["reason"]) == ("Unknown", "StillThere")
        assert "Nobody asks, so P and D stop when nothing scales them" in autoscaling["message"]
        assert "finalizers" in autoscaling["message"]
        assert world.api.writes() == 0, "it waits without a write"
        let_go(world)
        await world.reconcile()
        assert scalers(world) == {KEDAS_HPA}
        assert count(world, self.first) == 2
        await until_at_rest(world)
        assert scalers(world) == set()
        assert count(world, self.first) == 0
        world.activity = ASKED
        await world.reconcile()
        assert count(world, self.first) == 1
        assert (await until_at_rest(world))[-1] == {KEDA, KEDAS_HPA}

    async def test_a_request_meanwhile_keeps_it_awake(self, world: World) -> None:
        hold(world)
        world.activity = IDLE
        await world.reconcile()
        world.activity = ASKED
        let_go(world)
        assert (await until_at_rest(world))[-1] == {KEDA, KEDAS_HPA}
        assert count(world, self.first) == 2

    @pytest.mark.parametrize("verb", ["apply", "delete"])
    @pytest.mark.parametrize("role", [Role.PARAMETER, Role.DECODE])
    async def test_an_operator_may_be_killed_at_any_write(self, world: World, role: Role, verb: str) -> None:
        workload = names.engine_workload("llama", role, self.first)
        kinds = {Role.PARAMETER: STATEFUL_SET, Role.DECODE: DEPLOYMENT}
        for activity, pods in ((IDLE, 0), (ASKED, 1)):
            world.activity = activity
            for path in (SCALED_OBJECT.path("ns", f"llama-{role}"), kinds[role].path("ns", workload)):
                world.api.fail(verb, path, ApiError(0, "Unreachable", "killed"))
            for _ in range(8):
                play_keda(world)
                await world.reconcile()
                assert not started_by_keda(world)
                world.restart()
                assert not started_by_keda(world)
            assert count(world, self.first) == pods

    async def test_it_falls_asleep_where_keda_never_made_an_hpa(self, world: World) -> None:
        del world.api.objects[KEDAS_HPA]
        world.activity = IDLE
        for _ in range(3):
            world.sync()
            await world.reconcile()
        assert scalers(world) == set()
        assert count(world, self.first) == 0


def hold(world: World) -> None:
    """KEDA has taken the ScaledObject of D up."""
    found = world.api.objects[KEDA]
    world.api.put(KEDA, {**found, "metadata": {**found["metadata"], "finalizers": ["finalizer.keda.sh"]}})
    world.sync()


def let_go(world: World) -> None:
    """KEDA has taken its finalizer away from a ScaledObject that is deleted."""
    assert "deletionTimestamp" in world.api.objects.pop(KEDA)["metadata"]
    world.sync()


def started_by_keda(world: World) -> list[str]:
    """Workloads without pods that KEDA knows."""
    targets = [body["spec"]["scaleTargetRef"] for path, body in world.api.objects.items() if "/scaledobjects/" in path]
    paths = [CHILD_BY_NAME[target["kind"]].path("ns", target["name"]) for target in targets]
    return [path for path in paths if world.api.objects[path]["spec"]["replicas"] == 0]
