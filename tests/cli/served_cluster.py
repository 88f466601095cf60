"""A cluster of one namespace behind real HTTP: what commands read of a PDInference, its pods and their logs."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import yaml
from aiohttp import web
from click.testing import CliRunner, Result

from pdinference.api import names
from pdinference.cli import main
from tests.cli.terminal import on_terminal
from tests.controllers import owned
from tests.http_server import served

Json = dict[str, Any]
Log = list[bytes]
NAMESPACE = "team-a"


def resource(name: str = "llama", revision: str = "r1", **spec: Any) -> Json:
    status = {"revision": revision, "servingRevision": revision}
    return {"metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec, "status": status}


def pod(role: str, name: str, revision: str = "r1", **status: Any) -> Json:
    """A ready pod of a role."""
    labels = {names.LABEL_NAME: "llama", names.LABEL_ROLE: role, names.LABEL_REVISION: revision}
    metadata = {"name": name, "namespace": NAMESPACE, "uid": f"uid-{name}", "resourceVersion": "1", "labels": labels}
    ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}], **status}
    return {"metadata": owned(metadata), "spec": {"containers": []}, "status": ready}


def stranger(role: str, name: str) -> Json:
    """A ready pod with the labels of a role, which no workload has."""
    found = pod(role, name)
    del found["metadata"]["ownerReferences"]
    return found


class ServedCluster:
    """Its objects, and the logs of containers by pod and container; `queries` has what was asked of each log."""

    def __init__(self) -> None:
        self.resources = [resource()]
        self.pods: list[Json] = []
        self.logs: dict[tuple[str, str], Log] = {}
        self.queries: list[dict[str, str]] = []
        self.pod_port = 0
        """What listens in each pod."""
        self.rests = 0
        """Number of the next lists of resources that are refused with 503."""
        self.answers = asyncio.Event()
        """Without it, lists of resources get no answer."""
        self.answers.set()
        self.forward_refusal = 0
        """HTTP status with which port-forwards are refused."""
        self.followed = asyncio.Event()
        """Ends logs that are followed."""
        place = f"/namespaces/{NAMESPACE}"
        inferences = f"/apis/{names.API_VERSION}{place}/{names.PLURAL}"
        self.routes: list[web.AbstractRouteDef] = [
            web.get(inferences, self._list_resources),
            web.get(f"{inferences}/{{name}}", self._resource),
            web.get(f"/api/v1{place}/pods", self._list_pods),
            web.get(f"/api/v1{place}/pods/{{pod}}/log", self._log),
            web.get(f"/api/v1{place}/pods/{{pod}}/portforward", self._forward),
        ]

    @asynccontextmanager
    async def running(self, folder: Path) -> AsyncIterator["ServedCluster"]:
        """Serve it, with a kubeconfig for it in the folder."""
        async with served(self.routes) as port:
            self.kubeconfig = folder / "kubeconfig"
            config = {
                "current-context": "x",
                "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x", "namespace": NAMESPACE}}],
                "clusters": [{"name": "x", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
                "users": [{"name": "x", "user": {"token": "t"}}],
            }
            self.kubeconfig.write_text(yaml.safe_dump(config), encoding="utf-8")
            yield self

    async def run(self, *words: str) -> Result:
        """Run a command on it."""
        line = [*words, "--kubeconfig", str(self.kubeconfig)]
        return await asyncio.to_thread(CliRunner().invoke, main, line)

    async def run_on_terminal(self, width: int, *words: str) -> str:
        """What a terminal gets of a command."""
        return await on_terminal(width, *words, "--kubeconfig", str(self.kubeconfig))

    async def _list_resources(self, _request: web.Request) -> web.Response:
        await self.answers.wait()
        if self.rests:
            self.rests -= 1
            return _refused(503, "the server rests")
        return web.json_response({"items": self.resources})

    async def _resource(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        for found in self.resources:
            if found["metadata"]["name"] == name:
                return web.json_response(found)
        return _refused(404, f'pdinferences.pdinference.io "{name}" not found')

    async def _list_pods(self, request: web.Request) -> web.Response:
        wanted = dict(part.split("=") for part in request.query["labelSelector"].split(","))
        items = [one for one in self.pods if wanted.items() <= one["metadata"]["labels"].items()]
        return web.json_response({"items": items})

    async def _log(self, request: web.Request) -> web.StreamResponse:
        query = dict(request.query)
        self.queries.append({"pod": request.match_info["pod"], **query})
        lines = self.logs.get((request.match_info["pod"], query["container"]))
        if lines is None:
            return _refused(400, f'container "{query["container"]}" is waiting to start: PodInitializing')
        response = web.StreamResponse()
        await response.prepare(request)
        for line in lines[-int(query["tailLines"]) :] if "tailLines" in query else lines:
            await response.write(line)
        if query.get("follow"):
            await self.followed.wait()
        return response

    async def _forward(self, request: web.Request) -> web.StreamResponse:
        """As the kubelet forwards a port over a WebSocket (kubelet/streaming, `v4.channel.k8s.io`)."""
        if self.forward_refusal:
            return _refused(self.forward_refusal, "no")
        port = int(request.query["ports"])
        socket = web.WebSocketResponse(protocols=["v4.channel.k8s.io"])
        await socket.prepare(request)
        for channel in (0, 1):
            await socket.send_bytes(bytes([channel]) + port.to_bytes(2, "little"))
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", self.pod_port)
        except OSError:
            await socket.send_bytes(b"\1connection refused by the pod")
            await socket.close()
            return socket

        async def down() -> None:
            while data := await reader.read(2**16):
                await socket.send_bytes(b"\0" + data)
            await socket.close()

        sending = asyncio.create_task(down())
        async for message in socket:
            assert message.data[0] == 0
            writer.write(message.data[1:])
        sending.cancel()
        writer.close()
        return socket


def _refused(status: int, message: str) -> web.Response:
    return web.Response(status=status, text=json.dumps({"reason": "Refused", "message": message}))
