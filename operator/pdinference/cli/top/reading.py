"""Reads the metrics of all engines of a resource, each through a port-forward.

Tests: tests/cli/test_top.py
"""

import asyncio
from typing import Final

from pdinference.api import names
from pdinference.api.engines import PodEngine, engines_of
from pdinference.api.names import ENGINE_ROLES
from pdinference.api.pod_owner import is_of_workload
from pdinference.cli.pod_metrics import UnansweredError, metrics_page
from pdinference.cli.stored_status import stored_status
from pdinference.cli.top.usage import EngineUse, engine_use
from pdinference.cluster.client import ApiServer, Json
from pdinference.cluster.kinds import POD
from pdinference.loadmetrics.scraping.unreadable import UnreadableError

_AT_ONCE: Final = 16


async def read_engines(api: ApiServer, namespace: str, resource: Json) -> list[EngineUse]:
    """The use of all engines, P first.

    Raises:
        ApiError: The pods cannot be listed.
    """
    selector = f"{names.LABEL_NAME}={resource['metadata']['name']}"
    pods: list[Json] = (await api.get(POD.path(namespace), labelSelector=selector)).get("items") or []
    engines = [(pod, engine) for pod in pods if _has_engines(pod) for engine in engines_of(pod)]
    plan = stored_status(resource.get("status") or {}).plan
    free = asyncio.Semaphore(_AT_ONCE)

    async def one(pod: Json, engine: PodEngine) -> EngineUse:
        async with free:
            name = pod["metadata"]["name"]
            shown = f"{name} {engine.port_name}" if engine.shares_pod else name
            try:
                page = await _page(api, namespace, name, engine)
                return engine_use(engine.role, shown, page, getattr(plan, engine.role, None))
            except (UnreadableError, UnansweredError) as error:
                return EngineUse(engine.role, shown, problem=str(error))

    found = await asyncio.gather(*(one(pod, engine) for pod, engine in engines))
    return sorted(found, key=lambda use: (ENGINE_ROLES.index(use.role), use.engine))


def _has_engines(pod: Json) -> bool:
    """Whether vLLM's API listens in a pod: on further nodes of an instance it does not."""
    return is_of_workload(pod) and pod["metadata"]["labels"].get(names.LABEL_ROLE) in set(map(str, ENGINE_ROLES))


async def _page(api: ApiServer, namespace: str, pod: str, engine: PodEngine) -> bytes:
    if not engine.ready:
        raise UnansweredError("not ready")
    return await metrics_page(api, namespace, pod, engine.port)
