"""A server of external metrics whose responses the test sets."""

import ssl
import subprocess
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Self

import aiohttp
from aiohttp import web

from pdinference.cluster.client import Json
from pdinference.loadmetrics.metrics_api.group import GROUP, VERSION
from tests.http_server import served
from tests.integration import aggregated
from tests.integration.world import World

_SERVICE = "external-metrics"


class ExternalMetrics:
    """The API group `external.metrics.k8s.io`, for as long as the block lasts.

    Attributes:
        values: Total of each metric, in the quantities of Kubernetes; a metric that is not here is answered by 404.
        behind: Base URL of KEDA's metrics, for metrics of ScaledObjects.
    """

    def __init__(self, world: World, folder: Path) -> None:
        self.values: dict[str, str] = {}
        self.behind = ""
        self._world = world
        self._folder = folder
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        routes = [
            web.get(f"/apis/{GROUP}/{VERSION}", self._discover),
            web.get(f"/apis/{GROUP}/{VERSION}/namespaces/{{namespace}}/{{metric}}", self._answer),
        ]
        server = served(routes, host=self._world.cluster.host_address, tls=self._certificate())
        await aggregated.create_service(self._world, _SERVICE, await self._stack.enter_async_context(server))
        await aggregated.register(self._world, self._world.namespace, _SERVICE, insecureSkipTLSVerify=True)
        await aggregated.available(self._world)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()
        await aggregated.unregister(self._world)

    def _certificate(self) -> ssl.SSLContext:
        key, certificate = self._folder / "metrics.key", self._folder / "metrics.crt"
        line = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
        line += ["-days", "2", "-subj", "/CN=metrics", "-keyout", str(key), "-out", str(certificate)]
        subprocess.run(line, check=True, capture_output=True)
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(certificate, key)
        return context

    async def _discover(self, _request: web.Request) -> web.Response:
        found = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": f"{GROUP}/{VERSION}", "resources": []}
        return web.json_response(found)

    async def _answer(self, request: web.Request) -> web.Response:
        metric = request.match_info["metric"]
        _, _, scaled_object = request.query.get("labelSelector", "").partition("scaledobject.keda.sh/name=")
        if scaled_object:
            return await self._by_keda(request.match_info["namespace"], scaled_object, metric)
        if metric not in self.values:
            status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}
            return web.json_response({**status, "message": f"no metric {metric}"}, status=404)
        item = {"metricName": metric, "metricLabels": {}, "value": self.values[metric], "timestamp": _NOW}
        return web.json_response(_list([item]))

    async def _by_keda(self, namespace: str, scaled_object: str, metric: str) -> web.Response:
        url = f"{self.behind}/{namespace}/{scaled_object}/{metric}"
        async with aiohttp.ClientSession() as session, session.get(url) as response:
            if response.status != 200:
                status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 500}
                return web.json_response({**status, "message": await response.text()}, status=500)
            return web.json_response(_list(await response.json(content_type=None)))


_NOW = "2026-11-22T10:00:00Z"
"""HPAs do not look at the time of an external metric."""


def _list(items: list[Json]) -> Json:
    return {"kind": "ExternalMetricValueList", "apiVersion": f"{GROUP}/{VERSION}", "metadata": {}, "items": items}
