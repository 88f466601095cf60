"""A change of the autoscaling source: never two autoscalers, no lost recommendation, and no restarted pods."""

from collections.abc import Callable
from typing import Any

import pytest

from pdinference.api.names import Role
from pdinference.cluster.errors import ApiError
from pdinference.cluster.kinds import AUTOSCALER, SCALED_OBJECT
from pdinference.manifests import KedaSettings, RenderSettings
from pdinference.planning.scaling.condition import MeasuredLoad
from tests.inference.scaled import count, recommend, serving
from tests.inference.world import World

Json = dict[str, Any]
SCALED = {"replicas": 2, "autoscaling": {"maxReplicas": 6}}
HPA = AUTOSCALER.path("ns", "llama-decode")
KEDA = SCALED_OBJECT.path("ns", "llama-decode")
KEDAS_HPA = AUTOSCALER.path("ns", "keda-hpa-llama-decode")
OURS, ELSEWHERE = MeasuredLoad(), MeasuredLoad(problem=("MetricsApiElsewhere", "Another server has the API group."))


@pytest.fixture
def world(document: Callable[..., Json]) -> World:
    world = World(document(decode=SCALED), RenderSettings(keda=KedaSettings("http://prometheus:9090")))
    world.observe(load=OURS)
    return world


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


async def until_at_rest(world: World) -> None:
    """Reconcile until nothing is written any more."""
    for _ in range(10):
        play_keda(world)
        result = await world.reconcile()
        if not world.api.writes() and not result.retry:
            return
    raise AssertionError("it never rests")


@pytest.mark.parametrize("refused", ["", HPA, KEDA])
async def test_a_switch_to_keda_and_back_keeps_pods_and_recommendation(world: World, refused: str) -> None:
    first = await serving(world)
    recommend(world, 5)
    await until_at_rest(world)
    assert scalers(world) == {HPA}
    for source, there in (("KEDA", {KEDA, KEDAS_HPA}), ("Builtin", {HPA})):
        world.edit(decode=SCALED, autoscaling={"source": source})
        if refused:
            for verb in ("apply", "delete"):
                world.api.fail(verb, refused, ApiError(0, "Unreachable", "killed"))
            await world.reconcile()
            world.restart()
        await until_at_rest(world)
        assert scalers(world) == there
        assert (world.status["revision"], count(world, first)) == (first, 5)


async def test_the_scaled_object_scales_the_pdscaler(world: World) -> None:
    await serving(world)
    world.edit(decode=SCALED, autoscaling={"source": "KEDA"})
    await until_at_rest(world)
    target = world.api.objects[KEDA]["spec"]["scaleTargetRef"]
    assert (target["kind"], target["name"]) == ("PDScaler", "llama-decode")


async def test_the_chosen_source_applies_whichever_server_has_the_group(world: World) -> None:
    await serving(world)
    for source, there in (("Builtin", {HPA}), ("PrometheusAdapter", {HPA}), ("KEDA", {KEDA, KEDAS_HPA})):
        world.edit(decode=SCALED, autoscaling={"source": source})
        for measured in (OURS, ELSEWHERE):
            world.observe(load=measured)
            await until_at_rest(world)
            assert scalers(world) == there


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


async def test_each_role_reports_its_own_scaler(world: World) -> None:
    world.edit(parameter={"autoscaling": {"maxReplicas": 3}}, decode=SCALED)
    await serving(world)
    await until_at_rest(world)
    assert world.status["roles"][Role.PARAMETER]["scaling"].endswith("1-3 pods")
    assert world.status["roles"][Role.DECODE]["scaling"].endswith("1-6 pods")
