"""`GET /v1/models`, with pods and without."""

from typing import Any

import pytest
from aiohttp import web

from pdinference.router.models import Models
from tests.router.engines import Fleet, fleet, status

_MODELS = Models(("llama", "sql"), 4096)


async def listed(world: Fleet, path: str = "/v1/models") -> tuple[int, dict[str, Any]]:
    async with world.client.get(world.url + path, headers={"X-Request-Id": "own"}) as answer:
        assert answer.headers["X-Request-Id"] == "own"
        return answer.status, await answer.json()


async def test_while_a_model_sleeps_its_names_are_listed_and_it_sleeps_on() -> None:
    async with fleet("p", "d", models=_MODELS) as world:
        world.observe("p", "d")
        for _ in range(2):
            found, body = await listed(world)
            assert found == 200
        idle = await world.metric("pdinference_router_idle_seconds")
        assert (await listed(world, "/version"))[0] == 503
    model, adapter = body["data"]
    assert (model["id"], model["max_model_len"], model["parent"]) == ("llama", 4096, None)
    assert (adapter["id"], adapter["parent"]) == ("sql", "llama")
    assert {*model} == {*adapter} == {"id", "object", "created", "owned_by", "root", "parent", "max_model_len"}
    assert body["object"] == "list"
    assert idle > 0


async def test_what_pods_list_comes_first() -> None:
    async def answer(_request: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": "loaded-later"}]})

    async with fleet("p", "d", models=_MODELS) as world:
        for name in ("p", "d"):
            world[name].fault = answer
        assert (await listed(world))[1] == {"object": "list", "data": [{"id": "loaded-later"}]}


@pytest.mark.parametrize("code", [302, 500, 999])
async def test_a_pod_that_cannot_list_them_does_not_answer(code: int) -> None:
    async with fleet("p", "d", models=_MODELS) as world:
        for name in ("p", "d"):
            world[name].fault = status(code)
        assert [card["id"] for card in (await listed(world))[1]["data"]] == ["llama", "sql"]


async def test_without_names_there_is_no_list() -> None:
    async with fleet("p", "d") as world:
        world.observe("p", "d")
        assert (await listed(world))[0] == 503
