"""KEDA instead of the operator's HPA, with KEDA's CRD of ScaledObjects on a real API server."""

from typing import Any

from pdinference.cluster.kinds import AUTOSCALER, SCALED_OBJECT, SCALER
from tests.integration.keda import TARGETS, WITH_KEDA, Keda
from tests.integration.operators import Operators
from tests.integration.recommendations import comes_to, exists, recommend, recommended
from tests.integration.world import World, until

SCALED: dict[str, Any] = {"replicas": 3, "autoscaling": {"maxReplicas": 6, "targets": TARGETS}}


async def gone(world: World, kind: Any) -> bool:
    return not await exists(world, kind)


async def test_a_switch_to_keda_and_back_keeps_every_pod(world: World, operators: Operators, keda: Keda) -> None:
    await operators.start(*WITH_KEDA)
    await world.apply(decode=SCALED, autoscaling={"source": "Builtin"})
    revision = await world.serving()
    await recommend(world, 5)
    await comes_to(world, revision, 5)

    await world.apply(decode=SCALED, autoscaling={"source": "KEDA"})
    await until(lambda: exists(world, SCALED_OBJECT), "there is a ScaledObject")
    await until(lambda: gone(world, AUTOSCALER), "there is no HPA")
    spec = (await world.get(SCALED_OBJECT, "llama-decode") or {})["spec"]
    assert (spec["scaleTargetRef"]["kind"], spec["scaleTargetRef"]["name"]) == (SCALER.name, "llama-decode")
    assert (spec["minReplicaCount"], spec["maxReplicaCount"], len(spec["triggers"])) == (1, 6, len(TARGETS))
    assert {trigger["metadata"]["authModes"] for trigger in spec["triggers"]} == {"basic"}
    await keda.take_up()
    await recommend(world, 4)
    await comes_to(world, revision, 4)

    path = SCALED_OBJECT.path(world.namespace, "llama-decode")
    await world.api.merge(path, {"spec": {"maxReplicaCount": 77}})

    async def put_right() -> bool:
        return bool((await world.api.get(path))["spec"]["maxReplicaCount"] == 6)

    await until(put_right, "the edit is undone")

    await world.apply(decode=SCALED, autoscaling={"source": "Builtin"})
    await keda.let_go()
    await until(lambda: exists(world, AUTOSCALER), "there is an HPA again")
    await until(lambda: gone(world, SCALED_OBJECT), "there is no ScaledObject")
    assert await recommended(world) == 4
    await comes_to(world, revision, 4)
    assert (await world.status())["revision"] == revision
