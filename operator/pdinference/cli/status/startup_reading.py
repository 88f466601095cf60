"""Reads pods and the beginnings of their logs, with the rights of the user.

Tests: tests/cli/test_status_startup.py
"""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from pdinference.api import names
from pdinference.api.engines import PodEngine, engines_of
from pdinference.api.pod_owner import is_of_workload
from pdinference.cli.chosen import chosen
from pdinference.cli.listing import listing
from pdinference.cli.pod_metrics import MOST_ROUTERS, UnansweredError, metrics_page
from pdinference.cli.router_pods import ready_routers
from pdinference.cli.status.startup import Start, admissions, start_of
from pdinference.cluster.client import ApiServer
from pdinference.cluster.errors import ApiError
from pdinference.cluster.kinds import POD
from pdinference.engine.start_log import PHASES
from pdinference.loadmetrics.scraping.unreadable import UnreadableError
from pdinference.planning.reported import plain

Json = Mapping[str, Any]

_MOST_PODS: Final = 64
"""The newest ones. Starts of more pods are alike."""
_AT_ONCE: Final = 8
_LOG_BYTES: Final = 2**20
"""The beginning of a log. vLLM writes 30 KB until it is ready."""
_LOG_SECONDS: Final = 30


@dataclass(frozen=True, slots=True)
class Starts:
    """What was read.

    Attributes:
        resource: The PDInference.
        starts: Of its engines that serve.
        notes: What could not be read.
    """

    resource: Json
    starts: tuple[Start, ...]
    notes: tuple[str, ...]


async def read_starts(api: ApiServer, namespace: str, name: str) -> Starts:
    """Read the last start of each engine.

    Raises:
        ApiError: The API server returned an error.
        ClickException: The resource does not exist.
    """
    resource = await chosen(api, namespace, name)
    pods = await listing(api, POD.path(namespace), labelSelector=f"{names.LABEL_NAME}={name}")
    room = asyncio.Semaphore(_AT_ONCE)
    of_routers = asyncio.create_task(_admissions(api, namespace, pods.items if _has_canaries(resource) else ()))

    async def read(pod: Json, container: str, engines: list[PodEngine]) -> tuple[list[Start], str]:
        async with room:
            log, problem = await _beginning(api, namespace, pod["metadata"]["name"], container)
        admitted = [by_name for by_name, _ in await of_routers]
        found = [start for engine in engines if (start := start_of(pod, engine, log, admitted)) is not None]
        lost = [start for start in found if start.total is not None and not start.seconds.keys() & PHASES.keys()]
        return found, problem or (_lost(pod) if lost else "")

    own = sorted(filter(_serves, pods.items), key=lambda pod: str(pod["metadata"].get("creationTimestamp")))
    asked = [(pod, *each) for pod in own[-_MOST_PODS:] for each in _containers(pod)]
    results = await asyncio.gather(*(read(*each) for each in asked))
    notes = [pods.unreadable, *(problem for _, problem in await of_routers), *(problem for _, problem in results)]
    return Starts(resource, tuple(start for found, _ in results for start in found), tuple(filter(None, notes)))


def _has_canaries(resource: Json) -> bool:
    """Whether D pods wait for canaries: `transfer.verification: Required`, the default."""
    spec = resource.get("spec") or {}
    required: bool = (spec.get("transfer") or {}).get("verification", "Required") == "Required"
    return required and spec.get("mode") != "Aggregated"


async def _admissions(api: ApiServer, namespace: str, pods: Iterable[Json]) -> list[tuple[Mapping[str, datetime], str]]:
    """Of each router: when requests first went to D pods, and why that is not known."""

    async def of_router(name: str) -> tuple[Mapping[str, datetime], str]:
        try:
            page = await metrics_page(api, namespace, name, names.ROUTER_STATE_PORT)
            return admissions(page, datetime.now(UTC)), ""
        except (UnansweredError, UnreadableError) as error:
            return {}, f"{name}: when canaries passed is not known: {error}"

    return await asyncio.gather(*map(of_router, ready_routers(pods)[:MOST_ROUTERS]))


def _serves(pod: Json) -> bool:
    node = names.node_of(pod["metadata"].get("labels") or {})
    return node is not None and node[0] in names.ENGINE_ROLES and node[1] == 0 and is_of_workload(pod)


def _containers(pod: Json) -> Iterable[tuple[str, list[PodEngine]]]:
    """Containers with their engines."""
    found: dict[str, list[PodEngine]] = {}
    for engine in engines_of(pod):
        found.setdefault(engine.container, []).append(engine)
    return found.items()


def _lost(pod: Json) -> str:
    return f"{pod['metadata']['name']}: its log no longer has the start of vLLM."


async def _beginning(api: ApiServer, namespace: str, pod: str, container: str) -> tuple[list[bytes], str]:
    """The first lines of a log, and why they cannot be read."""
    found = bytearray()
    query = {"container": container, "timestamps": "true", "limitBytes": str(_LOG_BYTES)}
    problem = ""
    try:
        async with asyncio.timeout(_LOG_SECONDS):
            async for chunk in api.chunks(f"{POD.path(namespace, pod)}/log", **query):
                found += chunk
                if len(found) > _LOG_BYTES:
                    break
    except ApiError as error:
        problem = f"{pod}: {plain(error.message)}"
    except TimeoutError:
        problem = f"{pod}: its log did not come within {_LOG_SECONDS} s."
    return bytes(found).split(b"\n"), problem
