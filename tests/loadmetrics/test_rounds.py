"""Pods of one namespace do not delay the scrapes of another namespace."""

import asyncio
import logging

import pytest

from pdinference.cluster.state.records import PodRecord
from pdinference.loadmetrics.scraping.fetch import Share, fetch
from pdinference.loadmetrics.scraping.rounds import Rounds
from pdinference.loadmetrics.scraping.unreadable import UnreadableError
from pdinference.planning.observed import PodSummary
from tests.loadmetrics.hostile import UNREADABLE, answer, dense, pods, saying

TIMEOUT_S = 30.0


def pod(namespace: str, number: int) -> PodRecord:
    name = f"{namespace}-{number}"
    return PodRecord(namespace, name, name, 1, None, PodSummary(name, None, ""), address="127.0.0.1")


class Neighbours:
    """300 pods of a hostile tenant, and one of another."""

    def __init__(self, ports: dict[str, int]) -> None:
        self._ports = ports
        self.read: dict[str, int] = {"good": 0, "hostile": 0}
        self.good_again = asyncio.Event()
        self.rounds = Rounds(self.due, self.ask, interval=0.01)

    def due(self) -> dict[str, list[PodRecord]]:
        return {"hostile": [pod("hostile", number) for number in range(300)], "good": [pod("good", 0)]}

    async def ask(self, pod: PodRecord, share: Share) -> None:
        try:
            await fetch(
                pod.address,
                self._ports[pod.namespace],
                lambda line: None,
                prefix=b"vllm:",
                share=share,
                seconds=TIMEOUT_S,
            )
        except UnreadableError:
            return
        self.read[pod.namespace] += 1
        if self.read["good"] >= 5:
            self.good_again.set()


@pytest.mark.parametrize("kind", ["tarpit", "byte by byte", "endless chunks", "dense"])
async def test_a_tenant_with_300_hostile_pods_delays_no_other(kind: str) -> None:
    """Five rounds of the other end before the first one of the hostile tenant."""
    hostile = saying(answer(dense())) if kind == "dense" else UNREADABLE[kind][1]
    async with pods(hostile) as hostile_port, pods(saying(answer(b"vllm:x 1\n"))) as good_port:
        neighbours = Neighbours({"hostile": hostile_port, "good": good_port})
        running = asyncio.create_task(neighbours.rounds.forever())
        async with asyncio.timeout(TIMEOUT_S):
            await neighbours.good_again.wait()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    assert neighbours.read["hostile"] < 300


async def test_a_fault_at_one_pod_does_not_end_the_rounds(caplog: pytest.LogCaptureFixture) -> None:
    asked: list[str] = []

    async def ask(pod: PodRecord, _share: Share) -> None:
        asked.append(pod.name)
        if pod.name == "ns-0":
            raise RuntimeError("a bug")

    rounds = Rounds(lambda: {"ns": [pod("ns", number) for number in range(3)]}, ask, interval=1)
    with caplog.at_level(logging.WARNING):
        await rounds.once()
        await rounds.once()
    assert asked == ["ns-0", "ns-1", "ns-2"] * 2
    assert caplog.text.count("RuntimeError: a bug") == 1, "logged with its traceback, at a bounded rate"


async def test_a_namespace_whose_round_is_not_over_begins_no_other() -> None:
    begun, go_on = 0, asyncio.Event()

    async def ask(_pod: PodRecord, _share: Share) -> None:
        nonlocal begun
        begun += 1
        await go_on.wait()

    rounds = Rounds(lambda: {"ns": [pod("ns", 0)]}, ask, interval=0)
    running = asyncio.create_task(rounds.forever())
    while not begun:  # noqa: ASYNC110 - what is waited for is in this loop
        await asyncio.sleep(0)
    await rounds.once()
    assert begun == 1
    running.cancel()


async def test_pieces_of_one_namespace_take_turns() -> None:
    share, inside = Share(), 0

    async def work() -> None:
        nonlocal inside
        async with share.turn():
            inside += 1
            assert inside == 1
            inside -= 1

    await asyncio.gather(*(work() for _ in range(20)))
