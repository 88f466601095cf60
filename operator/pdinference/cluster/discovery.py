"""Whether the cluster serves a kind. CRDs may be installed while the operator runs."""

import asyncio
from collections import defaultdict
from http import HTTPStatus
from typing import Final

from pdinference.cluster.client import ApiServer
from pdinference.cluster.errors import ApiError
from pdinference.cluster.kinds import Kind

_RETRY_S: Final = 10.0
"""Time after a request that the API server did not answer."""


class ServedKinds:
    """Knows which optional kinds the cluster serves, without polling it.

    It asks once. A kind that is not served then has no objects, so it matters no earlier than the first successful
    apply. Objects that another replica of the operator applied meanwhile are in the next complete list.
    """

    def __init__(self, api: ApiServer) -> None:
        self._api = api
        self._applied: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)

    def applied(self, kind: str) -> None:
        """Note that an object of a kind was applied."""
        self._applied[kind].set()

    async def until_served(self, kind: Kind) -> None:
        """Wait until the cluster is known to serve a kind of an API group."""
        while True:
            served = await self._serves(kind)
            if served is not None:
                break
            await asyncio.sleep(_RETRY_S)
        if not served:
            await self._applied[kind.name].wait()

    async def _serves(self, kind: Kind) -> bool | None:
        """Whether the kind is served; None if the API server is unavailable."""
        try:
            found = await self._api.get(f"/apis/{kind.api_version}")
        except ApiError as error:
            return False if error.status == HTTPStatus.NOT_FOUND else None
        return any(resource["name"] == kind.plural for resource in found.get("resources") or ())
