"""Without P (`spec.mode: Aggregated`), D gets whole requests, and that is no fallback."""

import asyncio

import pytest

from pdinference.api.names import METRIC_QUEUED_REQUESTS
from tests.router.engines import EVENTS, abort, fleet
from tests.waiting import until

WHOLE = {"handover": "none"}


@pytest.mark.parametrize("when", ["Serve", "Wait", "Fail"])
async def test_d_answers_alone_and_nothing_calls_it_a_fallback(when: str) -> None:
    async with fleet("d", rules={**WHOLE, "when_no_prefill": when}) as world:
        status, headers, body = await world.post({"stop": ["x"]})
        assert (status, body["by"]) == (200, "d")
        assert "X-PDInference-Prefill" not in headers
        assert await world.metric("pdinference_router_prefill_fallbacks_total") == 0
        assert await world.metric("pdinference_router_last_prefill_fallback_seconds") == float("inf")
    assert world["d"].bodies == [{"prompt": "one two", "max_tokens": 9, "stop": ["x"]}]


async def test_a_router_without_p_is_ready_with_a_d_pod() -> None:
    async with fleet("d", rules=WHOLE) as world:
        world.observe("d")
        async with world.client.get(f"{world.state}/readyz") as answer:
            assert answer.status == 200, "it had one"
    async with fleet(rules=WHOLE) as world, world.client.get(f"{world.state}/readyz") as answer:
        assert (answer.status, await answer.text()) == (
            503,
            "Waiting for a ready pod of each role (decode: 0 of 0 pods ready).",
        )


async def test_with_a_handover_it_waits_for_p_and_logs_that_once(caplog: pytest.LogCaptureFixture) -> None:
    """A new pod of it is not ready for minutes, and its log is where people look."""
    caplog.set_level("INFO", "pdinference.router.run")
    async with fleet("d") as world:
        for _ in range(3):
            async with world.client.get(f"{world.state}/readyz") as answer:
                assert answer.status == 503
                said = await answer.text()
    assert said == "Waiting for a ready pod of each role (parameter: 0 of 0 pods ready, decode: 1 of 1 pods ready)."
    assert [record.message for record in caplog.records if record.name == "pdinference.router.run"] == [said]


async def test_a_request_waits_for_d() -> None:
    async with fleet("d", rules=WHOLE) as world:
        world.observe("d")
        waiting = asyncio.create_task(world.post())

        async def queued() -> bool:
            return await world.metric(METRIC_QUEUED_REQUESTS) == 1

        await until(queued, "the request waits")
        world.observe()
        assert (await waiting)[0] == 200


async def test_another_d_answers_where_one_fails() -> None:
    async with fleet("d1", "d2", rules=WHOLE) as world:
        world["d1"].fault = abort
        answers = [await world.post() for _ in range(4)]
    assert [(status, body["by"]) for status, _, body in answers] == [(200, "d2")] * 4


async def test_a_stream_is_passed_on() -> None:
    async with fleet("d", rules=WHOLE) as world:
        status, headers, body = await world.post({"stream": True})
    assert (status, body) == (200, b"".join(EVENTS))
    assert "X-PDInference-Prefill" not in headers


async def test_requests_with_one_prefix_go_to_the_d_pod_that_has_it() -> None:
    """With P, that is the choice of P."""
    async with fleet("d1", "d2", "d3", rules={**WHOLE, "policy": "cache_aware"}) as world:
        answers = [(await world.post({"prompt": "the same beginning"}))[2]["by"] for _ in range(6)]
    assert len(set(answers)) == 1
