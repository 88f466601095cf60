"""A server of external metrics whose responses the test sets."""

import ssl
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Self

import aiohttp
from aiohttp import web

from pdinference.cluster.client import Json
from pdinference.cluster.errors import ApiError
from pdinference.loadmetrics.metrics_api.api import GROUP, VERSION
from pdinference.loadmetrics.metrics_api.registration import API_SERVICE
from tests.integration.world import World, until

_SERVICE = "external-metrics"
_API_SERVICE_PATH = f"/apis/apiregistration.k8s.io/v1/apiservices/{API_SERVICE}"


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
        self._runner: web.AppRunner | None = None

    async def __aenter__(self) -> Self:
        app = web.Application()
        app.add_routes(
            [
                web.get(f"/apis/{GROUP}/{VERSION}", self._discover),
                web.get(f"/apis/{GROUP}/{VERSION}/namespaces/{{namespace}}/{{metric}}", self._answer),
            ]
        )
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, self._world.cluster.host_address, 0, ssl_context=self._certificate())
        await site.start()
        (address,) = self._runner.addresses
        await self._register(address[1])
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
        await self._unregister()

    def _certificate(self) -> ssl.SSLContext:
        key, certificate = self._folder / "metrics.key", self._folder / "metrics.crt"
        line = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
        line += ["-days", "2", "-subj", "/CN=metrics", "-keyout", str(key), "-out", str(certificate)]
        subprocess.run(line, check=True, capture_output=True)
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(certificate, key)
        return context

    async def _register(self, port: int) -> None:
        api, namespace = self._world.api, self._world.namespace
        metadata = {"name": _SERVICE, "namespace": namespace}
        service = {"metadata": metadata, "spec": {"ports": [{"name": "https", "port": 443}]}}
        await api.create(f"/api/v1/namespaces/{namespace}/services", service)
        endpoints = {
            "metadata": {**metadata, "labels": {"kubernetes.io/service-name": _SERVICE}},
            "addressType": "IPv4",
            "endpoints": [{"addresses": [self._world.cluster.host_address], "conditions": {"ready": True}}],
            "ports": [{"name": "https", "port": port}],
        }
        await api.create(f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices", endpoints)
        await self._unregister()
        spec = {
            "service": {"namespace": namespace, "name": _SERVICE, "port": 443},
            "group": GROUP,
            "version": VERSION,
            "groupPriorityMinimum": 100,
            "versionPriority": 100,
            "insecureSkipTLSVerify": True,
        }
        await api.create(_API_SERVICE_PATH.rsplit("/", 1)[0], {"metadata": {"name": API_SERVICE}, "spec": spec})
        await until(self._available, "external metrics are served")

    async def _unregister(self) -> None:
        with suppress(ApiError):
            found = await self._world.api.get(_API_SERVICE_PATH)
            await self._world.api.delete(_API_SERVICE_PATH, uid=found["metadata"]["uid"])

    async def _available(self) -> bool:
        conditions = ((await self._world.api.get(_API_SERVICE_PATH)).get("status") or {}).get("conditions", [])
        return any(c["type"] == "Available" and c["status"] == "True" for c in conditions)

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
