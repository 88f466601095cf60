"""Metrics that vLLM has written are parsed correctly."""

from datetime import timedelta

import pytest

from pdinference.loadmetrics.latencies import measure_latency
from pdinference.loadmetrics.scraping.exposition import PREFIX, Exposition, Histogram, Reading
from pdinference.loadmetrics.scraping.http_answer import HttpAnswer
from pdinference.loadmetrics.scraping.window import TimedReading, Window
from pdinference.loadmetrics.signals import PodLoad, measure
from pdinference.memory.observed import KvCache
from pdinference.planning.scaling.signals import Signal
from tests.loadmetrics.readings import RECORDED, START, reading


def recorded(name: str) -> Reading:
    return reading((RECORDED / f"{name}.txt").read_text(encoding="utf-8"))


def pod(*names: str) -> PodLoad:
    """A pod that answered so, every six seconds since the clock stood at 0."""
    window = Window()
    for number, name in enumerate(names):
        window.add(TimedReading(6.0 * number, START + timedelta(seconds=6 * number), recorded(name)))
    return PodLoad(window, expected=True, counted=True)


def test_gauges_and_counters() -> None:
    found = recorded("decode-later")
    assert (found.running, found.waiting, found.holding) == (2, 6, 0)
    assert found.kv_usage == pytest.approx(22 / 23)  # one block of 24 is vLLM's own
    assert (found.prompt_tokens, found.generation_tokens) == (3208, 1189)
    assert found.cache == KvCache(24, 128)
    assert found.cache is not None
    assert found.cache.tokens == 3072


def test_histograms() -> None:
    found = recorded("decode-busy")
    assert found.prompt_lengths == Histogram((), 802, 1)
    assert found.first_token is not None
    assert found.first_token.count == 4
    assert found.first_token.buckets[-1] == (float("inf"), 4)
    counts = [count for _, count in found.first_token.buckets]
    assert counts == sorted(counts)


def test_several_engines_of_a_pod_are_one_pod() -> None:
    """Data parallelism: usage is a mean, everything else a sum."""
    text = (RECORDED / "decode-later.txt").read_text(encoding="utf-8")
    other = (RECORDED / "decode-busy.txt").read_text(encoding="utf-8").replace('engine="0"', 'engine="1"')
    samples = "\n".join(line for line in other.splitlines() if not line.startswith("#"))
    written = f"{text}\n{samples}\n".replace('num_gpu_blocks="24"', 'num_gpu_blocks="48"')  # the sum, in both lines
    both = reading(written)
    assert both.waiting == 12
    assert both.kv_usage == pytest.approx((22 / 23 + 16 / 23) / 2)
    assert both.cache == KvCache(48, 128, ranks=2)
    assert both.cache is not None
    assert both.cache.of_a_rank == KvCache(24, 128)


def test_sixteen_engines_with_a_long_model_name_fit() -> None:
    """With the buckets that were left out of the recorded answer."""
    recorded = (RECORDED / "decode-later.txt").read_text(encoding="utf-8")
    recorded = recorded.replace('model_name="m"', 'model_name="meta-llama/Llama-3.1-405B-Instruct"')
    comments = [line for line in recorded.splitlines() if line.startswith("#")]
    samples = [line for line in recorded.splitlines() if line.startswith("vllm:")]
    whole = {line.split("_bucket")[0] for line in samples if "_bucket" in line}
    for line in list(samples):
        name, _, labels = line.partition("_sum{")
        if labels and name not in whole:
            samples += [f'{name}_bucket{{le="{number}.0",{labels}' for number in range(20)]
            samples += [f"{name}_created{{{labels}"]
    engines = [line.replace('engine="0"', f'engine="{number}"') for number in range(16) for line in samples]
    text = "\n".join([*comments, *engines, ""]).encode()
    answer, found = HttpAnswer(PREFIX), Exposition()
    for wanted in answer.feed(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(text) + text):
        found.take(wanted)
    assert answer.complete
    assert found.reading().waiting == 16 * 6


def test_nothing_that_vllm_did_not_say_is_made_up() -> None:
    found = reading("# TYPE other counter\nother_total 1.0\n")
    assert (found.kv_usage, found.waiting, found.cache, found.prefill) == (None, None, None, None)


def test_d_under_load_asks_for_the_pods_that_its_queue_needs() -> None:
    """Six wait, each of which will need at least as much as the two that run: nearly half a cache."""
    now = 12.0
    found = measure(Signal.KV_DEMAND, [pod("decode-warm", "decode-busy", "decode-later")], target=0.8, now=now)
    assert found.value == pytest.approx(22 / 23 + 6 * 22 / 23 / 2)
    rate = measure(
        Signal.GENERATION_TOKENS_PER_SECOND, [pod("decode-warm", "decode-busy", "decode-later")], target=None, now=now
    )
    assert rate.value == pytest.approx((1189 - 16) / 12)


def test_p_holds_kv_cache_for_d_although_it_has_nothing_to_do() -> None:
    """Why P is not scaled on KV usage."""
    idle = [pod("parameter-warm", "parameter-busy")]
    assert measure(Signal.KV_USAGE, idle, target=0.8, now=6.0).value > 0.8
    assert measure(Signal.WAITING_REQUESTS, idle, target=None, now=6.0).value == 0
    assert measure(Signal.PREFILL_LOAD, idle, target=None, now=6.0).value == pytest.approx(1.0)


def test_latencies_of_d() -> None:
    window = pod("decode-warm").window
    for at, name in ((40.0, "decode-warm"), (50.0, "decode-busy"), (60.0, "decode-later")):
        window.add(TimedReading(at, START + timedelta(seconds=at), recorded(name)))
    loads = [PodLoad(window, expected=True, counted=True)]
    found = measure_latency("pdinference_inter_token_latency_milliseconds_p50", loads, now=60.0)
    assert 10 < found.value < 25  # 12.5 s for 752 tokens
