"""A canary finds each fault of the KV transfer, and takes nothing else for one."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from aiohttp import web

from pdinference.api.names import Verification
from pdinference.router import canary
from pdinference.router.canary import Canary
from pdinference.router.canary_outcome import CanaryOutcome
from tests.router.canaries import FAULTS, FAULTY, TOKENS, Client, model
from tests.router.engines import Fleet, abort, status
from tests.router.kv_model import Half, KvModel, Nothing, Transfer, Zeros
from tests.waiting import until


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(canary, "_COUNTERS_S", (0.0, 0.0))


async def sent(world: Fleet, by: Canary) -> CanaryOutcome:
    pods = {pod.observed.name: pod for pod in world.pods}
    return await by.send(pods["p"], pods["d"], 60.0)


async def test_a_right_answer_with_the_kv_cache_of_p_is_verified() -> None:
    async with model() as (world, served, by):
        found = await sent(world, by)
        assert found.state is Verification.VERIFIED, found.reason
        assert (found.distance, found.limit) == (0, 0.15)
        first, second = served.for_decode
        assert served.alone[1:] == [first, second]  # the first one asks whether the model may be asked
        assert all(first[at : at + 128] != second[at : at + 128] for at in range(0, len(second), 128))
        assert found.tokens == len(first) + len(second) == TOKENS


async def test_no_prompt_is_sent_twice() -> None:
    async with model() as (world, served, by):
        for _ in range(3):
            await sent(world, by)
        assert len({kv[:128] for kv in served.for_decode}) == 6


@pytest.mark.parametrize(("fault", "state"), FAULTY)
async def test_each_fault_of_the_transfer_is_found(fault: type[Transfer], state: Verification) -> None:
    async with model(fault()) as (world, _, by):
        found = await sent(world, by)
        assert found.state is state, found.reason
        assert found.tokens > 0


async def test_canaries_of_several_routers_do_not_add_up() -> None:
    """Two canaries of which half arrives have more tokens from P than one that arrives."""
    async with model(Half()) as (world, served, by):
        served.others = [(112, 112), (224, 224)]
        assert (await sent(world, by)).state is Verification.COMPUTED_BY_DECODE


@pytest.mark.parametrize(("left", "state"), [(128, Verification.VERIFIED), (129, Verification.COMPUTED_BY_DECODE)])
async def test_a_connector_may_leave_a_part_of_a_block_to_d(left: int, state: Verification) -> None:
    class Rest(Transfer):
        def __call__(self, sent: tuple[int, ...]) -> tuple[tuple[int, ...], int]:
            return sent, len(sent) - left

    async with model(Rest()) as (world, _, by):
        assert (await sent(world, by)).state is state


async def test_prompts_of_clients_that_d_computes_are_not_those_of_the_canary() -> None:
    """Requests for several answers are not split."""
    async with model() as (world, served, by):
        served.others = [(0, 1000)]
        decode = next(pod for pod in world.pods if pod.observed.name == "d")
        with decode.sending(Client(), 0):
            assert (await sent(world, by)).state is Verification.VERIFIED


@pytest.mark.parametrize("fault", FAULTS[Verification.WRONG_ANSWER])
async def test_wrong_answers_are_found_without_counters(fault: type[Transfer]) -> None:
    async with model(fault()) as (world, served, by):
        world["d"].counters.clear()
        served.counts = False
        assert (await sent(world, by)).state is Verification.WRONG_ANSWER


async def test_rounding_is_no_wrong_answer() -> None:
    async with model() as (world, served, by):
        served.noise = 0.03
        found = await sent(world, by)
        assert found.state is Verification.VERIFIED, found.reason
        assert 0 < found.distance < found.limit


@pytest.mark.parametrize(
    ("fault", "state"), [(Transfer, Verification.VERIFIED), (Half, Verification.COMPUTED_BY_DECODE)]
)
async def test_a_model_that_answers_alike_is_judged_by_counters(fault: type[Transfer], state: Verification) -> None:
    async with model(fault()) as (world, served, by):
        served.sees = lambda _kv: "alike"
        found = await sent(world, by)
        assert found.state is state
        assert (found.distance, found.limit) == (0, 0.15)


async def test_zeros_are_found_although_the_model_answers_both_prompts_alike() -> None:
    """A random model, as that of the local cluster, answers by the mean of the prompt."""
    async with model(Zeros()) as (world, served, by):
        served.sees = lambda kv: kv.count(0) > len(kv) / 2
        found = await sent(world, by)
        assert found.state is Verification.WRONG_ANSWER
        assert found.distance > found.limit == 0.15


@pytest.mark.parametrize("transfer", [None, Nothing()], ids=["arrives", "computed by D"])
async def test_without_counters_a_right_answer_shows_nothing(transfer: Transfer | None) -> None:
    """D answers right, too, if it computes the prompts itself."""
    async with model(transfer) as (world, served, by):
        world["d"].counters.clear()
        served.counts = False
        assert (await sent(world, by)).state is Verification.NOT_APPLICABLE


@pytest.mark.parametrize("role", ["p", "d"])
async def test_a_model_without_probabilities_is_judged_by_counters(role: str) -> None:
    async with model() as (world, served, by):
        if role == "p":
            served.refuses = lambda _path, body: "logprobs" in body
        else:
            served.d_refuses = lambda body: "logprobs" in body
        found = await sent(world, by)
        assert found.state is Verification.VERIFIED
        assert math.isnan(found.distance)


@pytest.mark.parametrize("path", ["/v1/completions", "/tokenize"])
async def test_a_model_that_cannot_be_asked_is_not_judged(path: str) -> None:
    async with model() as (world, served, by):
        served.refuses = lambda asked, _body: asked == path
        found = await sent(world, by)
        assert found.state is Verification.NOT_APPLICABLE
        assert found.reason == f"{path} answers with status 400: by the test"


async def test_a_short_model_is_not_judged() -> None:
    async with model() as (world, served, by):
        served.longest = 448
        assert (await sent(world, by)).state is Verification.NOT_APPLICABLE
        served.longest = 449
        assert (await sent(world, by)).state is Verification.VERIFIED


@pytest.mark.parametrize("pod", ["p", "d"])
@pytest.mark.parametrize(
    "fault",
    [status(500), abort, status(200, {"data": [{}], "tokens": [None], "choices": None})],
    ids=["error", "dies", "malformed"],
)
async def test_a_pod_that_does_not_answer_is_no_wrong_answer(pod: str, fault: Any) -> None:
    async with model() as (world, _, by):
        world[pod].fault = fault
        outcome = await sent(world, by)
        assert (outcome.state, outcome.by_parameter) == (Verification.FAILED, pod == "p")
        assert outcome.reason.startswith(f"{pod} failed: ")


NOT_JSON: Mapping[str, bytes] = {"no UTF-8": b'{"a": "\xff"}', "nested": b'{"a": ' + b"[" * 5000 + b"]" * 5000 + b"}"}


@pytest.mark.parametrize("pod", ["p", "d"])
@pytest.mark.parametrize("answer", NOT_JSON)
async def test_an_answer_that_is_no_json_ends_the_canary_and_not_the_router(pod: str, answer: str) -> None:
    serves: Any = None

    async def fault(request: web.Request) -> Any:
        if request.path in {"/tokenize", "/v1/models"}:
            return await serves(request)
        if (await request.json()).get("kv_transfer_params") is None:
            return web.json_response({"choices": []})
        return web.Response(body=NOT_JSON[answer], content_type="application/json")

    async with model() as (world, _, by):
        assert world[pod].fault is not None
        serves, world[pod].fault = world[pod].fault, fault
        assert (await sent(world, by)).state is Verification.FAILED


async def test_counters_that_cannot_be_read_any_more_say_nothing_of_the_transfer() -> None:
    async with model() as (world, _, by):

        class Unreadable(Transfer):
            def __call__(self, sent: tuple[int, ...]) -> tuple[tuple[int, ...], int]:
                world["d"].metrics = "vllm:prompt_tokens_by_source_total{"
                return super().__call__(sent)

        served = KvModel(world, Unreadable())
        found = await sent(world, by)
        assert served.for_decode
        assert found.state is Verification.FAILED, found.reason
        assert "d failed: unreadable_metrics" in found.reason


@pytest.mark.parametrize("number", [1, 2], ids=["size of a block", "counters before"])
async def test_a_reading_that_fails_once_is_not_taken_for_a_pod_without_counters(number: int) -> None:
    """A busy pod may not answer in time. A D pod without counters would be admitted."""
    async with model() as (world, _, by):
        engine = world["d"]
        await until(lambda: engine.readings, "the first reading of the router's own")
        last = engine.readings + number

        async def fails_once(_request: web.Request) -> web.Response:
            lines = (f"{name} {value}\n" for name, value in engine.counters.items())
            return web.Response(text="".join(lines), status=500 if engine.readings == last else 200)

        engine.metrics_fault = fails_once
        found = await sent(world, by)
        assert found.state is Verification.FAILED, found.reason
        assert found.reason == "d failed: unreadable_metrics"
        assert not found.shows_the_way
        assert (await sent(world, by)).state is Verification.VERIFIED


async def test_a_pod_that_loses_its_address_does_not_end_the_router() -> None:
    """The kubelet removes it when the sandbox of a pod ends; a canary may be under way."""
    async with model() as (world, _, by):

        class Gone(Transfer):
            times = 0

            def __call__(self, sent: tuple[int, ...]) -> tuple[tuple[int, ...], int]:
                self.times += 1
                if self.times == 2:
                    found = {one.observed.uid: one.observed for one in world.engines.values()}
                    found["uid-d"] = replace(found["uid-d"], address="", ready=False)
                    world.pods.observe(found)
                return super().__call__(sent)

        KvModel(world, Gone())
        found = await sent(world, by)
        assert found.state is Verification.FAILED
        assert "unreadable_metrics" in found.reason


async def test_a_canary_that_passes_ends_the_pause_of_its_link() -> None:
    async with model() as (world, _, by):
        parameter, decode = (next(pod for pod in world.pods if pod.observed.name == name) for name in ("p", "d"))
        links = by.dispatcher.links
        links.failed(parameter, decode)
        assert not links.usable(parameter, decode)
        assert (await sent(world, by)).state is Verification.VERIFIED
        assert links.usable(parameter, decode)


async def test_a_p_pod_that_hands_nothing_over_leaves_the_prompt_to_d() -> None:
    async with model() as (world, served, by):
        served.hands_over = False
        assert (await sent(world, by)).state is Verification.COMPUTED_BY_DECODE


async def test_a_d_that_answers_without_p_alone_has_a_fault_of_the_transfer(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that answers nothing in time may have too much load: that is no proof against it."""
    monkeypatch.setattr(canary, "_ALONE_S", 5.0)
    async with model() as (world, served, by):
        served.needed = 2  # a transfer waits for another one, which never comes
        pods = {pod.observed.name: pod for pod in world.pods}
        found = await by.send(pods["p"], pods["d"], 2.0)
        assert found.state is Verification.FAILED
        assert "no answer within 2 s" in found.reason
        assert found.shows_the_way
        await served.go_on()


@pytest.mark.parametrize("fault", [status(503), status(429), abort])
async def test_what_d_answers_before_p_is_asked_shows_nothing_of_the_transfer(fault: Any) -> None:
    async with model() as (world, _, by):
        world["d"].fault = fault
        found = await sent(world, by)
        assert found.state is Verification.FAILED
        assert not found.shows_the_way
