"""Engines that share a pod: KV cache goes from P to D within one pod, and each engine fails by itself."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any, get_args

import pytest

from pdinference.api.names import METRIC_QUEUED_REQUESTS
from pdinference.api.v1alpha1.router import RouterPolicy
from tests.router import engines
from tests.router.engines import EVENTS, Engine, Fleet, fleet, status
from tests.waiting import LONG_S, until

TWO_PODS = ("a/p", "a/d", "b/p", "b/d")


def asked(engine: Engine) -> set[str]:
    """The ids of the requests that an engine got."""
    return {headers["X-Request-Id"] for headers in engine.headers}


async def queued(world: Fleet, number: int) -> None:
    async def waits() -> bool:
        return await world.metric(METRIC_QUEUED_REQUESTS) == number

    await until(waits, f"{number} requests wait")


def restarts(world: Fleet, name: str) -> None:
    """The kubelet reports that the container of an engine is not ready."""
    found = [replace(engine.observed, ready=engine.name != name) for engine in world.engines.values()]
    world.pods.observe({one.uid: one for one in found})


@pytest.mark.parametrize("policy", get_args(RouterPolicy))
async def test_p_and_d_are_of_one_pod(policy: str) -> None:
    async with fleet(*TWO_PODS, "a/p1", "b/d1", rules={"policy": policy}) as world:
        answers = await asyncio.gather(*(world.post({"prompt": f"{number} words"}) for number in range(24)))
        assert {headers["X-PDInference-Prefill"] for _, headers, _ in answers} == {"parameter"}
        assert asked(world["a/p"]) | asked(world["a/p1"]) == asked(world["a/d"])
        assert asked(world["b/p"]) == asked(world["b/d"]) | asked(world["b/d1"])


FAULTS: dict[str, Callable[..., Any]] = {
    "dies": engines.abort,
    "answers 500": status(500),
    "gives up": engines.give_up,
    "hangs": engines.hang,
}


@pytest.mark.parametrize("fault", FAULTS)
async def test_another_pod_computes_the_prompt_again_if_d_fails(fault: str) -> None:
    async with fleet(*TWO_PODS, silence=0.5) as world:
        world["a/d"].fault = FAULTS[fault]
        world["a/d"].healthy = fault != "hangs"
        world.observe("b/p", "b/d")
        request = asyncio.create_task(world.post())
        await world["a/d"].arrived.wait()
        world.observe()
        code, headers, body = await asyncio.wait_for(request, LONG_S)
        assert (code, body["by"], headers["X-PDInference-Prefill"]) == (200, "b/d", "parameter")
        assert asked(world["b/p"]) == asked(world["b/d"])


@pytest.mark.parametrize(("other", "prefilled_by"), [("b/p", "parameter"), ("c/p", "decode")])
async def test_d_that_goes_while_p_computes_is_replaced_by_one_of_another_pod(other: str, prefilled_by: str) -> None:
    """That pod computes the prompt again: its P does, or without one its D. It never reads from the first pod."""
    async with fleet("a/p", "a/d", "b/d", other) as world:
        world.observe("b/d", other)
        world["a/p"].go_on.clear()
        request = asyncio.create_task(world.post())
        await world["a/p"].arrived.wait()
        restarts(world, "a/d")
        world["a/p"].go_on.set()
        code, headers, body = await asyncio.wait_for(request, LONG_S)
        assert (code, body["by"], headers["X-PDInference-Prefill"]) == (200, "b/d", prefilled_by)
        assert ("kv_transfer_params" in world["b/d"].bodies[0]) == (prefilled_by == "parameter")
        assert world["a/d"].bodies == []


async def test_a_stream_goes_on_while_p_of_its_pod_restarts() -> None:
    async with fleet("a/p", "a/d") as world:
        went_on = asyncio.Event()

        async def stream(request: Any) -> Any:
            response = await engines.events(request)
            await response.write(EVENTS[0])
            await went_on.wait()
            for event in EVENTS[1:]:
                await response.write(event)
            return response

        world["a/d"].fault = stream
        request = asyncio.create_task(world.post({"stream": True}))
        await world["a/d"].arrived.wait()
        await world["a/p"].stop()
        restarts(world, "a/p")
        world["a/d"].fault = None
        code, headers, _ = await world.post()
        assert (code, headers["X-PDInference-Prefill"]) == (200, "decode")
        went_on.set()
        assert (await request)[2] == b"".join(EVENTS)


async def test_requests_wait_for_the_only_d_while_p_of_its_pod_is_up() -> None:
    async with fleet("a/p", "a/d") as world:
        restarts(world, "a/d")
        request = asyncio.create_task(world.post())
        await queued(world, 1)
        assert world["a/p"].bodies == []
        world.observe()
        code, headers, _ = await request
        assert (code, headers["X-PDInference-Prefill"]) == (200, "parameter")


async def test_deleting_the_pod_ends_what_its_engines_have() -> None:
    async with fleet(*TWO_PODS) as world:
        for engine in ("a/p", "a/d"):
            world[engine].go_on.clear()
        world.observe("b/p", "b/d")
        at_p = asyncio.create_task(world.post())
        await world["a/p"].arrived.wait()
        world.observe("a/p", "a/d")
        code, headers, body = await at_p
        assert (code, body["by"], headers["X-PDInference-Prefill"]) == (200, "b/d", "parameter")
        assert await world.metric('pdinference_router_pod_failures_total{reason="deleted",role="parameter"}') == 1


async def test_if_d_may_not_compute_prompts_a_request_waits_for_both_in_one_pod() -> None:
    async with fleet(*TWO_PODS, rules={"when_no_prefill": "Wait"}) as world:
        world.observe("a/d", "b/p")
        async with world.client.get(f"{world.url}/health") as answer:
            assert answer.status == 503
        request = asyncio.create_task(world.post())
        await queued(world, 1)
        assert world["a/p"].bodies == world["b/d"].bodies == []
        world.observe("a/d")
        code, headers, body = await request
        assert (code, body["by"], headers["X-PDInference-Prefill"]) == (200, "b/d", "parameter")


async def test_if_d_may_not_compute_prompts_the_only_pair_is_tried_again() -> None:
    """D of the other pod has no P, so it does not get the request that D of this one failed."""
    async with fleet("a/p", "a/d", "b/d", rules={"when_no_prefill": "Wait"}) as world:
        world["a/d"].fault = status(500)
        code, _, body = await asyncio.wait_for(world.post(), LONG_S)
        assert (code, body["error"]["message"]) == (500, "by the test")
        assert (len(world["a/d"].bodies), world["b/d"].bodies) == (3, [])


async def test_an_engine_that_refuses_gets_no_request_before_it_is_up() -> None:
    """A container with several engines is ready while one of them is, so the kubelet does not tell."""
    async with fleet(*TWO_PODS, silence=0.3) as world:
        await world["a/d"].stop()
        for _ in range(8):
            assert (await world.post())[1]["X-PDInference-Prefill"] == "parameter"
        assert len(world["a/p"].bodies) == 1, "the prompt of the request that was refused"
        paused = next(pod for pod in world.pods if pod.observed.name == "a/d")
        assert paused.withdrawn
        await world["a/d"].start()

        async def available() -> bool:
            return paused in world.pods.available(engines.D)

        await until(available, "D gets requests again")
        world.observe("b/p", "b/d")
        assert (await world.post())[2]["by"] == "a/d"


async def test_an_engine_that_refused_and_whose_server_hangs_gets_no_request() -> None:
    async with fleet("a/p", "a/d", silence=0.1) as world:
        await world["a/p"].stop()
        assert (await world.post())[1]["X-PDInference-Prefill"] == "decode"
        world["a/p"].healthy = False
        await world["a/p"].start()
        await until(probed(world["a/p"]), "it is probed")
        assert (await world.post())[1]["X-PDInference-Prefill"] == "decode"
        assert world["a/p"].bodies == []


def probed(engine: Engine) -> Callable[[], Any]:
    async def found() -> bool:
        return engine.probes > 1

    return found


async def test_the_log_names_the_engines(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "pdinference.router.access")
    async with fleet("a/parameter-0", "a/decode-1") as world:
        await world.post()
    fields = json.loads(caplog.records[-1].message)
    assert (fields["prefill"], fields["decode"]) == ("a/parameter-0", "a/decode-1")
