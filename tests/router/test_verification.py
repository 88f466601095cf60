"""A router is ready after a canary has gone through P and D, and requests go to D pods that have passed one."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
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
from pdinference.api.v1alpha1.transfer import VerificationMode
from pdinference.router import admissions, canary, canary_schedule, verification
from pdinference.router.admissions import OTHERS_S, PATIENCE_S
from pdinference.router.canary import Canary
from pdinference.router.canary_schedule import LONGEST_PAUSE_S
from pdinference.router.pod import Admission
from pdinference.router.pods import Pods
from pdinference.router.verification import Verifier
from pdinference.router.verification_metrics import VerificationMetrics
from tests.router.canaries import FAULTS, FAULTY, TOKENS, Client, model
from tests.router.engines import D, Fleet, abort, fleet, hang, hang_in_answer, status
from tests.router.kv_model import Half, KvModel, Nothing, Transfer, Zeros
from tests.waiting import until


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(canary, "_COUNTERS_S", (0.0, 0.0))
    monkeypatch.setattr(canary_schedule, "_FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr(canary_schedule, "LONGEST_PAUSE_S", 0.01)
    monkeypatch.setattr(verification, "_ROUND_S", 0.01)


class Clock:
    """Time passes when a test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Stepped(Verifier):
    """A verifier that does its steps when a test says so."""

    def __init__(self, pods: Pods, by: Canary, mode: VerificationMode, clock: Clock) -> None:
        super().__init__(pods, by, mode, clock=clock)
        self.clock = clock

    @property
    def state(self) -> Verification:
        return self.shown.outcome.state

    def exported(self, label: str) -> str:
        """A label of the state that is exported."""
        (states, *_) = VerificationMetrics(self).collect()
        (labels,) = (sample.labels for sample in states.samples if sample.value)
        return labels[label]

    def begin(self) -> list[asyncio.Task[None]]:
        """Send the canaries that are due."""
        return [asyncio.create_task(self.send(*pair)) for pair in self.due()]

    async def once(self, *, later: float = 7200.0) -> None:
        """Let time pass, send the canaries that are due, and wait until they have ended."""
        self.clock.now += later
        await asyncio.gather(*self.begin())

    async def every(self) -> None:
        """A canary to each of the D pods, which are more than are tried at once."""
        for _ in range(2):
            await self.once(later=0)

    def look(self, *, later: float) -> None:
        """Let time pass, and look which D pods need not wait for P."""
        self.clock.now += later
        self.judge()


@asynccontextmanager
async def verifying(
    transfer: Transfer | None = None, *names: str, mode: VerificationMode = "Required"
) -> AsyncIterator[tuple[Fleet, KvModel, Stepped]]:
    clock = Clock()
    async with model(transfer, *names, clock=clock) as (world, served, by):
        yield world, served, Stepped(world.pods, by, mode, clock)


async def readiness(world: Fleet) -> tuple[int, str]:
    async with world.client.get(f"{world.state}/readyz") as answer:
        return answer.status, await answer.text()


async def exported(world: Fleet) -> str:
    async with world.client.get(f"{world.state}/metrics") as answer:
        lines = (await answer.text()).splitlines()
    (state,) = (line for line in lines if line.startswith(f"{METRIC_VERIFICATION}{{") and line.endswith(" 1.0"))
    return state.partition('state="')[2].partition('"')[0]


async def test_one_canary_that_d_seems_to_compute_is_sent_again() -> None:
    """D may have computed prompts of clients that came through another router."""
    async with verifying() as (_, served, verifier):
        served.others = [(0, 1000)]
        await verifier.once()
        assert not verifier.refusal


@pytest.mark.parametrize("pod", ["p", "d"])
async def test_a_canary_that_gets_no_answer_ends(pod: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(canary_schedule, "LONGEST_S", 0.05)
    monkeypatch.setattr(canary, "_PARAMETER_S", 0.05)
    async with verifying() as (world, _, verifier):
        world[pod].fault = hang
        await verifier.once()
        assert Verification.FAILED in verifier.refusal
        assert f"{pod} failed: no answer within 0.05 s" in verifier.refusal
        assert verifier.exported("parameter") == ("p" if pod == "p" else "")
        assert verifier.exported("decode") == ("d" if pod == "d" else "")


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
    async with verifying(fault()) as (_, _, verifier):
        assert Verification.PENDING in verifier.refusal
        for _ in range(2):
            await verifier.once()
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
    async with verifying() as (_, served, verifier):
        await verifier.once()
        served.transfer = Zeros()
        await verifier.once()
        assert not verifier.refusal
        assert verifier.exported("state") == Verification.WRONG_ANSWER


async def test_one_answer_that_differs_is_asked_again() -> None:
    """Rounding can do that once."""

    class Once(Zeros):
        times = 0

        def __call__(self, sent: tuple[int, ...]) -> tuple[tuple[int, ...], int]:
            self.times += 1
            return super().__call__(sent) if self.times <= 2 else (sent, len(sent))

    async with verifying(Once()) as (_, _, verifier):
        await verifier.once()
        assert not verifier.refusal


@pytest.mark.parametrize("fault", [fault for fault, _ in FAULTY])
@pytest.mark.parametrize(("tokens", "refused"), [(7, True), (8, False)], ids=["of canaries", "of clients"])
async def test_a_revision_that_serves_already_is_not_lost_with_its_router(
    fault: type[Transfer], tokens: int, refused: bool
) -> None:
    """The only router pod starts again while KV cache does not get through: D answers, as it did before."""
    async with verifying(fault()) as (world, _, verifier):
        world["d"].counters |= {f"{ANSWERS}_count": 7, f"{ANSWERS}_sum": tokens}
        await verifier.once()
        assert bool(verifier.refusal) == refused


async def test_it_waits_for_pods() -> None:
    async with verifying() as (world, served, verifier):
        world.observe("p")
        await verifier.once()
        assert Verification.PENDING in verifier.refusal
        assert not served.for_decode


ANSWERS = "vllm:request_generation_tokens"
MANY = ("p1", "p2", "d1", "d2", "d3", "d4", "d5", "d6")


def tried(served: KvModel) -> list[str]:
    """The D pods in the order of their canaries, each of which has two prompts."""
    return [decode for decode, _ in groupby(decode for _, decode in served.ways)]


def entitled(world: Fleet) -> set[str]:
    """The D pods that requests of clients may go to."""
    return {pod.observed.name for pod in world.pods.available(D)}


async def test_each_d_pod_is_tried_before_the_router_is_ready() -> None:
    async with verifying(None, *MANY) as (_, served, verifier):
        served.needed = 4
        await verifier.once(later=0)
        assert "not verified (pending)" in verifier.refusal
        assert "4 of 6 D pods have passed a canary" in verifier.refusal
        await verifier.once(later=0)
        assert not verifier.refusal
        assert sorted(decode for _, decode in served.ways) == sorted([*MANY[2:], *MANY[2:]])
        assert {parameter for parameter, _ in served.ways} == {"p1", "p2"}, "P pods take turns"
        assert served.most == 4, "a few at once, so that many D pods do not take long"


async def test_engines_that_share_a_pod_are_tried_with_each_other() -> None:
    names = ("a/p", "a/d1", "a/d2", "b/p", "b/d1", "c/d1")
    async with verifying(None, *names) as (_, served, verifier):
        await verifier.once()
        assert set(served.ways) == {("a/p", "a/d1"), ("a/p", "a/d2"), ("b/p", "b/d1")}
        assert not verifier.refusal, "requests to the D of c need no KV transfer"


@pytest.mark.parametrize("fault", FAULTS[Verification.WRONG_ANSWER])
async def test_wrong_answers_of_one_d_pod_keep_requests_from_all(fault: type[Transfer]) -> None:
    async with verifying(None, *MANY) as (_, served, verifier):
        served.faulty["d4"] = fault()
        await verifier.every()
        before = len(served.ways)
        await verifier.once()
        assert {decode for _, decode in served.ways[before:]} == {"d4"}, "the others have passed"
        assert verifier.state is Verification.WRONG_ANSWER
        assert " to d4 is not verified (wrong_answer)" in verifier.refusal
        assert "5 of 6 D pods have passed a canary" in verifier.refusal
        served.faulty.clear()
        await verifier.once()
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
    monkeypatch.setattr(canary_schedule, "LONGEST_S", 1.0)
    async with verifying(None, *MANY) as (world, served, verifier):
        harm(world, served, "d4", NO_PROOF[fault])
        await verifier.every()
        assert " to d4 is not verified" in verifier.refusal, "other D pods may need a second canary"
        await verifier.once(later=OTHERS_S)
        assert not verifier.refusal
        assert entitled(world) == {*MANY[2:]} - {"d4"}
        assert verifier.exported("decode") == "d4"
        served.serve(world["d4"])
        served.faulty.clear()
        await verifier.once(later=LONGEST_PAUSE_S)
        assert entitled(world) == {*MANY[2:]}
        await verifier.once(later=LONGEST_PAUSE_S)
        assert verifier.state is Verification.VERIFIED, "the pair that failed is tried again, too"


async def test_other_d_pods_get_requests_when_all_that_have_passed_are_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(canary_schedule, "LONGEST_S", 1.0)
    async with verifying(None, "p", "d1", "d2") as (world, _, verifier):
        world["d2"].fault = hang
        await verifier.every()
        await verifier.once(later=OTHERS_S)
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
    async with verifying(None, *MANY) as (world, served, verifier):
        for name in ("d1", "d2", "d3", "d4"):
            world[name].fault = abort
        await verifier.every()
        verifier.clock.now += OTHERS_S
        for pod in world.pods:
            if pod.observed.name == "d1":
                world.pods.failed(pod)  # for some time it can get no canary
        await verifier.once(later=0)
        assert "2 of 6 D pods have passed a canary" in verifier.refusal
        served.serve(world["d2"])
        await verifier.once()
        assert not verifier.refusal
        assert entitled(world) == {"d2", "d5", "d6"}


async def test_requests_go_to_d_pods_that_have_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admissions, "OTHERS_S", 0.0)
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
    monkeypatch.setattr(canary_schedule, "LONGEST_S", 0.3)
    async with verifying(None, *MANY) as (world, _, verifier):
        for name in ("d1", "d2", "d3", "d4"):
            world[name].fault = hang
        world.observe("d5", "d6")
        await verifier.once()
        second = asyncio.create_task(verifier.once())

        async def hang_again() -> bool:
            return all(world[name].lines.count("GET /v1/models") == 2 for name in ("d1", "d2", "d3", "d4"))

        monkeypatch.setattr(canary_schedule, "LONGEST_S", 60.0)
        await until(hang_again, "the canaries are sent again")
        world.observe()
        await verifier.once()
        assert entitled(world) == {"d5", "d6"}
        assert not second.done()
        second.cancel()


async def test_the_time_for_d_grows_with_each_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(canary_schedule, "LONGEST_S", 0.05)
    async with verifying() as (world, _, verifier):
        world["d"].fault = hang
        found = []
        for _ in range(5):
            await verifier.once()
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
    async with verifying(None, "p", "d1", "d2") as (world, served, verifier):
        await verifier.once(later=0)
        assert entitled(world) == {"d1", "d2"}
        again(world, "d2")
        assert entitled(world) == {"d1"}
        await verifier.once(later=0)
        assert tried(served)[-1] == "d2"
        assert entitled(world) == {"d1", "d2"}


async def test_without_p_each_d_pod_gets_requests() -> None:
    async with verifying(None, "p", "d1", "d2") as (world, _, verifier):
        world.observe("d2")
        await verifier.once()
        world.observe()
        assert entitled(world) == {"d1"}
        world.observe("p")
        assert entitled(world) == {"d1", "d2"}, "there is no KV transfer"
        world.observe("d1")
        assert entitled(world) == {"d2"}, "an answer rather than none"


async def test_a_router_becomes_ready_when_a_d_pod_with_a_fault_goes_away(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_FIRST_PAUSE_S", "LONGEST_PAUSE_S"):
        monkeypatch.setattr(canary_schedule, name, 3600.0)
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
    async with verifying(None, "p", "d1", "d2", "d3") as (world, served, verifier):
        if fault is not None:
            served.faulty["d3"] = fault()
        world.observe("d3")
        await verifier.once()
        assert not verifier.refusal
        world.observe()
        busy = next(pod for pod in world.pods if pod.observed.name == "d1")
        with busy.sending(Client(), 0):  # it does not wait for rest
            assert entitled(world) == {"d1", "d2"}
            await verifier.once(later=0)
        assert tried(served)[-1] == "d3"
        assert not verifier.refusal, "a revision that serves stays in service"
        assert verifier.state is (Verification.VERIFIED if fault is None else Verification.WRONG_ANSWER)
        assert entitled(world) == ({"d1", "d2", "d3"} if fault is None else {"d1", "d2"})


async def test_a_d_pod_that_was_not_ready_is_forgotten_and_tried_again() -> None:
    async with verifying(None, "p", "d1", "d2", "d3", mode="Warn") as (world, served, verifier):
        served.faulty["d3"] = Zeros()
        for _ in range(3):
            await verifier.once()
        states = [verifier.state]
        world.observe("d3")
        await verifier.once()
        states.append(verifier.state)
        assert states == [Verification.WRONG_ANSWER, Verification.VERIFIED]
        world.observe()
        await verifier.once()
        assert tried(served) == ["d1", "d2", "d3", "d1", "d3"]


async def test_the_state_is_that_of_the_worst_d_pod() -> None:
    """Otherwise a fault of one would end in the status with the next canary to another one."""
    async with verifying(None, "p", "d1", "d2", "d3", mode="Warn") as (_, served, verifier):
        served.faulty |= {"d1": Nothing(), "d2": Zeros()}
        for _ in range(3):
            await verifier.once()
        assert sorted(tried(served)) == ["d1", "d2", "d3"]
        for _ in range(2):
            await verifier.once()
            assert verifier.state is Verification.WRONG_ANSWER
        assert "d3" not in tried(served)[3:], "a D pod with a fault is tried before those without"
        served.faulty.clear()
        for _ in range(2):
            await verifier.once()
        assert verifier.state is Verification.VERIFIED


async def test_d_pods_that_serve_are_admitted_without_a_canary() -> None:
    """Their router is replaced."""
    async with verifying(None, "p", "d1", "d2", "d3") as (world, served, verifier):
        for name in ("d1", "d2"):
            world[name].counters |= {f"{ANSWERS}_count": 7, f"{ANSWERS}_sum": 8}
        world["d3"].fault = hang
        opens = asyncio.create_task(verifier.once())

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
async def joining(*names: str) -> AsyncIterator[tuple[Fleet, KvModel, Stepped, Queue]]:
    """D pods that join a revision that serves with d1, while prompts wait at P."""
    async with verifying(None, "p", "d1", *names) as (world, served, verifier):
        world.observe(*names)
        await verifier.once()
        assert not verifier.refusal
        queue = Queue(world)
        world.observe()
        yield world, served, verifier, queue


async def waits_for_parameter(world: Fleet, *names: str) -> None:
    """Wait until the D pods have answered all that they are asked before P is."""

    async def are_done() -> bool:
        pods = [pod for pod in world.pods if pod.observed.name in names]
        return all(world[name].lines[-1:] == ["POST /v1/completions"] for name in names) and not any(
            pod.under_way for pod in pods
        )

    await until(are_done, "the canaries wait for P")


@asynccontextmanager
async def begun(verifier: Stepped) -> AsyncIterator[list[asyncio.Task[None]]]:
    """The canaries that are due, which end with the block at the latest."""
    canaries = verifier.begin()
    try:
        yield canaries
    finally:
        for one in canaries:
            one.cancel()
        await asyncio.gather(*canaries, return_exceptions=True)


async def test_a_d_pod_that_joins_does_not_wait_for_an_overloaded_p() -> None:
    """Its canary waits behind the prompts of clients, for minutes, just when its help is needed."""
    async with joining("d2") as (world, served, verifier, queue), begun(verifier) as canaries:
        await waits_for_parameter(world, "d2")
        verifier.look(later=PATIENCE_S - 1)
        assert entitled(world) == {"d1"}
        verifier.look(later=1)
        assert entitled(world) == {"d1", "d2"}
        assert verifier.state is Verification.VERIFIED
        queue.empty()
        await asyncio.gather(*canaries)
        assert tried(served)[-1] == "d2"
        assert all(pod.admission is Admission.PROVEN for pod in world.pods if pod.observed.role is D)
        assert not verifier.refusal


async def test_a_running_router_does_not_wait_for_an_overloaded_p(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admissions, "PATIENCE_S", 0.0)
    async with fleet("p", "d1", "d2") as world:
        served = KvModel(world)
        world.observe("d2")
        await world.restart(verification="Required")

        async def ready() -> bool:
            return (await readiness(world))[0] == 200

        await until(ready, "the router is ready")
        queue = Queue(world)
        world.observe()
        await until(lambda: entitled(world) == {"d1", "d2"}, "d2 gets requests")
        assert set(tried(served)) == {"d1"}
        queue.empty()
        await until(lambda: tried(served)[-1] == "d2", "its canary goes on")


async def test_more_d_pods_join_than_are_tried_at_once_while_p_is_overloaded() -> None:
    names = [f"d{number}" for number in range(2, 9)]
    async with joining(*names) as (world, _, verifier, _), AsyncExitStack() as stack:
        for waits in (names[:4], names[4:]):
            await stack.enter_async_context(begun(verifier))
            await waits_for_parameter(world, *waits)
            verifier.look(later=PATIENCE_S)
            assert entitled(world) >= {"d1", *waits}


async def test_a_d_pod_that_joins_does_not_wait_for_a_p_that_fails() -> None:
    """D computes the prompts itself then, so its help is needed. One failure may be that of a P pod that ends."""
    async with joining("d2") as (world, served, verifier, queue):
        works = world["p"].fault
        world["p"].fault = status(500)
        queue.empty()
        await verifier.once()
        assert verifier.state is Verification.FAILED
        assert entitled(world) == {"d1"}
        await verifier.once(later=LONGEST_PAUSE_S)
        assert entitled(world) == {"d1", "d2"}, "P has failed two"
        served.faulty["d2"] = Nothing()
        world["p"].fault = works
        await verifier.once(later=LONGEST_PAUSE_S)
        assert entitled(world) == {"d1"}, "the fault of D is found when P works again"


@pytest.mark.parametrize("fault", [Zeros, Nothing])
async def test_a_d_pod_on_trust_with_a_fault_loses_its_requests(fault: type[Transfer]) -> None:
    async with joining("d2") as (world, served, verifier, queue), begun(verifier) as canaries:
        served.faulty["d2"] = fault()
        await waits_for_parameter(world, "d2")
        verifier.look(later=PATIENCE_S)
        assert entitled(world) == {"d1", "d2"}
        queue.empty()
        await asyncio.gather(*canaries)
        assert verifier.exported("decode") == "d2"
        assert entitled(world) == {"d1"}
        assert not verifier.refusal, "the revision serves"


async def test_a_d_pod_that_does_not_answer_gets_no_requests_on_trust() -> None:
    async with joining("d2") as (world, _, verifier, _):
        world["d2"].fault = hang
        async with begun(verifier):
            await until(lambda: bool(world["d2"].lines), "the canary waits for D")
            verifier.look(later=4 * PATIENCE_S)
            assert entitled(world) == {"d1"}


async def test_a_d_pod_whose_fault_is_known_gets_no_requests_on_trust() -> None:
    async with joining("d2") as (world, served, verifier, queue):
        served.faulty["d2"] = Nothing()
        queue.empty()
        await verifier.once()
        assert verifier.state is Verification.COMPUTED_BY_DECODE
        Queue(world)
        verifier.clock.now += LONGEST_PAUSE_S
        async with begun(verifier) as canaries:
            assert canaries
            await waits_for_parameter(world, "d2")
            verifier.look(later=PATIENCE_S)
            assert entitled(world) == {"d1"}


async def test_a_new_revision_trusts_no_d_pod_before_it_opens() -> None:
    async with verifying(None, "p", "d1", "d2") as (world, _, verifier):
        Queue(world)
        async with begun(verifier):
            await waits_for_parameter(world, "d1", "d2")
            verifier.look(later=4 * PATIENCE_S)
            assert Verification.PENDING in verifier.refusal
            assert not any(pod.admitted for pod in world.pods)
