"""The way of each request by what the router has learned (`router.disaggregation: Adaptive`)."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, nullcontext
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from multidict import CIMultiDict

from pdinference.api.names import METRIC_ALONE_PROMPT_TOKENS, METRIC_HANDED_OVER, Role
from pdinference.router.adaptive import Adaptive, Choice
from pdinference.router.calls import Call, read_call
from pdinference.router.pod import Observed, Pod
from pdinference.router.pods import Pods
from pdinference.router.speeds import Speeds
from pdinference.router.usage import Usage
from pdinference.router.ways import Way, WayObjectives
from pdinference.router.why import WayReason
from tests.router import engines
from tests.router.engines import PARAMS, Engine, Fleet, abort, abort_in_stream, events, fleet
from tests.router.model import COMPLETIONS, Model, asking, text
from tests.waiting import until

P, D = Role.PARAMETER, Role.DECODE
ADAPTIVE = {"disaggregation": "Adaptive"}
CHAT = "/v1/chat/completions"
SYSTEM = {"role": "system", "content": "You know a lot. " * 800}
TOKENS = 25e-6


def asked(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def answered(text: str) -> dict[str, str]:
    return {"role": "assistant", "content": text}


async def called(*messages: dict[str, str]) -> Call:
    body = json.dumps({"model": "m", "stream": True, "messages": messages}).encode()
    return await read_call(CHAT, body, "application/json", CIMultiDict())


def learned() -> Speeds:
    """Those of an H100 with a model of 8B, about."""
    speeds = Speeds({P: 512, D: 512})
    for tokens in (100, 500, 1000, 2000, 4000):
        speeds.prompts[P].observe(tokens, 0.004 + tokens * TOKENS)
        speeds.hand_overs.observe(tokens, 0.02 + tokens * 1e-6)
        speeds.steps[D].observe(tokens / 100, 0.007 + tokens * 1e-6)
    return speeds


class World:
    """A P pod and D pods, without requests but those that a test counts."""

    def __init__(self, decode: int = 1, speeds: Speeds | None = None) -> None:
        self.pods = Pods()
        names = ["p", *(f"d{number}" for number in range(decode))]
        roles = {name: P if name == "p" else D for name in names}
        self.pods.observe({name: Observed(name, name, roles[name], name, ready=True) for name in names})
        self.p, *self.d = sorted(self.pods, key=lambda pod: (pod.observed.role is D, pod.observed.name))
        self.adaptive = Adaptive(self.pods, speeds=speeds or learned())

    def choose(self, call: Call, ways: Iterable[Way] = tuple(Way)) -> Choice:
        found = self.adaptive.choose(call, [self.p], self.d, frozenset(ways))
        assert found is not None
        return found

    async def serve(self, call: Call, text: str = "", *, cached: int | None = None) -> Choice:
        """A request goes its way, and is answered."""
        choice = self.choose(call)
        pod = choice.predicted.pod
        with self.adaptive.computing(choice, pod, ends_with_prompt=True):
            pass
        if not choice.is_alone:
            pod = self.d[0]
            with self.adaptive.handing_over(choice, pod, ends_with_first=True):
                pass
        usage = Usage(round(choice.prompt), 100, cached)
        self.adaptive.ended(choice, pod, usage, 0.01, text)
        return choice


def ahead(pod: Pod) -> float:
    return pod.queue.ahead(asyncio.get_running_loop().time())


def busy(pod: Pod, answers: int) -> None:
    """A pod with answers under way."""
    pod.under_way.update(object() for _ in range(answers))  # type: ignore[misc]


async def test_requests_go_through_p_and_d_until_enough_is_known() -> None:
    world = World(speeds=Speeds())
    ways = []
    for number in range(8):
        choice = await world.serve(await called(asked(f"{number} " * 50)))
        ways.append((choice.predicted.way, choice.reason))
    assert ways[:5] == [(Way.SPLIT, WayReason.LEARNING)] * 5
    assert {reason for _, reason in ways[5:]} == {WayReason.COST}


async def test_a_dearer_way_is_taken_if_it_keeps_an_objective_that_the_cheapest_one_misses() -> None:
    """P would generate long answers faster. Its queue is too long for the first token."""
    world = World()
    world.adaptive.speeds.answer.observe(0, 2000)
    world.p.queue.begin(0.5, asyncio.get_running_loop().time())
    busy(world.d[0], 60)
    call = await called(asked("word " * 800))
    free = world.choose(call)
    assert (free.predicted.way, free.reason) == (Way.PARAMETER, WayReason.COST)
    world.adaptive.objectives = WayObjectives(ttft=0.3)
    kept = world.choose(call)
    assert (kept.predicted.way, kept.reason) == (Way.DECODE, WayReason.OBJECTIVES)
    assert kept.explained(None).reason == "objectives"


async def test_the_next_turn_goes_to_the_d_pod_that_had_the_first() -> None:
    world = World(decode=3)
    turn = [SYSTEM, asked("What is it? " * 400)]
    busy(world.d[1], 4)
    first = world.choose(await called(*turn))
    with world.adaptive.handing_over(first, world.d[1], ends_with_first=True):
        pass
    world.adaptive.ended(first, world.d[1], Usage(4000, 100), 0.01, "It is blue.")
    after = world.choose(await called(*turn, answered("It is blue."), asked("Why?")))
    assert (after.predicted.way, after.predicted.pod) == (Way.DECODE, world.d[1])
    assert after.expected > 0.95 * after.prompt
    altered = world.choose(await called(SYSTEM, asked("Where is it? " * 400), answered("It is blue."), asked("Why?")))
    assert altered.expected < 0.8 * altered.prompt


async def test_prompts_that_wait_at_a_pod_count_until_they_are_computed() -> None:
    world = World()
    busy(world.d[0], 8)
    call = await called(asked("word " * 8000))
    alone = world.choose(call, [Way.DECODE])
    with world.adaptive.computing(alone, world.d[0], ends_with_prompt=True):
        behind = world.choose(await called(asked("other " * 8000)), [Way.DECODE])
        assert behind.predicted.first_token > 1.8 * alone.predicted.first_token
    assert ahead(world.d[0]) == 0


async def test_an_answer_that_is_no_stream_holds_its_prompt_for_as_long_as_predicted() -> None:
    """Its first byte is its last one: the prompt has been computed long before."""
    world = World()
    choice = world.choose(await called(asked("word " * 800)), [Way.DECODE])
    with world.adaptive.computing(choice, world.d[0], ends_with_prompt=False):
        assert ahead(world.d[0]) > 0
        computed = asyncio.Event()
        asyncio.get_running_loop().call_later(choice.predicted.first_token, computed.set)  # after the one of the choice
        await computed.wait()
        assert ahead(world.d[0]) == 0


async def test_an_answer_that_is_no_stream_may_be_predicted_at_once() -> None:
    speeds = learned()
    for _ in range(400):
        speeds.prompts[P].observe(10, 1e-5)
    world = World(speeds=speeds)
    choice = world.choose(await called(asked("Hi")), [Way.DECODE])
    assert choice.predicted.first_token < 0.5e-3
    with world.adaptive.computing(choice, world.d[0], ends_with_prompt=False):
        pass
    assert ahead(world.d[0]) == 0


async def test_a_pod_that_fails_keeps_no_prompt_and_teaches_nothing() -> None:
    world = World()
    choice = world.choose(await called(SYSTEM), [Way.DECODE])
    with pytest.raises(OSError), world.adaptive.computing(choice, world.d[0], ends_with_prompt=True):  # noqa: PT011
        raise OSError
    assert ahead(world.d[0]) == 0
    assert world.choose(await called(SYSTEM)).expected == 0
    assert world.adaptive.speeds.prompts[D].observations == 0


async def test_what_vllm_had_evicted_is_there_again_and_less_is_expected_of_all_others() -> None:
    """The pod has computed the prompt once more."""
    world = World()
    turn = [SYSTEM, asked("a")]
    await world.serve(await called(*turn))
    after = await called(*turn, answered("b"), asked("c"))
    before = world.choose(after).expected
    assert before > 2000
    choice = await world.serve(after, cached=0)
    assert choice.is_alone
    pod = choice.predicted.pod
    assert world.adaptive.index.known(choice.chain, [pod]) == {pod: choice.chain.size}
    assert world.choose(await called(*turn, answered("b"), asked("d"))).expected < before


async def test_requests_of_other_router_pods_count_as_its_own() -> None:
    world = World()
    busy(world.d[0], 1)
    call, ways = await called(asked("word " * 2000)), (Way.SPLIT, Way.DECODE)
    assert world.choose(call, ways).predicted.way is Way.DECODE
    world.pods.routers = 20
    assert world.choose(call, ways).predicted.way is Way.SPLIT


# Through the router


def streams(engine: Engine, text: str = "Blue.", cached: int = 0) -> None:
    """Let a pod answer chats with usage, as vLLM does."""

    async def chat(request: web.Request) -> web.StreamResponse:
        if not engine.bodies[-1].get("stream"):
            return web.json_response({"choices": [], "kv_transfer_params": PARAMS})
        response = await events(request)
        details = {"cached_tokens": cached}
        usage = {"prompt_tokens": 3300, "completion_tokens": 2, "prompt_tokens_details": details}
        for part in text[:2], text[2:]:
            await _event(response, {"choices": [{"index": 0, "delta": {"content": part}}]})
        await _event(response, {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
        await _event(response, {"choices": [], "usage": usage, "system_fingerprint": "x"})
        await response.write(b"data: [DONE]\n\n")
        return response

    engine.fault = chat


async def _event(response: web.StreamResponse, document: dict[str, Any]) -> None:
    await response.write(f"data: {json.dumps(document, separators=(',', ':'))}\n\n".encode())


async def chat(world: Fleet, *messages: dict[str, str]) -> tuple[int, Any]:
    status, headers, _ = await world.post({"messages": messages, "stream": True}, path=CHAT)
    return status, headers


async def test_a_later_turn_is_answered_by_d_alone_and_counted() -> None:
    async with fleet("p", "d", rules=ADAPTIVE) as world:
        streams(world["p"])
        streams(world["d"], cached=3200)
        for number in range(5):
            _, headers = await chat(world, SYSTEM, asked(f"Is it {number}?"))
            assert headers["X-PDInference-Way"] == "split"
            assert headers["X-PDInference-Prefill"] == "parameter"
        through_p, handed_over = len(world["p"].bodies), await world.metric(METRIC_HANDED_OVER)
        status, headers = await chat(world, SYSTEM, asked("Is it 4?"), answered("Blue."), asked("Why?"))
        assert status == 200
        assert headers["X-PDInference-Way"] == "decode"
        assert headers["X-PDInference-Prefill"] == "decode"
        assert len(world["p"].bodies) == through_p
        assert "kv_transfer_params" not in world["d"].bodies[-1]
        assert await world.metric(METRIC_HANDED_OVER) == handed_over
        assert await world.metric("pdinference_router_prefill_fallbacks_total") == 0
        assert await world.metric('pdinference_router_ways_total{reason="learning",way="split"}') == 5
        assert await world.metric('pdinference_router_ways_total{reason="cost",way="decode"}') == 1
        assert await world.metric('pdinference_router_cached_prompt_tokens_total{kind="actual"}') == 3200
        expected = await world.metric('pdinference_router_cached_prompt_tokens_total{kind="expected"}')
        assert expected == pytest.approx(3200, rel=0.1)
        assert await world.metric(f'{METRIC_ALONE_PROMPT_TOKENS}{{source="cache"}}') == pytest.approx(expected)
        assert await world.metric("pdinference_router_way_predicted_seconds_total") > 0


async def test_answers_that_are_no_streams_teach_the_ways_too() -> None:
    async def whole(_: web.Request) -> web.Response:
        usage = {"prompt_tokens": 3300, "completion_tokens": 100}
        return web.json_response({"choices": [{"index": 0, "message": {"content": "Blue."}}], "usage": usage})

    async with fleet("p", "d", rules=ADAPTIVE) as world:
        streams(world["p"])
        world["d"].fault = whole
        for number in range(5):
            status, headers, _ = await world.post({"messages": [SYSTEM, asked(f"Is it {number}?")]}, path=CHAT)
            assert (status, headers["X-PDInference-Way"]) == (200, "split")
        assert await world.metric('pdinference_router_ways_total{reason="learning",way="split"}') == 5
        await world.post({"messages": [SYSTEM, asked("Is it 4?"), answered("Blue."), asked("Why?")]}, path=CHAT)
        assert await world.metric('pdinference_router_ways_total{reason="cost"') == 1


async def test_steps_of_an_answer_that_is_no_stream_are_what_its_first_token_leaves() -> None:
    world = World()
    choice = world.choose(await called(asked("word " * 800)), [Way.DECODE])
    with world.adaptive.computing(choice, world.d[0], ends_with_prompt=False):
        pass
    choice.whole_seconds = choice.predicted.first_token + 99 * 0.02
    before = world.adaptive.speeds.step(D, 0)
    world.adaptive.ended(choice, world.d[0], Usage(800, 100, None), None, "")
    assert before < world.adaptive.speeds.step(D, 0) < 0.02


async def test_d_computes_nothing_by_choice_where_it_may_not() -> None:
    async with fleet("p", "d", rules=ADAPTIVE | {"when_no_prefill": "Fail"}) as world:
        streams(world["p"])
        streams(world["d"])
        for number in range(8):
            _, headers = await chat(world, SYSTEM, asked(f"Is it {number}?"))
            assert headers["X-PDInference-Way"] in {"split", "parameter"}


async def test_without_p_d_answers_and_it_is_no_choice() -> None:
    async with fleet("p", "d", rules=ADAPTIVE) as world:
        streams(world["d"])
        world.observe("p")
        status, headers = await chat(world, SYSTEM, asked("Is it?"))
        assert status == 200
        assert "X-PDInference-Way" not in headers
        assert headers["X-PDInference-Prefill"] == "decode"
        assert await world.metric("pdinference_router_prefill_fallbacks_total") == 1


async def test_a_prompt_that_p_fails_goes_no_way_that_was_chosen() -> None:
    """What it took then is no error of a prediction, and nothing is learned of it."""
    async with fleet("p", "d", rules=ADAPTIVE) as world:
        world["p"].fault = engines.status(500)
        streams(world["d"])
        status, headers = await chat(world, SYSTEM, asked("Is it?"))
        assert (status, headers["X-PDInference-Prefill"]) == (200, "decode")
        assert "X-PDInference-Way" not in headers
        assert await world.metric("pdinference_router_prefill_fallbacks_total") == 1
        assert await world.metric("pdinference_router_ways_total") == 0


async def test_the_p_pod_gets_the_prompt_for_which_the_way_was_chosen() -> None:
    """A policy knows nothing of the prompts that a pod has to compute before."""
    async with fleet("p1", "p2", "d", rules=ADAPTIVE | {"when_no_prefill": "Fail"}) as world:
        for engine in world.engines.values():
            streams(engine)
        for number in range(6):
            await chat(world, SYSTEM, asked(f"Is it {number}?"))
        (late,) = (pod for pod in world.pods if pod.observed.name == "p1")
        late.queue.begin(1000, asyncio.get_running_loop().time())
        before = len(world["p1"].bodies)
        for number in range(6):
            assert (await chat(world, SYSTEM, asked(f"And {number}?")))[0] == 200
        assert len(world["p1"].bodies) == before


async def test_a_pod_that_dies_is_replaced_by_another_way() -> None:
    async with fleet("p", "d1", "d2", rules=ADAPTIVE) as world:
        for engine in world.engines.values():
            streams(engine)
        for number in range(6):
            await chat(world, SYSTEM, asked(f"Is it {number}?"))
        world["d1"].fault = abort
        for number in range(6):
            status, _ = await chat(world, SYSTEM, asked(f"Is it {number}?"), answered("Blue."), asked("Why?"))
            assert status == 200


@pytest.mark.parametrize("breaks_off", [True, False])
async def test_nothing_is_learned_of_an_answer_that_breaks_off(
    monkeypatch: pytest.MonkeyPatch, *, breaks_off: bool
) -> None:
    """With `continuous_usage_stats` each of its chunks has a usage, of the tokens until then."""
    learned_of, ended = list[Usage](), Adaptive.ended

    def note(self: Adaptive, choice: Choice, pod: Pod, usage: Usage, *others: Any) -> None:
        learned_of.append(usage)
        ended(self, choice, pod, usage, *others)

    async def answer(request: web.Request) -> web.StreamResponse:
        response = await events(request)
        usage = {"prompt_tokens": 9, "completion_tokens": 1, "total_tokens": 10}
        chunk = {"choices": [{"index": 0, "delta": {"content": "a"}}], "usage": usage}
        await response.write(b"data: " + json.dumps(chunk).encode() + b"\n\n")
        if breaks_off:
            assert request.transport is not None
            request.transport.close()
        return response

    monkeypatch.setattr(Adaptive, "ended", note)
    options = {"include_usage": True, "continuous_usage_stats": True}
    body = {"messages": [asked("hello")], "stream": True, "stream_options": options}
    async with fleet("p", "d", rules=ADAPTIVE) as world:
        world["d"].fault = answer
        with nullcontext() if not breaks_off else pytest.raises(aiohttp.ClientPayloadError):
            await world.post(body, path=CHAT)
        await until(lambda: not any(pod.under_way for pod in world.pods), "the request has ended")
    assert len(learned_of) == (not breaks_off)


@asynccontextmanager
async def p_costs_least(*names: str, **rules: object) -> AsyncIterator[Fleet]:
    """A router that knows its pods. D pods have prompts for the next minutes, so that P is to answer alone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pdinference.router.dispatch.Speeds", lambda _step_tokens: learned())
        async with fleet(*names, rules=ADAPTIVE | rules) as world:
            for engine in world.engines.values():
                streams(engine)
            for pod in world.pods:
                if pod.observed.role is D:
                    pod.queue.begin(1000, asyncio.get_running_loop().time())
            yield world


async def test_p_answers_alone_and_hands_nothing_over() -> None:
    async with p_costs_least("p", "d") as world:
        status, headers = await chat(world, asked("Is it?"))
        assert (status, headers["X-PDInference-Way"], headers["X-PDInference-Prefill"]) == (
            200, "parameter", "parameter"
        )  # fmt: skip
        (body,) = world["p"].bodies
        assert body["stream"]
        assert "kv_transfer_params" not in body
        assert world["d"].bodies == []
        assert await world.metric(METRIC_HANDED_OVER) == 0
        assert await world.metric("pdinference_router_prefill_fallbacks_total") == 0
        assert await world.metric('pdinference_router_ways_total{reason="cost",way="parameter"}') == 1
        assert {pod.answers for pod in world.pods} == {0}


async def test_a_request_that_cannot_be_split_stays_with_d() -> None:
    """Several answers of one prompt: D has them whatever they cost, as with Always."""
    async with p_costs_least("p", "d") as world:
        status, headers, _ = await world.post({"messages": [asked("Is it?")], "stream": True, "n": 2}, path=CHAT)
        assert status == 200
        assert "X-PDInference-Way" not in headers
        assert world["p"].bodies == []


@pytest.mark.parametrize(("names", "prefill"), [(("p", "d"), "decode"), (("p1", "p2", "d"), "parameter")], ids=str)
async def test_a_p_pod_that_dies_before_it_answers_alone_is_replaced(names: tuple[str, ...], prefill: str) -> None:
    async with p_costs_least(*names) as world:
        world[names[0]].fault = abort
        for number in range(4):
            status, headers = await chat(world, asked(f"Is it {number}?"))
            assert (status, headers["X-PDInference-Prefill"]) == (200, prefill)
        assert await world.metric("pdinference_router_pod_failures_total") >= 1


async def test_a_stream_of_p_alone_ends_with_an_error_event_where_its_pod_dies() -> None:
    async with p_costs_least("p", "d") as world:
        world["p"].fault = abort_in_stream
        async with world.client.post(world.url + COMPLETIONS, json=asking(COMPLETIONS)) as answer:
            assert answer.headers["X-PDInference-Way"] == "parameter"
            got = [part async for part in _parts(answer)]
        assert b"The P pod failed (disconnected)." in b"".join(got)


async def _parts(answer: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """What comes of a response that is not complete."""
    while True:
        try:
            yield await answer.content.readany()
        except aiohttp.ClientPayloadError:
            return


async def test_a_stream_of_p_alone_goes_on_at_another_pod_with_the_same_tokens() -> None:
    async with p_costs_least("p", "d", migration=True) as world:
        world["p"].fault, world["d"].fault = Model(400), Model()
        body = asking(COMPLETIONS)
        async with world.client.post(world.url + COMPLETIONS, json=body) as answer:
            assert answer.headers["X-PDInference-Way"] == "parameter"
            assert text(await answer.read()) == text(Model.stream(COMPLETIONS, body))
        assert await world.metric("pdinference_router_migrations_total") == 1
