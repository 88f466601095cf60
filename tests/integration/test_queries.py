"""The PromQL of each signal, in a real Prometheus, beside what the operator computes from the same pods."""

import asyncio
import subprocess
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e.cluster.build import binary
from pdinference.api.names import Role
from pdinference.autoscaling.signals import PodLoad, Upstream, measure
from pdinference.autoscaling.window import Dated, Window, decode_window
from pdinference.planning.scaling.adapter import adapter_rules
from pdinference.planning.scaling.queries import (
    LABEL_NAME,
    LABEL_ROLE,
    UNSPEAKABLE,
    Query,
    adapter_metric,
    matchers,
)
from pdinference.planning.scaling.signals import Signal
from pdinference.planning.scaling.vllm_metrics import VllmMetric
from tests.autoscaling.readings import reading
from tests.integration.prometheus import Line, MovingPod, Prometheus
from tests.integration.world import until

RECORDED = Path(__file__).parent.parent / "autoscaling" / "recorded"
WINDOW_S = 12
FULL_S = 16
"""Until all windows are full."""

COMPARED = [
    (signal, role)
    for signal, role in product(sorted(set(Signal) - UNSPEAKABLE), (Role.PARAMETER, Role.DECODE))
    if (signal, role) != (Signal.DECODE_LOAD, Role.PARAMETER)
]

BUSY_P = {
    "vllm:request_prefill_time_seconds_count": Line(9, 0.9),
    "vllm:request_prefill_time_seconds_sum": Line(10, 0.5),
    "vllm:num_requests_waiting": Line(4, 0.02),
    "vllm:num_requests_running": Line(1),
    "vllm:prompt_tokens_total": Line(7000, 720),
    "vllm:request_prompt_tokens_count": Line(9, 0.9),
    "vllm:request_prompt_tokens_sum": Line(7000, 720),
}
OVERLOADED_P = {**BUSY_P, "vllm:request_prefill_time_seconds_sum": Line(10, 1.7)}  # several prompts at a time
LONG_PROMPT_P = {"vllm:num_requests_running": Line(1), "vllm:num_requests_waiting": Line(0)}
BUSY_D = {
    "vllm:kv_cache_usage_perc": Line(0.5, 0.002),
    "vllm:num_requests_waiting": Line(0),
    "vllm:num_requests_running": Line(12),
    "vllm:num_requests_kv_fetch_by_stage": Line(0),
    "vllm:generation_tokens_total": Line(5000, 300),
    "vllm:request_generation_tokens_count": Line(50, 0.8),
    "vllm:request_generation_tokens_sum": Line(10_000, 700),  # long answers, so that what arrives decides
    "vllm:inter_token_latency_seconds_count": Line(5000, 300),
    "vllm:inter_token_latency_seconds_sum": Line(100, 12),
    "vllm:request_prompt_tokens_count": Line(50, 0.8),
    "vllm:request_prompt_tokens_sum": Line(40_000, 640),
}
LIGHT_D = {
    **BUSY_D,
    "vllm:kv_cache_usage_perc": Line(0.1),
    "vllm:inter_token_latency_seconds_sum": Line(100, 6),
    "vllm:num_requests_waiting": Line(2),  # their KV cache is being pulled, so they have their place
    "vllm:num_requests_kv_fetch_by_stage": Line(1),
}
FULL_D = {**BUSY_D, "vllm:num_requests_waiting": Line(7), "vllm:num_requests_running": Line(25)}


def pod(role: Role, number: int, recorded: str, numbers: dict[str, Line], name: str = "llama") -> MovingPod:
    labels = {"namespace": "models", "pod": f"{role}-{number}", LABEL_NAME: name, LABEL_ROLE: str(role)}
    return MovingPod(labels, (RECORDED / recorded).read_text(), numbers)


class Both:
    """Pods, read by a Prometheus and by what the operator reads with."""

    def __init__(self, prometheus: Prometheus, pods: list[MovingPod]) -> None:
        self.prometheus = prometheus
        self.pods = pods
        self._windows = {pod.address: Window() for pod in pods}
        self._idle: list[float] = []

    async def look(self, seconds: float) -> None:
        """Read as the operator does, for so long."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for pod in self.pods:
                now = time.monotonic()
                window = self._windows[pod.address]
                window.add(Dated(now, datetime.now(UTC), reading(pod.text())))
                if pod.labels[LABEL_ROLE] == Role.DECODE and (found := decode_window(window, now)) is not None:
                    self._idle += [found.token_seconds] if found.token_seconds else []
            await asyncio.sleep(1)

    def ours(self, signal: Signal, role: Role) -> float:
        upstream = Upstream(self._loads(Role.PARAMETER), min(self._idle))
        return measure(signal, self._loads(role), target=None, now=time.monotonic(), upstream=upstream).value

    async def theirs(self, signal: Signal, role: Role, target_milli: int | None = None) -> list[float]:
        query = Query(signal, role, matchers("models", "llama"), WINDOW_S)
        return await self.prometheus.query(query.promql(target_milli))

    def _loads(self, role: Role) -> list[PodLoad]:
        mine = [pod for pod in self.pods if pod.labels[LABEL_ROLE] == role]
        return [PodLoad(self._windows[pod.address], expected=True, counted=True) for pod in mine]


@pytest.fixture
async def both(tmp_path: Path) -> AsyncIterator[Both]:
    pods = [
        pod(Role.PARAMETER, 0, "parameter-busy.txt", BUSY_P),
        pod(Role.PARAMETER, 1, "parameter-busy.txt", OVERLOADED_P),
        pod(Role.PARAMETER, 2, "parameter-warm.txt", LONG_PROMPT_P),
        pod(Role.DECODE, 0, "decode-busy.txt", BUSY_D),
        pod(Role.DECODE, 1, "decode-busy.txt", LIGHT_D),
        pod(Role.DECODE, 2, "decode-later.txt", FULL_D),
        pod(Role.DECODE, 3, "decode-warm.txt", {}),
    ]
    stranger = pod(Role.DECODE, 4, "decode-busy.txt", FULL_D, name="mistral")
    for one in (*pods, stranger):
        await one.start()
    try:
        async with Prometheus(tmp_path, [*pods, stranger]) as prometheus:
            yield Both(prometheus, pods)
    finally:
        for one in (*pods, stranger):
            await one.stop()


async def test_prometheus_computes_what_the_operator_does(both: Both) -> None:
    """Within 3 %, as they read at different moments; on a machine that is busy elsewhere, as soon as it is not."""
    await both.look(FULL_S)
    found = await compared(both)

    async def agreed() -> bool:
        nonlocal found
        await both.look(1)
        found = await compared(both)
        return all(theirs == [near(ours)] for theirs, ours in found.values())

    with suppress(AssertionError):  # the next lines say what differs
        await until(agreed, "both say the same")
    assert {key: theirs for key, (theirs, _) in found.items()} == {
        key: [near(ours)] for key, (_, ours) in found.items()
    }
    assert found[Signal.PREFILL_LOAD, Role.PARAMETER][1] > 2  # two that work, one with a long prompt, and what waits
    assert found[Signal.DECODE_LOAD, Role.DECODE][1] > 2  # more than is worked on, because of what arrives


async def compared(both: Both) -> dict[tuple[Signal, Role], tuple[list[float], float]]:
    """Every signal by Prometheus and by the operator."""
    found = {}
    for signal, role in COMPARED:
        found[signal, role] = (await both.theirs(signal, role), both.ours(signal, role))
    return found


def near(value: float) -> Any:
    return pytest.approx(value, rel=0.03, abs=0.001)


async def test_a_pod_that_falls_silent_counts_as_at_its_target_and_one_that_is_unknown_does_not(both: Both) -> None:
    usage = (Signal.KV_USAGE, Role.DECODE, 800)

    async def told(value: float) -> bool:
        return await both.theirs(*usage) == [pytest.approx(value, abs=0.03)]

    await until(lambda: told(0.5 + 0.1 + 0.5), "all pods tell")
    light = next(pod for pod in both.pods if pod.labels["pod"] == "decode-1")
    await light.stop()
    await until(lambda: told(0.5 + 0.8 + 0.5), "a silent pod is taken to be at its target")
    for one in both.pods:
        await one.stop()

    async def nothing() -> bool:
        return await both.theirs(*usage) == []

    await until(nothing, "nothing is known when no pod tells")


async def test_prometheus_adapter_asks_the_same(both: Both) -> None:
    """Its own code reads the rules of the chart, and makes of them what it asks Prometheus."""
    rules = yaml.safe_dump(adapter_rules(WINDOW_S))
    asked = {key: asked_by_adapter(rules, adapter_metric(*key)) for key in COMPARED}

    found: dict[tuple[Signal, Role], tuple[list[float], list[float]]] = {}

    async def agreed() -> bool:
        """Numbers move between two questions, so there may be more than one look."""
        nonlocal found
        found = {key: (await both.prometheus.query(asked[key]), await both.theirs(*key)) for key in COMPARED}
        return all(theirs and ours == [near(value) for value in theirs] for ours, theirs in found.values())

    with suppress(AssertionError):  # the next lines say what differs
        await until(agreed, "both questions have the same answer")
    assert all(theirs for _, theirs in found.values())
    assert {key: ours for key, (ours, _) in found.items()} == {
        key: [near(value) for value in theirs] for key, (_, theirs) in found.items()
    }


def asked_by_adapter(rules: str, metric: str) -> str:
    command = [str(binary("adapter-query")), metric, "models", f"{LABEL_NAME}=llama", VllmMetric.KV_USAGE]
    return subprocess.run(command, input=rules, check=True, capture_output=True, text=True).stdout


async def test_where_there_are_no_pods_no_query_answers(tmp_path: Path) -> None:
    async with Prometheus(tmp_path, []) as prometheus:
        for signal in set(Signal) - UNSPEAKABLE:
            for target in (None, 900):
                query = Query(signal, Role.DECODE, matchers("models", "llama"))
                assert await prometheus.query(query.promql(target)) == []
