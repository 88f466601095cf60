"""The router as a process finds the pods of its revision at a real API server."""

import asyncio
import os
import signal
import sys
import uuid
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from pdinference.api import names
from pdinference.api.names import ENGINE_ROLES, Role
from pdinference.cluster.client import load_configuration
from pdinference.cluster.kinds import POD, STATEFUL_SET, Kind
from pdinference.router import discovery
from pdinference.router import pods as router_pods
from tests.integration import adoption
from tests.integration.proxy import Proxy
from tests.integration.world import World
from tests.ports import free_port
from tests.router.engines import Engine
from tests.waiting import until

REVISION = "abc"


class RouterProcess:
    """A running `pdinference router run`, and a client."""

    def __init__(
        self, client: aiohttp.ClientSession, process: asyncio.subprocess.Process, port: int, state: int
    ) -> None:
        self.process = process
        self._client = client
        self._url = f"http://127.0.0.1:{port}/v1/completions"
        self._state = f"http://127.0.0.1:{state}/readyz"

    async def ready(self) -> bool:
        try:
            async with self._client.get(self._state) as answer:
                return answer.ok
        except aiohttp.ClientError:
            return False

    async def ask(self) -> str:
        """The pod that answers a request, after another one computed its prompt."""
        async with self._client.post(self._url, json={"prompt": "a"}) as answer:
            assert answer.status == 200, await answer.text()
            assert answer.headers["X-PDInference-Prefill"] == "parameter"
            by: str = (await answer.json())["by"]
            return by

    async def goes_to(self, *pods: str) -> None:
        """Wait until requests go to these D pods and no other."""

        async def so() -> bool:
            return {await self.ask() for _ in range(6)} == set(pods)

        await until(so, f"requests go to {', '.join(pods)}")


@asynccontextmanager
async def router(world: World, kubeconfig: Path, log: Path) -> AsyncIterator[RouterProcess]:
    port, state = free_port(), free_port()
    line = [
        str(Path(sys.executable).with_name("pdinference")),
        "router",
        "run",
        "--host=127.0.0.1",
        "--verification=Off",
    ]
    line += [f"--port={port}", f"--state-port={state}", "--policy=round_robin"]
    line += [f"--namespace={world.namespace}", "--name=llama", f"--revision={REVISION}"]
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            *line, stdout=output, stderr=output, env=os.environ | {"KUBECONFIG": str(kubeconfig)}
        )
    try:
        async with aiohttp.ClientSession() as client:
            yield RouterProcess(client, process, port, state)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


class Pods:
    """Pods at the API server, each with a server that plays vLLM, all of one address."""

    def __init__(self, world: World, stack: AsyncExitStack) -> None:
        self._world = world
        self._stack = stack
        self.engines: dict[str, Engine] = {}

    async def add(self, name: str, role: Role, *, ready: bool = True, revision: str = REVISION, **more: Any) -> None:
        """A pod, which no workload has yet. Its finalizer holds it while it is being deleted, as a kubelet does.

        Args:
            name: Its name.
            role: Its role.
            ready: Whether it is ready.
            revision: Its revision.
            more: Further metadata.
        """
        engine = Engine(name, role)
        await engine.start()
        self._stack.push_async_callback(engine.stop)
        self.engines[name] = engine
        port = {"name": names.ENGINE_PORT_NAME, "containerPort": engine.port}
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name,
                "labels": {**names.role_selector("llama", role, revision), adoption.HASH: "test"},
                "finalizers": ["tests.pdinference.io/kubelet"],
                **more,
            },
            "spec": {
                "schedulerName": "none",
                "containers": [{"name": names.ENGINE_CONTAINER, "image": "vllm", "ports": [port]}],
            },
        }
        await self._world.api.create(POD.path(self._world.namespace), body)
        await self.set_ready(name, ready=ready)

    async def set_ready(self, name: str, *, ready: bool = True) -> None:
        """Play the kubelet's probe."""
        condition = {"type": "Ready", "status": "True" if ready else "False"}
        status: dict[str, Any] = {"phase": "Running", "podIP": "127.0.0.1", "conditions": [condition]}
        await self._world.api.merge(f"{POD.path(self._world.namespace, name)}/status", {"status": status})

    async def adopted(self, role: Role, *, pods: int = 1, revision: str = REVISION) -> None:
        """Create the workload that these pods of a role get as their owner."""
        labels = names.role_selector("llama", role, revision)
        name = f"llama-{role}-{revision}"
        adopting = adoption.stateful_set if role is Role.PARAMETER else adoption.replica_set
        await adopting(self._world.api, self._world.namespace, name, labels, pods=pods)

    async def delete(self, name: str) -> None:
        """Begin to delete it."""
        await self._world.delete(POD, name)

    async def _metadata(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = (await self._world.api.get(POD.path(self._world.namespace, name)))["metadata"]
        return found

    async def uid(self, name: str) -> str:
        """Its uid."""
        return str((await self._metadata(name))["uid"])

    async def is_ending(self, name: str) -> bool:
        """Whether it is being deleted."""
        return "deletionTimestamp" in await self._metadata(name)

    async def has_no_controller(self, name: str) -> bool:
        """Whether no workload has it."""
        return not adoption.controller({"metadata": await self._metadata(name)})

    async def let_go(self) -> None:
        """End all."""
        for name in self.engines:
            path = POD.path(self._world.namespace, name)
            await self._world.api.merge(path, {"metadata": {"finalizers": None}})


@pytest.fixture
async def pods(world: World) -> AsyncIterator[Pods]:
    async with AsyncExitStack() as stack:
        found = Pods(world, stack)
        await found.add(f"llama-parameter-{REVISION}-0", Role.PARAMETER)
        await found.add("d1", Role.DECODE)
        await found.add("d2", Role.DECODE, ready=False)
        await found.add("other", Role.DECODE, revision="xyz")
        await found.adopted(Role.PARAMETER)
        await found.adopted(Role.DECODE, pods=2)
        await found.adopted(Role.DECODE, revision="xyz")
        yield found
        await found.let_go()


async def test_requests_go_to_the_ready_pods_of_the_revision(world: World, pods: Pods, tmp_path: Path) -> None:
    async with router(world, world.cluster.kubeconfig, tmp_path / "router.log") as front:
        await until(front.ready, "the router is ready")
        await front.goes_to("d1")
        await pods.set_ready("d2")
        await front.goes_to("d1", "d2")
        await pods.delete("d1")  # its container runs on
        await front.goes_to("d2")
        assert not pods.engines["other"].raw
        front.process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(front.process.wait(), 30) == 0


async def test_without_the_api_server_requests_are_answered(world: World, pods: Pods, tmp_path: Path) -> None:
    async with Proxy.to(world.cluster.kubeconfig) as proxy:
        kubeconfig = proxy.kubeconfig(world.cluster.kubeconfig, tmp_path)
        async with router(world, kubeconfig, tmp_path / "router.log") as front:
            await until(front.ready, "the router is ready")
            proxy.close_all()
            await pods.set_ready("d2")
            for _ in range(20):
                assert await front.ask() == "d1"
            proxy.open()
            await front.goes_to("d1", "d2")


async def test_a_watch_without_events_begins_again_without_a_warning(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An API server sends no bookmark while no pod changes, unless its etcd reports progress often."""
    monkeypatch.setattr(discovery, "_SILENCE_S", 0.1)
    monkeypatch.setattr(discovery, "load_configuration", partial(load_configuration, world.cluster.kubeconfig))
    pods = router_pods.Pods()
    watching = asyncio.create_task(discovery.Discovery(pods, world.namespace, "llama", REVISION).forever())
    try:
        for _ in range(3):
            pods.routers = 0  # only another list changes that
            await until(lambda: pods.routers == 1 or watching.done(), "the router lists the pods")
            assert not watching.done()
    finally:
        watching.cancel()
        await asyncio.wait({watching})
    assert caplog.messages == []


async def test_a_pod_with_the_labels_alone_gets_no_requests(world: World, pods: Pods, tmp_path: Path) -> None:
    async with router(world, world.cluster.kubeconfig, tmp_path / "router.log") as front:
        await until(front.ready, "the router is ready")
        for role in ENGINE_ROLES:
            labels = names.role_selector("llama", role, REVISION)
            await pods.add(f"stranger-{role}", role, labels=labels)
        await pods.set_ready("d2")  # the router sees it after them
        await front.goes_to("d1", "d2")
        assert not any(pods.engines[f"stranger-{role}"].raw for role in ENGINE_ROLES)


async def forged(world: World, kind: Kind, name: str, **changes: Any) -> dict[str, Any]:
    """A reference to a workload as a stranger writes it."""
    uid = (await world.api.get(kind.path(world.namespace, name)))["metadata"]["uid"]
    return {"apiVersion": "apps/v1", "kind": kind.name, "name": name, "uid": uid, "controller": True, **changes}


async def test_kubernetes_ends_pods_with_forged_owners(world: World, pods: Pods) -> None:
    """What docs/security.md says of them."""
    decode, parameter = f"llama-decode-{REVISION}-test", f"llama-parameter-{REVISION}"
    path = adoption.REPLICA_SET.path(world.namespace, decode)

    async def both_ready() -> bool:
        return bool((await world.api.get(path))["status"].get("readyReplicas") == 2)

    await pods.set_ready("d2")
    await until(both_ready, "the ReplicaSet knows that its pods are ready")  # it deletes those first that are not
    wrong = await forged(world, adoption.REPLICA_SET, decode, uid=str(uuid.uuid4()))
    own = {"apiVersion": "v1", "kind": "Pod", "name": "other", "uid": await pods.uid("other")}
    surplus = await forged(world, adoption.REPLICA_SET, decode)
    misnamed = await forged(world, STATEFUL_SET, parameter)
    await pods.add("wrong-uid", Role.DECODE, ready=False, ownerReferences=[wrong])
    await pods.add("two-owners", Role.DECODE, ready=False, ownerReferences=[wrong, own], labels={})
    await pods.add("surplus", Role.DECODE, ready=False, ownerReferences=[surplus])
    await pods.add("misnamed", Role.PARAMETER, ownerReferences=[misnamed])
    for name in ("wrong-uid", "surplus"):
        await until(partial(pods.is_ending, name), f"{name} is deleted")
    for name in ("two-owners", "misnamed"):
        await until(partial(pods.has_no_controller, name), f"{name} has lost its owner")
    for name in ("d1", "d2"):
        assert not await pods.is_ending(name)
