"""Reads PDInferences with their pods and PDScalers, with the rights of the user.

Tests: tests/cli/test_status.py
"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

from pdinference.api import names
from pdinference.cli.chosen import chosen
from pdinference.cli.listing import ObjectListing, listing
from pdinference.cli.pod_metrics import MOST_ROUTERS, UnansweredError, metrics_page
from pdinference.cli.status.overview import Json, Overview, PodLine, overview
from pdinference.cli.status.ways import WayUse, way_use
from pdinference.cluster.client import ApiServer
from pdinference.cluster.kinds import POD, RESOURCE, SCALER
from pdinference.loadmetrics.scraping.unreadable import UnreadableError

_MOST: Final = "500"


async def read_one(api: ApiServer, namespace: str, name: str) -> Overview:
    """Read one resource.

    Raises:
        ApiError: The API server returned an error.
        ClickException: The resource does not exist.
    """
    resource = await chosen(api, namespace, name)
    selector = {"labelSelector": f"{names.LABEL_NAME}={name}"}
    pods = await listing(api, POD.path(namespace), **selector)
    scalers = await listing(api, SCALER.path(namespace), **selector)
    notes = _notes(pods, scalers)
    view = overview(resource, pods.items, scalers.items, notes, now=None if pods.unreadable else datetime.now(UTC))
    routers = [pod for pod in view.role(names.Role.ROUTER).pods if pod.ready]
    if not routers or not _chooses_ways(resource):
        return view
    try:
        return replace(view, ways=await _ways(api, namespace, routers))
    except (UnansweredError, UnreadableError) as error:
        return replace(view, notes=(*view.notes, f"The ways of requests are not known: {error}"))


def _chooses_ways(resource: Json) -> bool:
    router = (resource.get("spec") or {}).get("router") or {}
    return router.get("disaggregation") == "Adaptive"


async def _ways(api: ApiServer, namespace: str, routers: Sequence[PodLine]) -> WayUse:
    pages = (metrics_page(api, namespace, pod.name, names.ROUTER_STATE_PORT) for pod in routers[:MOST_ROUTERS])
    return way_use(await asyncio.gather(*pages))


async def read_all(api: ApiServer, namespace: str) -> list[Overview]:
    """Read all resources of a namespace, without their pods.

    Raises:
        ApiError: The API server returned an error.
    """
    found = await api.get(RESOURCE.path(namespace), limit=_MOST)
    items: list[Json] = found.get("items") or []
    return [overview(item) for item in items]


def _notes(*found: ObjectListing) -> list[str]:
    return [one.unreadable for one in found if one.unreadable]
