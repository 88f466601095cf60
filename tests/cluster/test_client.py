"""The client sends requests as Kubernetes expects, and recovers from expired credentials and unavailable servers."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import yaml
from aiohttp import web

from pdinference.cluster.client import ApiServer, as_yaml, load_configuration
from pdinference.cluster.errors import ApiError


class Server:
    """Records requests; accepts one token only."""

    def __init__(self) -> None:
        self.token = "first"  # noqa: S105 - made up
        self.seen: list[tuple[str, str, str]] = []
        self.body: object = None

    async def handle(self, request: web.Request) -> web.Response:
        self.seen.append((request.method, request.path_qs, request.headers.get("Content-Type", "")))
        text = await request.text()
        self.body = json.loads(text) if text else None
        if request.headers.get("Authorization") != f"Bearer {self.token}":
            return web.json_response({"reason": "Unauthorized", "message": "who?"}, status=401)
        return web.json_response({"metadata": {"name": "x"}})


@pytest.fixture
async def server() -> AsyncIterator[tuple[Server, int]]:
    server = Server()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", server.handle)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    yield server, runner.addresses[0][1]
    await runner.cleanup()


def kubeconfig(folder: Path, port: int, token: str = "first") -> Path:  # noqa: S107 - made up
    path = folder / "kubeconfig"
    entry = {"name": "x"}
    config = {
        "current-context": "x",
        "contexts": [{**entry, "context": {"cluster": "x", "user": "x"}}],
        "clusters": [{**entry, "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "users": [{**entry, "user": {"token": token}}],
    }
    path.write_text(yaml.safe_dump(config), encoding="utf-8")
    return path


async def test_apply_is_server_side_apply(server: tuple[Server, int], tmp_path: Path) -> None:
    api = ApiServer(await load_configuration(kubeconfig(tmp_path, server[1])))
    await api.apply("/api/v1/namespaces/ns/services/x", {"kind": "Service"}, manager="me")
    query = "/api/v1/namespaces/ns/services/x?fieldManager=me&force=true"
    assert server[0].seen == [("PATCH", query, "application/apply-patch+yaml; charset=utf-8")]
    assert server[0].body == {"kind": "Service"}
    await api.close()


async def test_a_delete_is_for_one_very_object(server: tuple[Server, int], tmp_path: Path) -> None:
    api = ApiServer(await load_configuration(kubeconfig(tmp_path, server[1])))
    await api.delete("/x", uid="u1", resource_version="7")
    assert isinstance(server[0].body, dict)
    assert server[0].body["preconditions"] == {"uid": "u1", "resourceVersion": "7"}
    await api.close()


async def test_credentials_that_expired_are_read_again(server: tuple[Server, int], tmp_path: Path) -> None:
    path = kubeconfig(tmp_path, server[1])
    api = ApiServer(await load_configuration(path), kubeconfig=path)
    await api.get("/x")
    server[0].token = "second"  # noqa: S105 - made up
    kubeconfig(tmp_path, server[1], token="second")  # noqa: S106 - made up
    assert (await api.get("/x"))["metadata"]["name"] == "x"
    await api.close()


async def test_a_refusal_that_lasts_is_an_error(server: tuple[Server, int], tmp_path: Path) -> None:
    path = kubeconfig(tmp_path, server[1], token="wrong")  # noqa: S106 - made up
    api = ApiServer(await load_configuration(path), kubeconfig=path)
    with pytest.raises(ApiError) as caught:
        await api.get("/x")
    assert (caught.value.status, caught.value.reason) == (401, "Unauthorized")
    await api.close()


async def test_a_server_that_is_away_is_a_passing_error(tmp_path: Path) -> None:
    api = ApiServer(await load_configuration(kubeconfig(tmp_path, 1)))
    with pytest.raises(ApiError) as caught:
        await api.get("/x")
    assert caught.value.transient
    await api.close()


def test_json_that_is_read_as_yaml_says_the_same() -> None:
    manifest = {"text": "\U0001f600 é \x7f\x85\u2028\ufeff\uffff \\ud83d \n \0"}
    assert yaml.load(as_yaml(manifest), yaml.CSafeLoader) == manifest
    assert json.loads(as_yaml(manifest)) == manifest
