"""Pods of one tenant answer what no vLLM would, and the autoscaling of another goes on."""

import asyncio
import os
import uuid
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from functools import partial

from pdinference.api import names
from pdinference.api.names import ENGINE_PORT, Role
from pdinference.cluster.kinds import POD, RESOURCE
from pdinference.loadmetrics.scraping.window import FRESH_S
from tests.integration import adoption, aggregated
from tests.integration.operator_process import OperatorProcess
from tests.integration.scaling_world import SCALED, ScalingWorld
from tests.integration.vllm_metrics import Load
from tests.integration.world import READY_STATUS, World
from tests.loadmetrics.hostile import READABLE, UNREADABLE, dense, pods, saying
from tests.loadmetrics.hostile import answer as whole
from tests.waiting import until

TARPITS = 120
KINDS = {
    "dense": saying(whole(dense())),
    **READABLE,
    **{kind: answering for kind, (_, answering) in UNREADABLE.items()},
}
_REVISION = "rev"
_LABELS = names.role_selector("llama", Role.DECODE, _REVISION)
_NETWORK = f"127.{80 + os.getpid() % 170}.254"


@asynccontextmanager
async def hostile_tenant(world: World) -> AsyncIterator[str]:
    """A namespace with a pod of each kind and many that never answer, all of an autoscaled resource; its name."""
    namespace = f"hostile-{uuid.uuid4().hex[:8]}"
    await world.api.create("/api/v1/namespaces", {"apiVersion": "v1", "metadata": {"name": namespace}})
    resource = world.resource(decode=SCALED)
    resource["metadata"]["namespace"] = namespace
    await world.api.apply(RESOURCE.path(namespace, "llama"), resource, manager="test")
    addresses = {kind: f"{_NETWORK}.{number}" for number, kind in enumerate(KINDS, start=2)}
    played = [*addresses.values(), *[addresses["tarpit"]] * TARPITS]
    await asyncio.gather(*(_pod(world, namespace, number, address) for number, address in enumerate(played)))
    await adoption.replica_set(world.api, namespace, f"llama-decode-{_REVISION}", _LABELS, pods=len(played))
    async with AsyncExitStack() as servers:
        for kind, answering in KINDS.items():
            await servers.enter_async_context(pods(answering, addresses[kind], port=ENGINE_PORT))
        yield namespace


async def _pod(world: World, namespace: str, number: int, address: str) -> None:
    """As the Deployment's controller and a kubelet would make it; its ReplicaSet will adopt it."""
    labels = {**_LABELS, names.LABEL_MANAGED_BY: names.FIELD_MANAGER, adoption.HASH: "test"}
    name = f"hostile-{number}"
    metadata = {"name": name, "labels": labels}
    spec = {"containers": [{"name": names.ENGINE_CONTAINER, "image": "x"}], "schedulerName": "none"}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    await world.api.create(POD.path(namespace), body)
    status = {**READY_STATUS, "podIP": address, "podIPs": [{"ip": address}]}
    await world.api.merge(POD.path(namespace, name) + "/status", {"status": status})


async def all_failed(operator: OperatorProcess) -> bool:
    """Whether pods failed for each reason."""
    reasons = {reason for reason, _ in UNREADABLE.values()}
    return all([await operator.metric(f'pdinference_scrape_failures_total{{reason="{reason}"}}') for reason in reasons])


async def test_hostile_pods_of_one_tenant_leave_the_autoscaling_of_another(scaling: ScalingWorld) -> None:
    async with hostile_tenant(scaling.world) as hostile:
        operator = await scaling.start(f"--namespace={hostile}")
        await aggregated.available(scaling.world)
        await scaling.world.apply(decode=SCALED)
        await scaling.world.serving()
        (pod,) = await scaling.bring_up(Load(kv_usage=0.5))

        async def told(value: str) -> bool:
            return await scaling.value() == value

        await until(lambda: told("500m"), "the good pod's load is known")

        await until(lambda: all_failed(operator), "each kind of hostile pod was read")
        pod.load = Load(kv_usage=1.0, waiting=4, running=10)
        await scaling.scaled_to(2)
        for number in range(5):
            pod.load = Load(kv_usage=0.1 + number / 10)
            await scaling.bring_up(Load())
            (item,) = (await scaling.query())["items"]
            age = datetime.now(UTC) - datetime.fromisoformat(item["timestamp"])
            assert age.total_seconds() < FRESH_S
            await until(partial(told, f"{100 + 100 * number}m"), "the good pods' load is known")
        assert await operator.healthy()
        assert await operator.metric("pdinference_background_task_failures_total") == 0
        assert "Traceback" not in operator.log.read_text()
