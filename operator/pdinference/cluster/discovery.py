"""Whether the cluster serves a kind. CRDs may be installed while the operator runs."""

import asyncio
from typing import Final

from pdinference.cluster.client import ApiServer
from pdinference.cluster.errors import ApiError
from pdinference.cluster.kinds import Kind

_INTERVAL_S: Final = 10.0


async def until_served(api: ApiServer, kind: Kind) -> None:
    """Wait until the cluster serves a kind of an API group."""
    while True:
        if await _serves(api, kind):
            return
        await asyncio.sleep(_INTERVAL_S)


async def _serves(api: ApiServer, kind: Kind) -> bool:
    try:
        found = await api.get(f"/apis/{kind.api_version}")
    except ApiError:  # the cluster has no such group, or the API server is unavailable
        return False
    return any(resource["name"] == kind.plural for resource in found.get("resources") or ())
