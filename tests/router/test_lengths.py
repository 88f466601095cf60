"""Histograms of prompt and answer lengths: those of vLLM in D, summed over pods, bounded."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from pdinference.api.names import METRIC_ANSWER_LENGTHS, METRIC_PROMPT_LENGTHS
from pdinference.engine.connectors.handover import NixlHandover
from pdinference.loadmetrics.scraping.fetch import Share
from pdinference.router import lengths, transfers
from pdinference.router.transfers import Transfers
from pdinference_advise.advice.workload.live import load, read_router
from tests.router.engines import Engine, fleet

PROMPT, ANSWER = "vllm:request_prompt_tokens", "vllm:request_generation_tokens"


def counters(name: str, buckets: Mapping[str, float], total: float, engine: int = 0) -> dict[str, float]:
    """As vLLM with a maximum length of 2000 tokens reports them."""
    lines = {f'{name}_bucket{{engine="{engine}",le="{bound}"}}': number for bound, number in buckets.items()}
    return lines | {f'{name}_sum{{engine="{engine}"}}': total, f'{name}_count{{engine="{engine}"}}': buckets["+Inf"]}


def finished(engine: Engine, prompt: Mapping[str, float], total: float) -> None:
    engine.counters = counters(PROMPT, prompt, total) | counters(ANSWER, {"5.0": 1, "+Inf": prompt["+Inf"]}, 9)


EMPTY = {"1000.0": 0.0, "2000.0": 0.0, "+Inf": 0.0}


async def test_lengths_of_d_are_summed_and_make_a_workload(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfers, "_AT_REST_S", 0.0)
    monkeypatch.setattr(transfers, "_BUSY_S", 0.0)
    async with fleet("p", "d1", "d2") as world:
        found = Transfers(world.pods, Share(), NixlHandover.counters)
        registry = CollectorRegistry()
        registry.register(found)
        for name in ("p", "d1", "d2"):
            finished(world[name], EMPTY, 0)
        await found.round()
        finished(world["p"], {"1000.0": 500, "2000.0": 500, "+Inf": 500}, 7)
        finished(world["d1"], {"1000.0": 100, "2000.0": 300, "+Inf": 300}, 300_000)
        finished(world["d2"], {"1000.0": 0, "2000.0": 99, "+Inf": 100}, 200_000)
        await found.round()
        buckets = [
            registry.get_sample_value(f"{METRIC_PROMPT_LENGTHS}_bucket", {"le": bound})
            for bound in ("1000.0", "2000.0", "+Inf")
        ]
        assert buckets == [100, 399, 400]
        assert registry.get_sample_value(f"{METRIC_PROMPT_LENGTHS}_sum") == 500_000
        assert registry.get_sample_value(f"{METRIC_PROMPT_LENGTHS}_count") == 400
        assert registry.get_sample_value(f"{METRIC_ANSWER_LENGTHS}_count") == 399 + 1
        answered = b'pdinference_router_requests_total{path="/v1/completions",outcome="answered"} 60\n'
        workload = load({}, {"r": read_router(generate_latest(registry) + answered, "r")}, 60).workload
    assert workload.classes[0].prompt.mean == pytest.approx(1250)


async def test_bounds_that_vllm_does_not_have_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfers, "_AT_REST_S", 0.0)
    monkeypatch.setattr(transfers, "_BUSY_S", 0.0)
    async with fleet("p", "d") as world:
        found = Transfers(world.pods, Share(), NixlHandover.counters)
        registry = CollectorRegistry()
        registry.register(found)
        finished(world["d"], EMPTY, 0)
        await found.round()
        for number in range(1, 4):
            finished(world["d"], {f"{number}234.5": number, "NaN": 1, "-1": 1, "": 1, "+Inf": number}, number)
            await found.round()
        names = {
            sample.labels["le"]
            for family in registry.collect()
            for sample in family.samples
            if sample.name == f"{METRIC_PROMPT_LENGTHS}_bucket"
        }
    assert names == {"1000.0", "2000.0", "+Inf"}


async def test_without_requests_there_are_no_histograms() -> None:
    async with fleet("p", "d") as world:
        registry = CollectorRegistry()
        registry.register(Transfers(world.pods, Share(), NixlHandover.counters))
        assert METRIC_PROMPT_LENGTHS.encode() not in generate_latest(registry)


@pytest.mark.vllm
def test_vllm_has_these_histograms_and_bounds() -> None:
    import vllm  # noqa: PLC0415 - not always installed
    from vllm.v1.metrics.buckets import build_1_2_5_buckets  # noqa: PLC0415

    source = (Path(vllm.__file__).parent / "v1" / "metrics" / "loggers.py").read_text(encoding="utf-8")
    assert f'"{PROMPT}"' in source
    assert f'"{ANSWER}"' in source
    assert {float(bound) for bound in build_1_2_5_buckets(10_000_000)} <= lengths._BOUNDS
