"""A roll-out that cannot succeed sets `Progressing` to False with its reason, while the old revision serves."""

from datetime import datetime
from typing import Any

from pdinference.api.names import ENGINE_ROLES
from pdinference.cluster.kinds import POD, RESOURCE
from tests.integration.calm import calm
from tests.integration.operators import Operators
from tests.integration.world import World
from tests.waiting import until

UNSEEN = {"placement": {"schedulerName": "nobody"}}
"""The real scheduler, which has no node to give, leaves such pods alone."""
FAILS = {"reason": "ErrImagePull", "message": "pull access denied"}
BACKS_OFF = {"reason": "ImagePullBackOff", "message": 'Back-off pulling image "x:1": ErrImagePull: pull access denied'}
CRASHES = {"reason": "CrashLoopBackOff", "message": "back-off 20s restarting failed container"}


async def play(world: World, revision: str, waiting: dict[str, str], *, restarts: int = 0) -> None:
    """Set the status of vLLM's container in the pods of P and D, as the kubelet does."""
    for role in ENGINE_ROLES:

        async def exists(role: Any = role) -> bool:
            return bool(await world.pods(role, revision))

        await until(exists, f"{revision} has a {role} pod")
        for pod in await world.pods(role, revision):
            last = {"terminated": {"exitCode": 1, "reason": "Error"}} if restarts else {}
            counted = {"ready": False, "restartCount": restarts, "imageID": "", "lastState": last}
            status = {**counted, "name": "vllm", "image": "x:1", "state": {"waiting": waiting}}
            path = POD.path(world.namespace, pod["metadata"]["name"]) + "/status"
            await world.api.merge(path, {"status": {"containerStatuses": [status]}})


async def stuck(world: World, reason: str) -> bool:
    """Whether the roll-out has stopped for this reason."""
    found = [await world.condition(type_) for type_ in ("Progressing", "Stalled", "Reconciling")]
    return [condition.get("status") for condition in found] == ["False", "True", None] and {
        condition["reason"] for condition in found[:2]
    } == {reason}


async def moves(world: World) -> bool:
    """Whether the roll-out goes on."""
    found = [(await world.condition(type_)).get("status") for type_ in ("Progressing", "Stalled", "Reconciling")]
    return found == ["True", None, "True"]


async def test_a_bad_image_and_a_crash_stall_a_rollout_until_the_pods_are_well(
    world: World, operators: Operators
) -> None:
    await operators.start()
    await world.apply(parameter=UNSEEN, decode=UNSEEN)
    first = await world.serving()
    await world.apply(parameter=UNSEEN, decode=UNSEEN, engine={"image": "x:1"})
    await world.settled()
    second = (await world.status())["revision"]
    await until(lambda: moves(world), "the roll-out begins")

    await play(world, second, FAILS)
    await until(lambda: stuck(world, "ImagePullBackOff"), "the image is the reason")
    status = await world.status()
    assert (status["servingRevision"], status["revision"]) == (first, second)
    assert (await world.condition("Ready"))["status"] == "True"
    await calm(world)
    mark = world.audit_mark()
    await play(world, second, BACKS_OFF)
    await play(world, second, FAILS)
    await calm(world)
    assert not [request for request in world.writes(mark) if "pdinferences" in request[1]], "no write for a retry"

    await play(world, second, CRASHES, restarts=1)
    await until(lambda: moves(world), "another problem, which may pass")
    await play(world, second, CRASHES, restarts=2)
    await until(lambda: stuck(world, "CrashLooping"), "the container loops")
    await world.make_ready(second)
    await world.rolled_out()
    assert not await world.condition("Stalled")


async def test_the_deadline_holds_across_a_restart_of_the_operator(world: World, operators: Operators) -> None:
    """The real scheduler has no node, so that P and D fit nowhere."""
    seen = await world.apply(rollout={"progressDeadlineSeconds": 15})
    stored = await world.api.get(RESOURCE.path(world.namespace, "llama"))
    assert seen["metadata"]["generation"] == 1
    assert stored["status"]["observedGeneration"] == 0, "what nobody has acted on must not look finished"
    operator = await operators.start()
    await until(lambda: moves(world), "the roll-out begins")

    async def unschedulable() -> bool:
        return bool((await world.condition("ParameterReady")).get("reason") == "Unschedulable")

    await until(unschedulable, "the scheduler has spoken")
    started = (await world.status())["lastProgressTime"]
    operator.kill()
    await operators.start()
    await until(lambda: stuck(world, "Unschedulable"), "the deadline passes")
    assert (await world.status())["lastProgressTime"] == started
    turned = datetime.fromisoformat((await world.condition("Progressing"))["lastTransitionTime"])
    assert (turned - datetime.fromisoformat(started)).total_seconds() >= 15
    assert (await world.condition("Ready"))["reason"] == "Unschedulable"

    await world.apply(rollout={"progressDeadlineSeconds": 600})
    await until(lambda: moves(world), "an edit starts the time anew")
