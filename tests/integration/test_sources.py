"""KEDA instead of the operator's metrics, with KEDA's own definition of a ScaledObject in a real API server."""

from typing import Any

import pytest

from pdinference.cluster.kinds import AUTOSCALER, SCALED_OBJECT
from tests.integration.keda import Keda
from tests.integration.operators import Operators
from tests.integration.test_autoscaling import hpa_writes, replicas
from tests.integration.world import READS, World, until

WITH_KEDA = (
    "--keda-prometheus=http://prometheus.monitoring:9090",
    "--keda-authentication=TriggerAuthentication/prom",
    "--keda-auth-mode=basic",
)
TARGETS = {
    "decodeLoad": 90,
    "prefillLoad": 90,
    "kvUsage": 80,
    "kvDemand": 80,
    "waitingRequests": 4,
    "runningRequests": 32,
    "queuedPromptTokens": 8000,
    "promptTokensPerSecond": 20000,
    "generationTokensPerSecond": 2000,
}
SCALED: dict[str, Any] = {"replicas": 3, "autoscaling": {"maxReplicas": 6, "targets": TARGETS}}


@pytest.fixture
async def keda(world: World) -> Keda:
    """Its definition stays: a cluster of other tests has it, and nobody there who cares."""
    keda = Keda(world)
    await keda.install()
    return keda


async def exists(world: World, kind: Any, name: str = "llama-decode") -> bool:
    return await world.get(kind, name) is not None


def changes(world: World, mark: int) -> list[tuple[str, str]]:
    """What the operator made and deleted among what scales, in order: verb and resource."""
    return [
        (event["verb"], event["objectRef"]["resource"])
        for event in world.audited(mark)
        if event["verb"] not in READS
        and event["responseStatus"]["code"] < 300
        and event["objectRef"].get("name") == "llama-decode"
        and event["objectRef"]["resource"] in {AUTOSCALER.plural, SCALED_OBJECT.plural}
        and "subresource" not in event["objectRef"]
    ]


async def test_a_switch_to_keda_and_back_has_one_scaler_at_a_time_and_keeps_every_pod(
    world: World, operators: Operators, keda: Keda
) -> None:
    await operators.start(*WITH_KEDA)
    await world.apply(decode=SCALED, autoscaling={"source": "Builtin"})
    revision = await world.serving()
    await until(lambda: exists(world, AUTOSCALER), "there is an HPA")
    await hpa_writes(world, revision, 5)
    mark = world.audit_mark()

    await world.apply(decode=SCALED, autoscaling={"source": "KEDA"})
    await until(lambda: exists(world, SCALED_OBJECT), "there is a ScaledObject")
    assert not await exists(world, AUTOSCALER)
    scaled = await world.get(SCALED_OBJECT, "llama-decode") or {}
    assert scaled["spec"]["scaleTargetRef"]["name"] == f"llama-decode-{revision}"
    assert len(scaled["spec"]["triggers"]) == len(TARGETS)
    assert {trigger["metadata"]["authModes"] for trigger in scaled["spec"]["triggers"]} == {"basic"}
    await keda.take_up()

    await world.apply(decode=SCALED, autoscaling={"source": "Builtin"})
    await keda.let_go()
    # The garbage collector, which removes KEDA's HPA, learns of a new kind of owner only after a minute or so.
    await until(lambda: exists(world, AUTOSCALER), "there is an HPA again", within=200)
    assert not await exists(world, SCALED_OBJECT)
    assert not await exists(world, AUTOSCALER, keda.autoscaler)
    assert changes(world, mark) == [
        ("delete", AUTOSCALER.plural),
        ("patch", SCALED_OBJECT.plural),
        ("delete", SCALED_OBJECT.plural),
        ("patch", AUTOSCALER.plural),
    ]
    assert await replicas(world, revision) == 5
    assert (await world.status())["revision"] == revision


async def test_the_scaled_object_follows_the_revision_that_serves_and_edits_are_undone(
    world: World, operators: Operators, keda: Keda
) -> None:
    await operators.start(*WITH_KEDA)
    await world.apply(decode=SCALED, autoscaling={"source": "KEDA"})
    first = await world.serving()
    await until(lambda: exists(world, SCALED_OBJECT), "there is a ScaledObject")
    path = SCALED_OBJECT.path(world.namespace, "llama-decode")
    await world.api.merge(path, {"spec": {"maxReplicaCount": 77}})

    async def put_right() -> bool:
        return bool((await world.api.get(path))["spec"]["maxReplicaCount"] == 6)

    await until(put_right, "the edit is undone")
    await world.apply(decode=SCALED, autoscaling={"source": "KEDA"}, engine={"image": "example/vllm:2"})
    await world.settled()
    second = await world.serving()

    async def moved() -> bool:
        return bool((await world.api.get(path))["spec"]["scaleTargetRef"]["name"] == f"llama-decode-{second}")

    await until(moved, "the ScaledObject follows")
    assert second != first
