"""How long an edit takes to be seen in a child, with N resources at rest: median, p99 and maximum.

    uv run python -m benchmarks.edits 1000 --edits 300

The operator is a process of its own. One resource at a time gets another `spec.router.service.port`. The time runs from
the sending of the edit until a watch, beside the operator's own, shows the Service with that port. So two requests to
the API server, the operator's watch and the rendering are in it. The same write and the same watch without the operator
in between (the port of a Service is edited) is measured as well, in turns with the edits. The difference is the
operator.
"""

import argparse
import asyncio
import json
import os
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from statistics import median, quantiles

import aiohttp
from kubernetes.aio.client import ApiClient, Configuration

from benchmarks.burst import (
    OPERATOR,
    create_resources,
    namespace_of,
    operator_process,
    prepare,
    until_children,
    until_quiet,
    until_ready,
)
from e2e.cluster import Cluster
from pdinference.cluster.client import ApiServer, load_configuration
from pdinference.cluster.kinds import CHILD_BY_NAME, RESOURCE

NAMESPACE, BARE = "edits", "bare"
SERVICE = CHILD_BY_NAME["Service"]
CHILDREN_OF_ONE = 13
PAUSE_S = 0.1
TIMEOUT_S = 60.0


class Ports:
    """The ports of Services, as a watch shows them."""

    def __init__(self) -> None:
        self._awaited: tuple[str, int] | None = None
        self._seen = asyncio.Event()

    @asynccontextmanager
    async def watched(self, configuration: Configuration) -> AsyncIterator[None]:
        """Watch during the block."""
        client = ApiClient(configuration)
        headers = {"User-Agent": "benchmark"}
        await client.update_params_for_auth(headers, [], ["BearerToken"], "", "GET", None)
        connector = aiohttp.TCPConnector(ssl=client.rest_client.ssl_context)
        async with aiohttp.ClientSession(connector=connector, headers=headers) as session:
            url = f"{configuration.host}{SERVICE.path(NAMESPACE)}"
            async with session.get(url) as response:
                listed = await response.json()
            # Without a version, the API server first sends all Services, and drops a reader that is slow with them.
            start = {"watch": "true", "resourceVersion": listed["metadata"]["resourceVersion"]}
            watch = session.get(url, params=start, timeout=aiohttp.ClientTimeout())
            async with watch as response, asyncio.TaskGroup() as group:  # a watch that fails ends the measurement
                task = group.create_task(self._read(response))
                yield
                task.cancel()
        await client.close()  # type: ignore[no-untyped-call]

    async def _read(self, response: aiohttp.ClientResponse) -> None:
        rest = b""
        async for chunk in response.content.iter_any():
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                event = json.loads(line)
                if event["type"] == "ERROR":
                    raise RuntimeError(event["object"]["message"])
                service = event["object"]
                if (service["metadata"]["name"], service["spec"]["ports"][0]["port"]) == self._awaited:
                    self._seen.set()

    async def seconds(self, write: Callable[[], Awaitable[object]], service: str, port: int) -> float:
        """How long after the beginning of a write this Service has this port."""
        self._awaited = service, port
        self._seen.clear()
        started = time.monotonic()
        await write()
        async with asyncio.timeout(TIMEOUT_S):
            await self._seen.wait()
        return time.monotonic() - started


async def measure(cluster: Cluster, operator: str, count: int, edits: int) -> tuple[list[float], list[float]]:
    """Seconds of each edit of a resource, and of each edit of a Service."""
    configuration = await load_configuration(cluster.kubeconfig)
    api, ports = ApiServer(configuration, user_agent="benchmark"), Ports()
    rng = random.Random(1)
    found: list[float] = []
    bare: list[float] = []
    try:
        await prepare(api)
        await namespace_of(api, NAMESPACE)
        with operator_process(cluster, operator, NAMESPACE):
            await until_ready()
            await create_resources(api, NAMESPACE, count)
            await until_children(api, NAMESPACE, CHILDREN_OF_ONE * count)
            await until_quiet(cluster.audit_log)
            spec = {"ports": [{"name": "http", "port": 1}]}
            body = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": BARE}, "spec": spec}
            await api.create(SERVICE.path(NAMESPACE), body)
            async with ports.watched(configuration):
                for number in range(edits):
                    port = 20_000 + number
                    name = f"m{rng.randrange(count)}"
                    edit = {"spec": {"router": {"service": {"port": port}}}}
                    path = RESOURCE.path(NAMESPACE, name)
                    found.append(await ports.seconds(lambda at=path, to=edit: api.merge(at, to), name, port))  # type: ignore[misc]
                    await asyncio.sleep(PAUSE_S)
                    patch = {"spec": {"ports": [{"name": "http", "port": port}]}}
                    path = SERVICE.path(NAMESPACE, BARE)
                    bare.append(await ports.seconds(lambda at=path, to=patch: api.merge(at, to), BARE, port))  # type: ignore[misc]
                    await asyncio.sleep(PAUSE_S)
    finally:
        await api.close()
    return found, bare


def _report(what: str, seconds: list[float]) -> None:
    p99 = quantiles(seconds, n=100)[98]
    print(f"{what:24}p50 {median(seconds) * 1000:.0f} ms, p99 {p99 * 1000:.0f} ms, most {max(seconds) * 1000:.0f} ms")


def main() -> None:
    """Measure, on a cluster that is brought up for it and taken down."""
    parser = argparse.ArgumentParser(description="Measure how long edits take to be seen in children.")
    parser.add_argument("count", nargs="?", type=int, default=1000, help="number of resources (default: 1000)")
    parser.add_argument("--edits", type=int, default=300, help="number of edits (default: 300)")
    parser.add_argument("--cluster", default="edits", help="name of the cluster (default: edits)")
    parser.add_argument("--operators", nargs="+", default=[OPERATOR], help="programs to compare (default: this one)")
    arguments = parser.parse_args()
    for operator in arguments.operators:
        with Cluster.fresh(arguments.cluster, nodes=0) as cluster:
            found, bare = asyncio.run(measure(cluster, operator, arguments.count, arguments.edits))
        print(f"{operator}, {arguments.count} resources, load {os.getloadavg()[0]:.0f}")
        _report("edit of a resource", found)
        _report("edit of a Service", bare)


if __name__ == "__main__":
    main()
