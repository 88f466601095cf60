"""Counters of the KV transfer: summed over pods, across their restarts, bounded."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from prometheus_client import CollectorRegistry

from pdinference.api.names import (
    METRIC_KV_BYTES,
    METRIC_KV_PROMPT_TOKENS,
    METRIC_KV_TRANSFER_SECONDS,
    METRIC_KV_TRANSFERS,
    METRIC_TOKEN_GAP_SECONDS,
    METRIC_TOKEN_GAPS,
    KvSource,
    TransferResult,
)
from pdinference.engine.connectors.handover import NixlHandover
from pdinference.loadmetrics.scraping.fetch import Share
from pdinference.loadmetrics.scraping.http_answer import LONGEST_BODY
from pdinference.router import transfers
from pdinference.router.transfers import Transfers
from tests.router.engines import Fleet, fleet
from tests.waiting import until


def by_source(source: str, engine: int = 0) -> str:
    return f'vllm:prompt_tokens_by_source_total{{engine="{engine}",source="{source}"}}'


FROM_P, COMPUTED, CACHED = map(by_source, ("external_kv_transfer", "local_compute", "local_cache_hit"))
PULLED = "vllm:nixl_bytes_transferred_count"
EXPIRED = "vllm:nixl_num_kv_expired_reqs_total"
FAILED = "vllm:nixl_num_failed_transfers_total"


class Read:
    """The series, as a registry has them, after a round that reads every pod."""

    def __init__(self, world: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(transfers, "_AT_REST_S", 0.0)
        monkeypatch.setattr(transfers, "_BUSY_S", 0.0)
        self._transfers = Transfers(world.pods, Share(), NixlHandover.counters)
        self._registry = CollectorRegistry()
        self._registry.register(self._transfers)

    async def round(self) -> None:
        await self._transfers.round()

    def tokens(self, source: KvSource) -> float | None:
        return self._registry.get_sample_value(METRIC_KV_PROMPT_TOKENS, {"source": source})

    def transfers(self, result: TransferResult) -> float | None:
        return self._registry.get_sample_value(METRIC_KV_TRANSFERS, {"result": result})

    def value(self, name: str) -> float | None:
        return self._registry.get_sample_value(name)


@asynccontextmanager
async def read(*names: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[Fleet, Read]]:
    async with fleet(*names) as world:
        yield world, Read(world, monkeypatch)


async def test_growth_is_summed_over_pods_and_engines(monkeypatch: pytest.MonkeyPatch) -> None:
    async with read("p", "d1", "d2", monkeypatch=monkeypatch) as (world, found):
        world["d1"].counters = {FROM_P: 100, COMPUTED: 10, CACHED: 1, PULLED: 5}
        world["d2"].counters = {FROM_P: 0, by_source("external_kv_transfer", 1): 7}
        world["p"].counters = {COMPUTED: 1000, EXPIRED: 2}
        await found.round()
        assert found.tokens(KvSource.PARAMETER) == 0
        world["d1"].counters = {FROM_P: 130, COMPUTED: 14, CACHED: 3, PULLED: 6}
        world["d2"].counters = {FROM_P: 20, by_source("external_kv_transfer", 1): 8}
        world["p"].counters = {COMPUTED: 2000, EXPIRED: 3}
        await found.round()
        assert [found.tokens(source) for source in KvSource] == [30 + 20 + 1, 4, 2]
        assert [found.transfers(result) for result in TransferResult] == [1, None, 1]


async def test_bytes_and_seconds_have_no_label(monkeypatch: pytest.MonkeyPatch) -> None:
    async with read("p", "d", monkeypatch=monkeypatch) as (world, found):
        sums = "vllm:nixl_bytes_transferred_sum", "vllm:nixl_xfer_time_seconds_sum"
        world["d"].counters = dict.fromkeys(sums, 1.0)
        await found.round()
        world["d"].counters = dict(zip(sums, (1025.0, 1.5), strict=True))
        await found.round()
        assert (found.value(METRIC_KV_BYTES), found.value(METRIC_KV_TRANSFER_SECONDS)) == (1024, 0.5)


async def test_steps_are_those_of_d(monkeypatch: pytest.MonkeyPatch) -> None:
    async with read("p", "d", monkeypatch=monkeypatch) as (world, found):
        gaps = "vllm:inter_token_latency_seconds_count", "vllm:inter_token_latency_seconds_sum"
        for values in ((0.0, 0.0), (200.0, 1.5)):
            world["d"].counters = world["p"].counters = dict(zip(gaps, values, strict=True))
            await found.round()
        assert (found.value(METRIC_TOKEN_GAPS), found.value(METRIC_TOKEN_GAP_SECONDS)) == (200, 1.5)


async def test_a_pod_that_starts_again_counts_from_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    async with read("p", "d", monkeypatch=monkeypatch) as (world, found):
        for counters in ({FROM_P: 100, COMPUTED: 0}, {FROM_P: 150, COMPUTED: 0}, {FROM_P: 20, COMPUTED: 5}):
            world["d"].counters = dict(counters)
            await found.round()
        assert (found.tokens(KvSource.PARAMETER), found.tokens(KvSource.DECODE)) == (50 + 20, 5)


async def test_what_a_pod_that_is_gone_counted_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    async with read("p", "d", monkeypatch=monkeypatch) as (world, found):
        for value in (0, 30):
            world["d"].counters = {FROM_P: value}
            await found.round()
        world.observe("d")
        await found.round()
        assert found.tokens(KvSource.PARAMETER) == 30


async def test_a_pod_that_does_not_answer_for_a_while_is_not_counted_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    async with read("p", "d", monkeypatch=monkeypatch) as (world, found):
        engine = world["d"]
        await engine.stop()
        await found.round()  # no reading yet: what comes first is no growth
        await engine.start()
        for value in (100, 110):
            engine.counters = {FROM_P: value}
            await found.round()
        await engine.stop()
        await found.round()
        await engine.start()
        engine.counters = {FROM_P: 115}
        await found.round()
        assert found.tokens(KvSource.PARAMETER) == 15


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-1", "1e99"])
async def test_a_value_out_of_range_is_no_restart(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with read("p", "d", monkeypatch=monkeypatch) as (world, found):
        for one in (100, float(value), 101):
            world["d"].counters = {FROM_P: one, COMPUTED: 5}
            await found.round()
        assert (found.tokens(KvSource.PARAMETER), found.tokens(KvSource.DECODE)) == (1, 0)


@pytest.mark.parametrize("text", ["x" * LONGEST_BODY, f"{FROM_P} many"], ids=["endless", "malformed"])
async def test_an_answer_without_end_or_sense_changes_nothing(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with read("p", "d", monkeypatch=monkeypatch) as (world, found):
        engine = world["d"]
        engine.counters = {FROM_P: 1}
        await found.round()
        engine.metrics = f"{text}\n{FROM_P} 10000\n"
        await found.round()
        assert found.tokens(KvSource.PARAMETER) == 0


async def test_pods_without_requests_are_read_seldom() -> None:
    async with fleet("p", "d") as world:
        found = Transfers(world.pods, Share(), NixlHandover.counters)
        for _ in range(3):
            await found.round()
        # The router of the fleet has read each pod, too.
        assert {engine.readings for engine in world.engines.values()} <= {1, 2}


async def test_the_router_exports_them() -> None:
    async with fleet("p", "d") as world:
        world["d"].counters = {FROM_P: 1}

        async def exported() -> bool:
            async with world.client.get(f"{world.state}/metrics") as answer:
                return f'{METRIC_KV_PROMPT_TOKENS}{{source="parameter"}} 0.0' in await answer.text()

        await until(exported, "the router has read D")


@pytest.mark.parametrize(("pod", "counter"), [("d1", FAILED), ("p", EXPIRED)])
async def test_a_pod_that_loses_transfers_is_doubted(pod: str, counter: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with read("p", "d1", "d2", monkeypatch=monkeypatch) as (world, found):
        begin = {one: one.doubted_at for one in world.pods}

        def doubted() -> set[str]:
            return {one.observed.name for one in world.pods if one.doubted_at > begin[one]}

        for count in (0, 0, 4):
            assert doubted() == set()
            world[pod].counters = {counter: count, PULLED: 1 + count}
            await found.round()
        assert doubted() == {pod}
