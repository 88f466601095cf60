"""A router is ready after a canary has gone through P and D, and finds each fault of the transfer."""

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import groupby
from typing import Any

import pytest
from aiohttp import web

from pdinference.api.names import (
    METRIC_VERIFICATION,
    METRIC_VERIFICATION_DISTANCE,
    METRIC_VERIFICATION_LIMIT,
    METRIC_VERIFICATION_TOKENS,
    PodFault,
    Verification,
)
from pdinference.engine.connectors.registry import HANDOVERS
from pdinference.loadmetrics.scraping.fetch import Share
from pdinference.router import canary, verification
from pdinference.router.canary import Canary, CanaryOutcome, _judged
from pdinference.router.choice import policies
from pdinference.router.dispatch import Dispatcher, Rules
from pdinference.router.pod import Admission
from pdinference.router.record import Metrics, Telemetry
from pdinference.router.tracing import Tracer
from pdinference.router.verification import Verifier
from tests.router.engines import D, Fleet, abort, fleet, hang, hang_in_answer, status
from tests.router.kv_model import Half, HalfZeros, KvModel, Nothing, OthersBlocks, Transfer, Zeros
from tests.waiting import LONG_S, until

FAULTS: Mapping[Verification, tuple[type[Transfer], ...]] = {
    Verification.WRONG_ANSWER: (Zeros, OthersBlocks, HalfZeros),
    Verification.COMPUTED_BY_DECODE: (Nothing, Half),
}
FAULTY = [(fault, state) for state, faults in FAULTS.items() for fault in faults]
ANSWERS = "vllm:request_generation_tokens"
TOKENS = 448 + 224


class Client:
    """A request of a client."""

    began_at = 0.0
    waits_for_kv_cache = False
    stream = False

    def abort(self, reason: str) -> None:
        raise AssertionError(reason)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(canary, "_COUNTERS_S", (0.0, 0.0))
    monkeypatch.setattr(verification, "_FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr(verification, "_LONGEST_PAUSE_S", 0.01)
    monkeypatch.setattr(verification, "_ROUND_S", 0.01)


@asynccontextmanager
async def model(transfer: Transfer | None = None, *names: str) -> AsyncIterator[tuple[Fleet, KvModel, Canary]]:
    async with fleet(*(names or ("p", "d"))) as world:
        dispatcher = Dispatcher(world.pods, world.client, Rules(HANDOVERS["nixl"], policies("least_loaded")))
        yield world, KvModel(world, transfer), Canary(dispatcher, Telemetry(Metrics(), Tracer(None)), Share())


async def sent(world: Fleet, by: Canary) -> CanaryOutcome:
    pods = {pod.observed.name: pod for pod in world.pods}
    return await by.send(pods["p"], pods["d"], 60.0)


async def once(verifier: Verifier, *, later: float = 7200.0) -> None:
    """Let time pass, send the canaries that are due, and wait until they have ended."""
    clock = verifier._clock
    verifier._clock = lambda: clock() + later
    await asyncio.gather(*(verifier.send(*pair) for pair in verifier.due()))


async def readiness(world: Fleet) -> tuple[int, str]:
    async with world.client.get(f"{world.state}/readyz") as answer:
        return answer.status, await answer.text()


async def exported(world: Fleet) -> str:
    async with world.client.get(f"{world.state}/metrics") as answer:
        lines = (await answer.text()).splitlines()
    (state,) = (line for line in lines if line.startswith(f"{METRIC_VERIFICATION}{{") and line.endswith(" 1.0"))
    return state.partition('state="')[2].partition('"')[0]


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


async def test_one_canary_that_d_seems_to_compute_is_sent_again() -> None:
    """D may have computed prompts of clients that came through another router."""
    async with model() as (world, served, by):
        served.others = [(0, 1000)]
        verifier = Verifier(world.pods, by, "Required")
        await once(verifier)
        assert not verifier.refusal


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


def test_an_answer_without_probabilities_hides_no_wrong_one() -> None:
    right, wrong = {"a": 1.0}, {"b": 1.0}
    for through in ([None, wrong], [wrong, None]):
        found = _judged(10, through, [right, right], arrived=True)
        assert (found.state, found.distance) == (Verification.WRONG_ANSWER, 1.0)


@pytest.mark.parametrize("path", ["/v1/completions", "/tokenize"])
async def test_a_model_that_cannot_be_asked_is_not_judged(path: str) -> None:
    async with model() as (world, served, by):
        served.refuses = lambda asked, _body: asked == path
        found = await sent(world, by)
        assert found.state is Verification.NOT_APPLICABLE
        assert path in found.reason


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


@pytest.mark.parametrize("pod", ["p", "d"])
async def test_a_canary_that_gets_no_answer_ends(pod: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verification, "_LONGEST_S", 0.05)
    monkeypatch.setattr(canary, "_PARAMETER_S", 0.05)
    async with model() as (world, _, by):
        world[pod].fault = hang
        verifier = Verifier(world.pods, by, "Required")
        await once(verifier)
        assert Verification.FAILED in verifier.refusal
        assert f"{pod} failed: no answer within 0.05 s" in verifier.refusal
        (states, *_) = verifier.collect()
        (labels,) = (sample.labels for sample in states.samples if sample.value)
        named = {"parameter": labels["parameter"], "decode": labels["decode"]}
        assert named == {"parameter": "", "decode": ""} | {"p": {"parameter": "p"}, "d": {"decode": "d"}}[pod]


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
        links = by.dispatcher._links
        links.failed(parameter, decode)
        assert not links.usable(parameter, decode)
        assert (await sent(world, by)).state is Verification.VERIFIED
        assert links.usable(parameter, decode)


async def test_a_p_pod_that_hands_nothing_over_leaves_the_prompt_to_d() -> None:
    async with model() as (world, served, by):
        served.hands_over = False
        assert (await sent(world, by)).state is Verification.COMPUTED_BY_DECODE


@asynccontextmanager
async def router(transfer: Transfer, mode: str) -> AsyncIterator[tuple[Fleet, KvModel]]:
    """A router whose pods have the model from the start."""
    async with fleet("p", "d") as world:
        served = KvModel(world, transfer)
        await world.restart(verification=mode)
        yield world, served


async def test_it_becomes_ready_when_the_kv_cache_arrives() -> None:
    async with router(Zeros(), "Required") as (world, served):

        async def told() -> bool:
            return await exported(world) == Verification.WRONG_ANSWER

        await until(told, "the wrong answer is found")
        code, text = await readiness(world)
        assert code == 503
        assert "wrong_answer" in text
        served.transfer = Transfer()

        async def ready() -> bool:
            return (await readiness(world))[0] == 200

        await until(ready, "the router is ready")
        assert await exported(world) == Verification.VERIFIED
        assert await world.metric(METRIC_VERIFICATION_TOKENS) == TOKENS
        assert await world.metric(METRIC_VERIFICATION_DISTANCE) == 0 < await world.metric(METRIC_VERIFICATION_LIMIT)


@pytest.mark.parametrize(("fault", "state"), FAULTY)
async def test_a_fault_keeps_a_router_from_getting_ready(fault: type[Transfer], state: Verification) -> None:
    async with model(fault()) as (world, _, by):
        verifier = Verifier(world.pods, by, "Required")
        assert Verification.PENDING in verifier.refusal
        for _ in range(2):
            await once(verifier)
            assert state in verifier.refusal


async def test_with_warn_it_is_ready_and_says_what_is_wrong() -> None:
    async with router(Zeros(), "Warn") as (world, _):
        assert (await readiness(world))[0] == 200

        async def told() -> bool:
            return await exported(world) == Verification.WRONG_ANSWER

        await until(told, "the wrong answer is exported")
        assert (await readiness(world))[0] == 200


async def test_when_off_nothing_is_sent() -> None:
    async with router(Zeros(), "Off") as (world, served):
        assert (await readiness(world))[0] == 200
        assert await exported(world) == Verification.OFF
        assert not served.alone + served.for_decode


async def test_a_verified_router_stays_ready_and_says_what_is_wrong_later() -> None:
    async with model() as (world, served, by):
        verifier = Verifier(world.pods, by, "Required")
        await once(verifier)
        served.transfer = Zeros()
        await once(verifier)
        assert not verifier.refusal
        (states, *_) = verifier.collect()
        assert [sample.labels["state"] for sample in states.samples if sample.value] == [Verification.WRONG_ANSWER]


async def test_one_answer_that_differs_is_asked_again() -> None:
    """Rounding can do that once."""

    class Once(Zeros):
        times = 0

        def __call__(self, sent: tuple[int, ...]) -> tuple[tuple[int, ...], int]:
            self.times += 1
            return super().__call__(sent) if self.times <= 2 else (sent, len(sent))

    async with model(Once()) as (world, _, by):
        verifier = Verifier(world.pods, by, "Required")
        await once(verifier)
        assert not verifier.refusal


@pytest.mark.parametrize("fault", [fault for fault, _ in FAULTY])
async def test_a_revision_that_serves_already_is_not_lost_with_its_router(fault: type[Transfer]) -> None:
    """The only router pod starts again while KV cache does not get through: D answers, as it did before."""
    async with model(fault()) as (world, _, by):
        for tokens, refused in ((7, True), (8, False)):  # 7 answers of one token are those of canaries
            world["d"].counters |= {f"{ANSWERS}_count": 7, f"{ANSWERS}_sum": tokens}
            verifier = Verifier(world.pods, by, "Required")
            await once(verifier)
            assert bool(verifier.refusal) == refused


async def test_it_waits_for_pods() -> None:
    async with model() as (world, served, by):
        world.observe("p")
        verifier = Verifier(world.pods, by, "Required")
        await once(verifier)
        assert Verification.PENDING in verifier.refusal
        assert not served.for_decode


def after(seconds: float, state: Verification = Verification.VERIFIED) -> Verifier:
    """A verifier whose last canary took so long."""
    verifier = Verifier(None, None, "Warn")  # type: ignore[arg-type]
    verifier._repeated = replace(verifier._repeated, seconds=seconds, outcome=CanaryOutcome(state, ""))
    return verifier


def test_canaries_are_a_small_part_of_the_load() -> None:
    assert after(0.1)._pause(0) == 600
    assert after(2.0)._pause(0) == 2000
    assert after(60.0)._pause(0) == 3600


async def test_a_service_that_is_always_busy_is_checked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A canary waits for rest, but not forever: the verdict would be of a state long ago."""
    for name, seconds in (("_REPEATED_S", 0.0), ("_SELDOM_S", 0.05), ("_LOAD", 0)):
        monkeypatch.setattr(verification, name, seconds)
    async with model() as (world, served, by):
        decode = next(pod for pod in world.pods if pod.observed.name == "d")
        verifier = Verifier(world.pods, by, "Required")
        with decode.sending(Client(), 0):
            sends = asyncio.create_task(verifier.forever())

            async def is_found(state: Verification) -> bool:
                return verifier.state is state

            try:
                await until(lambda: is_found(Verification.VERIFIED), "a canary went through", within=10)
                served.transfer = Zeros()
                await until(lambda: is_found(Verification.WRONG_ANSWER), "the fault is found", within=10)
            finally:
                sends.cancel()


def test_canaries_under_load_are_a_thousandth_of_the_time_at_most() -> None:
    assert after(0.5)._patience(0) == 3600
    assert after(48.0)._patience(0) == 48_000
    assert after(0.5)._patience(1) == 600, "a fault may have ended"


async def test_a_canary_without_an_answer_is_soon_followed_by_another_one() -> None:
    """Otherwise `Failing` would stay in the status for an hour after a pod was lost for a minute."""
    async with model() as (world, _, by):
        verifier = Verifier(world.pods, by, "Warn")
        world["p"].fault = status(500)
        await once(verifier)
        assert verifier.state is Verification.FAILED
        verifier._repeated = replace(verifier._repeated, seconds=60.0)
        assert verifier._pause(1) < 60


async def test_a_failure_is_followed_by_a_canary_at_rest() -> None:
    """Otherwise the status would keep the fault, or hide it, for up to an hour of rest."""
    now = 0.0
    async with model() as (world, _, by):
        world.pods._clock = lambda: now
        verifier = Verifier(world.pods, by, "Warn", clock=lambda: now)
        await once(verifier, later=0)
        verifier._repeated = replace(verifier._repeated, seconds=3.0)
        parameter = next(pod for pod in world.pods if pod.observed.name == "p")
        seen = [pod.observed for pod in world.pods]
        changes: tuple[Callable[[], None], ...] = (
            lambda: world.pods.failed(parameter),
            lambda: world.pods.observe({one.uid: replace(one, restarts=1) for one in seen}),
            world.pods.doubt,
        )
        for change in changes:
            now += 30.0
            change()
            now += 300.0
            assert not verifier.due(), "requests of before decide about the status"
            now += 60.0
            assert verifier.due()
            await once(verifier, later=0)
            verifier._repeated = replace(verifier._repeated, seconds=3.0)
            assert not verifier.due(), "one canary is enough"


async def test_a_fault_is_tried_again_soon_at_rest_however_long_its_canary_took() -> None:
    """Otherwise `WrongAnswers` would stay in the status for an hour after its end."""
    async with model(Zeros()) as (world, _, by):
        verifier = Verifier(world.pods, by, "Warn")
        await once(verifier)
        assert verifier.state is Verification.WRONG_ANSWER
        verifier._repeated = replace(verifier._repeated, seconds=3.0)
        assert verifier._pause(1) == verification._FIRST_PAUSE_S
        assert verifier._pause(99) == 600


MANY = ("p1", "p2", "d1", "d2", "d3", "d4", "d5", "d6")


def tried(served: KvModel) -> list[str]:
    """The D pods in the order of their canaries, each of which has two prompts."""
    return [decode for decode, _ in groupby(decode for _, decode in served.ways)]


async def every(verifier: Verifier) -> None:
    """A canary to each of the D pods, which are more than are tried at once."""
    for _ in range(2):
        await once(verifier, later=0)


def entitled(world: Fleet) -> set[str]:
    """The D pods that requests of clients may go to."""
    return {pod.observed.name for pod in world.pods.available(D)}


async def test_each_d_pod_is_tried_before_the_router_is_ready() -> None:
    async with model(None, *MANY) as (world, served, by):
        verifier = Verifier(world.pods, by, "Required")
        served.needed = 4
        await once(verifier, later=0)
        assert "not verified (pending)" in verifier.refusal
        assert "4 of 6 D pods have passed a canary" in verifier.refusal
        await once(verifier, later=0)
        assert not verifier.refusal
        assert sorted(decode for _, decode in served.ways) == sorted([*MANY[2:], *MANY[2:]])
        assert {parameter for parameter, _ in served.ways} == {"p1", "p2"}, "P pods take turns"
        assert served.most == 4, "a few at once, so that many D pods do not take long"


async def test_engines_that_share_a_pod_are_tried_with_each_other() -> None:
    names = ("a/p", "a/d1", "a/d2", "b/p", "b/d1", "c/d1")
    async with model(None, *names) as (world, served, by):
        verifier = Verifier(world.pods, by, "Required")
        await once(verifier)
        assert set(served.ways) == {("a/p", "a/d1"), ("a/p", "a/d2"), ("b/p", "b/d1")}
        assert not verifier.refusal, "requests to the D of c need no KV transfer"


@pytest.mark.parametrize("fault", FAULTS[Verification.WRONG_ANSWER])
async def test_wrong_answers_of_one_d_pod_keep_requests_from_all(fault: type[Transfer]) -> None:
    async with model(None, *MANY) as (world, served, by):
        served.faulty["d4"] = fault()
        verifier = Verifier(world.pods, by, "Required")
        await every(verifier)
        before = len(served.ways)
        await once(verifier)
        assert {decode for _, decode in served.ways[before:]} == {"d4"}, "the others have passed"
        assert verifier.state is Verification.WRONG_ANSWER
        assert " to d4 is not verified (wrong_answer)" in verifier.refusal
        assert "5 of 6 D pods have passed a canary" in verifier.refusal
        served.faulty.clear()
        await once(verifier)
        assert not verifier.refusal


NO_PROOF: Mapping[str, Any] = {
    "hangs": hang,
    "hangs after the first byte": hang_in_answer,
    "resets connections": abort,
    "answers 500": status(500),
    "gets nothing": Nothing(),
    "gets half": Half(),
}


def harm(world: Fleet, served: KvModel, name: str, fault: Any) -> None:
    """Give a D pod a fault that does not make its answers wrong."""
    if isinstance(fault, Transfer):
        served.faulty[name] = fault
    else:
        world[name].fault = fault


@pytest.mark.parametrize("fault", NO_PROOF)
async def test_a_d_pod_without_a_good_canary_gets_no_requests(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verification, "_LONGEST_S", 1.0)
    async with model(None, *MANY) as (world, served, by):
        harm(world, served, "d4", NO_PROOF[fault])
        verifier = Verifier(world.pods, by, "Required")
        await every(verifier)
        assert " to d4 is not verified" in verifier.refusal, "other D pods may need a second canary"
        await once(verifier, later=verification._OTHERS_S)
        assert not verifier.refusal
        assert entitled(world) == {*MANY[2:]} - {"d4"}
        (states, *_) = verifier.collect()
        assert [sample.labels["decode"] for sample in states.samples if sample.value] == ["d4"]
        served.serve(world["d4"])
        served.faulty.clear()
        await once(verifier, later=verification._LONGEST_PAUSE_S)
        assert entitled(world) == {*MANY[2:]}
        assert verifier.state is Verification.VERIFIED


async def test_other_d_pods_get_requests_when_all_that_have_passed_are_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verification, "_LONGEST_S", 1.0)
    async with model(None, "p", "d1", "d2") as (world, _served, by):
        world["d2"].fault = hang
        verifier = Verifier(world.pods, by, "Required")
        await every(verifier)
        await once(verifier, later=verification._OTHERS_S)
        assert entitled(world) == {"d1"}
        (first,) = (pod for pod in world.pods if pod.observed.name == "d1")
        world.pods.failed(first)
        assert entitled(world) == set(), "its pause is short"
        world.pods.failed(first)
        assert entitled(world) == {"d2"}
        world.pods.worked(first)
        assert entitled(world) == {"d1"}


async def test_a_revision_of_which_few_d_pods_are_well_gets_no_requests() -> None:
    """The old one serves with all of its pods."""
    async with model(None, *MANY) as (world, served, by):
        for name in ("d1", "d2", "d3", "d4"):
            world[name].fault = abort
        verifier = Verifier(world.pods, by, "Required")
        await every(verifier)
        for pod in world.pods:
            if pod.observed.name == "d1":
                world.pods.failed(pod)  # for some time it can get no canary
        await once(verifier)
        assert "2 of 6 D pods have passed a canary" in verifier.refusal
        served.serve(world["d2"])
        await once(verifier)
        assert not verifier.refusal
        assert entitled(world) == {"d2", "d5", "d6"}


async def test_requests_go_to_d_pods_that_have_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verification, "_OTHERS_S", 0.0)
    async with fleet("p", "d1", "d2") as world:
        served = KvModel(world)
        world["d2"].fault = status(500)
        await world.restart(verification="Required")

        async def ready() -> bool:
            return (await readiness(world))[0] == 200

        async def both() -> bool:
            return len(entitled(world)) == 2

        await until(ready, "the router is ready")
        answers = [await world.post() for _ in range(6)]
        assert {code for code, *_ in answers} == {200}
        assert {decode for _, decode in served.ways} == {"d1"}
        assert await world.metric(f'{METRIC_VERIFICATION}{{decode="d2",parameter="",state="failed"}}') == 1
        served.serve(world["d2"])
        await until(both, "the canary to d2 has passed")
        await asyncio.gather(*(world.post() for _ in range(6)))
        assert {decode for _, decode in served.ways[-6:]} == {"d1", "d2"}


async def test_d_pods_that_never_answer_do_not_delay_one_that_joins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verification, "_LONGEST_S", 0.3)
    async with model(None, *MANY) as (world, _, by):
        for name in ("d1", "d2", "d3", "d4"):
            world[name].fault = hang
        world.observe("d5", "d6")
        verifier = Verifier(world.pods, by, "Required")
        await once(verifier)
        second = asyncio.create_task(once(verifier))

        async def hang_again() -> bool:
            return all(world[name].lines.count("GET /v1/models") == 2 for name in ("d1", "d2", "d3", "d4"))

        monkeypatch.setattr(verification, "_LONGEST_S", 60.0)
        await until(hang_again, "the canaries are sent again")
        world.observe()
        await once(verifier)
        assert entitled(world) == {"d5", "d6"}
        assert not second.done()
        second.cancel()


async def test_the_time_for_d_grows_with_each_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verification, "_LONGEST_S", 0.05)
    async with model() as (world, _, by):
        world["d"].fault = hang
        verifier = Verifier(world.pods, by, "Required")
        found = []
        for _ in range(5):
            await once(verifier)
            found.append(verifier.refusal.partition("within ")[2].partition(" s")[0])
        assert found == ["0.05", "0.1", "0.2", "0.4", "0.4"]


def restart(world: Fleet, name: str) -> None:
    """The kubelet has started a container again between two looks."""
    found = [replace(engine.observed, restarts=engine.name == name) for engine in world.engines.values()]
    world.pods.observe({one.uid: one for one in found})


def refuse(world: Fleet, name: str) -> None:
    """A process has ended that its kubelet does not see, and the next one is up."""
    pod = next(pod for pod in world.pods if pod.observed.name == name)
    world.pods.failed(pod, PodFault.REFUSES)
    pod.paused_until = 0.0
    world.pods.answered(pod)


def be_away(world: Fleet, name: str) -> None:
    world.observe(name)
    world.observe()


@pytest.mark.parametrize("again", [restart, refuse, be_away])
async def test_what_a_process_has_proven_ends_with_it(again: Callable[[Fleet, str], None]) -> None:
    async with model(None, "p", "d1", "d2") as (world, served, by):
        verifier = Verifier(world.pods, by, "Required")
        await once(verifier, later=0)
        assert entitled(world) == {"d1", "d2"}
        again(world, "d2")
        assert entitled(world) == {"d1"}
        await once(verifier, later=0)
        assert tried(served)[-1] == "d2"
        assert entitled(world) == {"d1", "d2"}


async def test_without_p_each_d_pod_gets_requests() -> None:
    async with model(None, "p", "d1", "d2") as (world, _, by):
        world.observe("d2")
        await once(Verifier(world.pods, by, "Required"))
        world.observe()
        assert entitled(world) == {"d1"}
        world.observe("p")
        assert entitled(world) == {"d1", "d2"}, "there is no KV transfer"
        world.observe("d1")
        assert entitled(world) == {"d2"}, "an answer rather than none"


async def test_a_router_becomes_ready_when_a_d_pod_with_a_fault_goes_away(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_FIRST_PAUSE_S", "_LONGEST_PAUSE_S"):
        monkeypatch.setattr(verification, name, 3600.0)
    async with fleet("p", "d1", "d2") as world:
        served = KvModel(world)
        served.faulty["d2"] = Zeros()
        await world.restart(verification="Required")

        async def refused() -> bool:
            return "to d2 is not verified (wrong_answer)" in (await readiness(world))[1]

        async def ready() -> bool:
            return (await readiness(world))[0] == 200

        await until(refused, "the fault is found")
        assert await world.metric(f'{METRIC_VERIFICATION}{{decode="d2",parameter="",state="wrong_answer"}}') == 1
        sent = len(served.ways)
        world.observe("d2")
        await until(ready, "the router is ready")
        assert await exported(world) == Verification.VERIFIED
        assert len(served.ways) == sent, "what is verified is not tried again"


@pytest.mark.parametrize("fault", [None, Zeros])
async def test_a_d_pod_that_joins_gets_requests_after_its_canary(fault: type[Transfer] | None) -> None:
    async with model(None, "p", "d1", "d2", "d3") as (world, served, by):
        if fault is not None:
            served.faulty["d3"] = fault()
        world.observe("d3")
        verifier = Verifier(world.pods, by, "Required")
        await once(verifier)
        assert not verifier.refusal
        world.observe()
        busy = next(pod for pod in world.pods if pod.observed.name == "d1")
        with busy.sending(Client(), 0):  # it does not wait for rest
            assert entitled(world) == {"d1", "d2"}
            await once(verifier, later=0)
        assert tried(served)[-1] == "d3"
        assert not verifier.refusal, "a revision that serves stays in service"
        assert verifier.state is (Verification.VERIFIED if fault is None else Verification.WRONG_ANSWER)
        assert entitled(world) == ({"d1", "d2", "d3"} if fault is None else {"d1", "d2"})


async def test_with_warn_a_d_pod_that_joins_is_tried_at_rest_at_once_and_under_load_seldom() -> None:
    now = 0.0
    async with model(None, "p", "d1", "d2") as (world, served, by):
        world.observe("d2")
        verifier = Verifier(world.pods, by, "Warn", clock=lambda: now)
        await once(verifier, later=0)
        verifier._repeated = replace(verifier._repeated, seconds=0.5)
        assert not verifier.due()
        world.observe()
        assert verifier.due()
        assert entitled(world) == {"d1", "d2"}
        busy = next(pod for pod in world.pods if pod.observed.name == "d1")
        with busy.sending(Client(), 0):
            assert not verifier.due()
            now = 499.0
            assert not verifier.due()
            now = 500.0
            assert verifier.due(), "so this canary and the last one are a thousandth of the time"
            await once(verifier, later=0)
            assert tried(served)[-1] == "d2"
            now = 1100.0
            assert not verifier.due(), "each D pod has been tried"


async def test_a_d_pod_that_was_not_ready_is_forgotten_and_tried_again() -> None:
    async with model(None, "p", "d1", "d2", "d3") as (world, served, by):
        served.faulty["d3"] = Zeros()
        verifier = Verifier(world.pods, by, "Warn")
        for _ in range(3):
            await once(verifier)
        states = [verifier.state]
        world.observe("d3")
        await once(verifier)
        states.append(verifier.state)
        assert states == [Verification.WRONG_ANSWER, Verification.VERIFIED]
        world.observe()
        await once(verifier)
        assert tried(served) == ["d1", "d2", "d3", "d1", "d3"]


async def test_the_state_is_that_of_the_worst_d_pod() -> None:
    """Otherwise a fault of one would end in the status with the next canary to another one."""
    async with model(None, "p", "d1", "d2", "d3") as (world, served, by):
        served.faulty |= {"d1": Nothing(), "d2": Zeros()}
        verifier = Verifier(world.pods, by, "Warn")
        for _ in range(3):
            await once(verifier)
        assert sorted(tried(served)) == ["d1", "d2", "d3"]
        for _ in range(2):
            await once(verifier)
            assert verifier.state is Verification.WRONG_ANSWER
        assert "d3" not in tried(served)[3:], "a D pod with a fault is tried before those without"
        served.faulty.clear()
        for _ in range(2):
            await once(verifier)
        assert verifier.state is Verification.VERIFIED


async def test_d_pods_that_serve_are_admitted_without_a_canary() -> None:
    """Their router is replaced."""
    async with model(None, "p", "d1", "d2", "d3") as (world, served, by):
        for name in ("d1", "d2"):
            world[name].counters |= {f"{ANSWERS}_count": 7, f"{ANSWERS}_sum": 8}
        world["d3"].fault = hang
        verifier = Verifier(world.pods, by, "Required")
        opens = asyncio.create_task(once(verifier))

        async def is_open() -> bool:
            return not verifier.refusal and entitled(world) == {"d1", "d2"}

        await until(is_open, "requests may come")
        assert not served.ways
        opens.cancel()


class Queue:
    """P's queue: prompts wait in it until it is empty."""

    def __init__(self, world: Fleet) -> None:
        self._moves = asyncio.Event()
        self._served = world["p"].fault
        world["p"].fault = self._wait

    async def _wait(self, request: web.Request) -> Any:
        await self._moves.wait()
        assert self._served is not None
        return await self._served(request)

    def empty(self) -> None:
        self._moves.set()


@asynccontextmanager
async def joining(*names: str, now: list[float]) -> AsyncIterator[tuple[Fleet, KvModel, Verifier, Queue]]:
    """D pods that join a revision that serves with d1, while prompts wait at P; and the verifier, which runs."""
    async with model(None, "p", "d1", *names) as (world, served, by):
        world.observe(*names)
        verifier = Verifier(world.pods, by, "Required", clock=lambda: now[0])
        await asyncio.gather(*(verifier.send(*pair) for pair in verifier.due()))
        assert not verifier.refusal
        queue = Queue(world)
        world.observe()
        runs = asyncio.create_task(verifier.forever())
        try:
            yield world, served, verifier, queue
        finally:
            runs.cancel()


async def waits_for_parameter(world: Fleet, *names: str) -> None:
    """Wait until the D pods have answered all that they are asked before P is."""

    async def are_done() -> bool:
        pods = [pod for pod in world.pods if pod.observed.name in names]
        return all(world[name].lines[-1:] == ["POST /v1/completions"] for name in names) and not any(
            pod.under_way for pod in pods
        )

    await until(are_done, "the canaries wait for P")


async def rounds(verifier: Verifier) -> None:
    """Let the verifier look at least once at what has changed."""
    looked = asyncio.Event()
    judge = verifier._judge

    def noted() -> None:
        judge()
        looked.set()

    verifier._judge = noted  # type: ignore[method-assign]
    await asyncio.wait_for(looked.wait(), LONG_S)
    verifier._judge = judge  # type: ignore[method-assign]


async def test_a_d_pod_that_joins_does_not_wait_for_an_overloaded_p() -> None:
    """Its canary waits behind the prompts of clients, for minutes, just when its help is needed."""
    now = [0.0]
    async with joining("d2", now=now) as (world, served, verifier, queue):
        await waits_for_parameter(world, "d2")
        now[0] = verification._PATIENCE_S - 1
        await rounds(verifier)
        assert entitled(world) == {"d1"}
        now[0] = verification._PATIENCE_S
        await rounds(verifier)
        assert entitled(world) == {"d1", "d2"}
        assert verifier.state is Verification.VERIFIED
        queue.empty()

        async def is_proven() -> bool:
            return tried(served)[-1] == "d2" and all(
                pod.admission is Admission.PROVEN for pod in world.pods if pod.observed.role is D
            )

        await until(is_proven, "the canary has passed")
        assert not verifier.refusal


async def test_more_d_pods_join_than_are_tried_at_once_while_p_is_overloaded() -> None:
    now = [0.0]
    names = [f"d{number}" for number in range(2, 9)]
    async with joining(*names, now=now) as (world, _, verifier, _):
        for waits in (names[:4], names[4:]):
            await waits_for_parameter(world, *waits)
            now[0] += verification._PATIENCE_S
            await rounds(verifier)
            assert entitled(world) >= {"d1", *waits}


async def test_a_d_pod_that_joins_does_not_wait_for_a_p_that_fails() -> None:
    """D computes the prompts itself then, so its help is needed. One failure may be that of a P pod that ends."""
    now = [0.0]
    async with joining("d2", now=now) as (world, served, verifier, queue):
        works = world["p"].fault
        world["p"].fault = status(500)
        queue.empty()

        async def has_failed() -> bool:
            return verifier.state is Verification.FAILED

        await until(has_failed, "P has failed a canary")
        await rounds(verifier)
        assert entitled(world) == {"d1"}
        for pod in world.pods:
            world.pods.worked(pod)
        now[0] += verification._LONGEST_PAUSE_S

        async def is_trusted() -> bool:
            return entitled(world) == {"d1", "d2"}

        await until(is_trusted, "P has failed two")
        served.faulty["d2"] = Nothing()
        world["p"].fault = works
        for pod in world.pods:
            world.pods.worked(pod)
        now[0] += verification._LONGEST_PAUSE_S

        async def is_found() -> bool:
            return entitled(world) == {"d1"}

        await until(is_found, "the fault of D is found when P works again")


@pytest.mark.parametrize("fault", [Zeros, Nothing])
async def test_a_d_pod_on_trust_with_a_fault_loses_its_requests(fault: type[Transfer]) -> None:
    now = [0.0]
    async with joining("d2", now=now) as (world, served, verifier, queue):
        served.faulty["d2"] = fault()
        await waits_for_parameter(world, "d2")
        now[0] = verification._PATIENCE_S
        await rounds(verifier)
        assert entitled(world) == {"d1", "d2"}
        queue.empty()

        async def is_found() -> bool:
            (states, *_) = verifier.collect()
            return [sample.labels["decode"] for sample in states.samples if sample.value] == ["d2"]

        await until(is_found, "the fault is found")
        assert entitled(world) == {"d1"}
        assert not verifier.refusal, "the revision serves"


async def test_a_d_pod_that_does_not_answer_gets_no_requests_on_trust() -> None:
    now = [0.0]
    async with joining("d2", now=now) as (world, _, verifier, _):
        world["d2"].fault = hang

        async def is_asked() -> bool:
            return bool(world["d2"].lines)

        await until(is_asked, "the canary waits for D")
        now[0] = 4 * verification._PATIENCE_S
        await rounds(verifier)
        assert entitled(world) == {"d1"}


async def test_a_d_pod_whose_fault_is_known_gets_no_requests_on_trust() -> None:
    now = [0.0]
    async with joining("d2", now=now) as (world, served, verifier, queue):
        served.faulty["d2"] = Nothing()
        queue.empty()

        async def is_found() -> bool:
            return verifier.state is Verification.COMPUTED_BY_DECODE

        await until(is_found, "the fault is found")
        Queue(world)
        await waits_for_parameter(world, "d2")
        now[0] += verification._LONGEST_PAUSE_S + verification._PATIENCE_S
        await rounds(verifier)
        await waits_for_parameter(world, "d2")
        now[0] += verification._PATIENCE_S
        await rounds(verifier)
        assert entitled(world) == {"d1"}


async def test_a_new_revision_trusts_no_d_pod_before_it_opens() -> None:
    now = [0.0]
    async with model(None, "p", "d1", "d2") as (world, _, by):
        Queue(world)
        verifier = Verifier(world.pods, by, "Required", clock=lambda: now[0])
        runs = asyncio.create_task(verifier.forever())
        try:
            await waits_for_parameter(world, "d1", "d2")
            now[0] = 4 * verification._PATIENCE_S
            await rounds(verifier)
            assert Verification.PENDING in verifier.refusal
            assert not any(pod.admitted for pod in world.pods)
        finally:
            runs.cancel()
