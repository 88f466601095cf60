"""Headers and statuses that pass the router, and all others, which end at it."""

from collections.abc import Callable
from typing import Any

import pytest
from aiohttp import web

from tests.router.engines import PARAMS, Fleet, fleet

_WRONG = 'pdinference_router_pod_failures_total{reason="wrong_handover",role="parameter"}'
_OWN = {"Host", "Content-Length", "Content-Type", "X-Request-Id"}


def failures(world: Fleet, name: str) -> int:
    """Failures in a row of a pod."""
    return next(pod.failures for pod in world.pods if pod.observed.name == name)


async def test_pods_get_the_headers_that_vllm_may_read_and_no_others() -> None:
    passed = {"Traceparent": "00-" + "a" * 32 + "-" + "b" * 16 + "-01", "Tracestate": "a=1", "X-Session-Id": "s"}
    dropped = (
        "Accept",
        "Authorization",
        "Cookie",
        "endpoint-load-metrics-format",
        "Origin",
        "User-Agent",
        "X-Api-Key",
        "X-data-parallel-rank",
        "X-Forwarded-For",
        "X-Vllm-Priority",
    )
    async with fleet("p", "d") as world:
        for body in ({}, {"n": 2}):
            assert (await world.post(body, headers={**passed, **dict.fromkeys(dropped, "1")}))[0] == 200
    for headers in (*world["p"].headers, *world["d"].headers):
        assert {name: headers[name] for name in passed} == passed
        assert {name.title() for name in headers} <= _OWN | {*passed}


@pytest.mark.parametrize("value", ["é", "a" * 2000])
async def test_a_header_that_is_no_short_text_ends_at_the_router(value: str) -> None:
    async with fleet("p", "d") as world:
        assert (await world.post(headers={"X-Session-Id": value}))[0] == 200
    assert "X-Session-Id" not in world["d"].headers[0]


async def test_clients_get_the_headers_that_they_need_and_no_others() -> None:
    async def answer(_request: web.Request) -> web.Response:
        headers = {
            "Access-Control-Allow-Origin": "*",
            "endpoint-load-metrics": "{}",
            "Retry-After": "3",
            "Set-Cookie": "a=b",
            "Server": "uvicorn",
            "X-Request-Id": "other",
        }
        return web.json_response({}, headers=headers)

    async with fleet("p", "d") as world:
        world["d"].fault = answer
        _, headers, _ = await world.post({"n": 2}, headers={"X-Request-Id": "own"})
    assert (headers["Retry-After"], headers["X-Request-Id"]) == ("3", "own")
    assert {name.title() for name in headers} <= {*_OWN, "Date", "Retry-After"}


def _answers(status: int) -> Callable[[web.Request], Any]:
    async def answer(_request: web.Request) -> web.Response:
        return web.Response(status=status, headers={"Location": "http://elsewhere/"})

    return answer


@pytest.mark.parametrize("status", [101, 201, 204, 206, 301, 302, 304, 307, 407, 418, 426, 451, 505, 599, 600, 999])
@pytest.mark.parametrize("body", [{}, {"n": 2}, {"stream": True}])
async def test_a_status_that_vllm_does_not_send_is_a_failure_of_d(status: int, body: dict[str, Any]) -> None:
    async with fleet("p", "d") as world:
        world["d"].fault = _answers(status)
        found, headers, answer = await world.post(body)
        assert (found, f"status_{status}" in answer["error"]["message"]) == (502, True)
        assert "Location" not in headers
        assert failures(world, "d") == 3
        assert await world.metric("pdinference_router_pod_failures_total") >= 3


@pytest.mark.parametrize("status", [101, 204, 302, 418, 999])
async def test_a_status_that_vllm_does_not_send_is_a_failure_of_p(status: int) -> None:
    async with fleet("p1", "p2", "d") as world:
        world["p1"].fault = _answers(status)
        for _ in range(2):
            assert (await world.post())[0] == 200
    assert "kv_transfer_params" in world["d"].bodies[0]
    assert world["p2"].bodies


@pytest.mark.parametrize("status", [400, 404, 422])
async def test_refusals_pass(status: int) -> None:
    async with fleet("p", "d") as world:
        world["d"].fault = _answers(status)
        assert (await world.post({"n": 2}))[0] == status


@pytest.mark.parametrize(
    "wrong",
    [
        {"remote_host": "169.254.169.254"},
        {"remote_host": "127.0.0.2"},
        {"remote_host": "localhost"},
        {"remote_host": ""},
        {"remote_host": None},
        {"remote_host": ["127.0.0.1"]},
        {"remote_port": 80},
        {"remote_port": "5600"},
        {"remote_port": 70000},
        {"remote_block_ids": "a"},
        {"remote_block_ids": [[-1]]},
        {"remote_block_ids": None},
        {"remote_engine_id": "a" * 600},
        {"remote_engine_id": ["a"]},
        {"remote_request_id": 5},
        {"tp_size": 0},
        {"tp_size": None},
        {"pp_size": "2"},
        {"remote_num_tokens": -1},
        {"do_remote_prefill": False},
        {"do_remote_decode": True},
        {"transfer_mode": {"a": 1}},
    ],
)
async def test_a_p_pod_that_names_kv_cache_of_others_has_failed(wrong: dict[str, Any]) -> None:
    async def answer(_request: web.Request) -> web.Response:
        return web.json_response({"choices": [{}], "kv_transfer_params": {**PARAMS, **wrong}})

    async with fleet("p", "d") as world:
        world["p"].fault = answer
        assert (await world.post())[0] == 200
        assert await world.metric(_WRONG) == 1
        assert failures(world, "p") == 1
    assert "kv_transfer_params" not in world["d"].bodies[0]


async def test_members_that_vllm_does_not_return_do_not_reach_d() -> None:
    async def answer(_request: web.Request) -> web.Response:
        return web.json_response({"choices": [{}], "kv_transfer_params": {**PARAMS, "remote_url": "http://a/"}})

    async with fleet("p", "d") as world:
        world["p"].fault = answer
        assert (await world.post())[0] == 200
    assert world["d"].bodies[0]["kv_transfer_params"] == PARAMS
