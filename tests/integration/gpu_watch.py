"""Counts the GPUs of all pods in a namespace at every moment, in the API server's order of events."""

import asyncio
import json
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

import aiohttp
import yaml

from pdinference.cluster.kinds import POD
from tests.integration.world import World

Json = dict[str, Any]


class GpuWatch:
    """Watches pods until the end of the block; a pod holds its GPUs until it is gone."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._held: dict[str, int] = {}
        self._task: asyncio.Task[None] | None = None
        self.most = 0
        """The most GPUs that there ever were at a time."""

    async def __aenter__(self) -> Self:
        listed = await self._world.api.get(POD.path(self._world.namespace))
        for pod in listed["items"]:
            self._take(pod)
        self._task = asyncio.create_task(self._follow(listed["metadata"]["resourceVersion"]))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._task is not None
        ended = self._task.done()
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task
        assert not ended, "the watch ended before the test did"

    @property
    def now(self) -> int:
        """The GPUs of all pods that there are."""
        return sum(self._held.values())

    async def _follow(self, version: str) -> None:
        config = yaml.safe_load(self._world.cluster.kubeconfig.read_text())
        server, token = config["clusters"][0]["cluster"]["server"], config["users"][0]["user"]["token"]
        url = f"{server}{POD.path(self._world.namespace)}?watch=1&resourceVersion={version}"
        forever = aiohttp.ClientTimeout(total=None)
        async with (
            aiohttp.ClientSession(headers={"Authorization": f"Bearer {token}"}, read_bufsize=2**22) as session,
            session.get(url, ssl=False, timeout=forever) as response,
        ):
            response.raise_for_status()
            async for line in response.content:
                event = json.loads(line)
                assert event["type"] != "ERROR", event
                self._take(event["object"], deleted=event["type"] == "DELETED")

    def _take(self, pod: Json, *, deleted: bool = False) -> None:
        name = pod["metadata"]["name"]
        if deleted:
            self._held.pop(name, None)
            return
        limits = [container.get("resources", {}).get("limits", {}) for container in pod["spec"]["containers"]]
        self._held[name] = sum(int(limit.get("nvidia.com/gpu", 0)) for limit in limits)
        self.most = max(self.most, self.now)
