"""A real Prometheus scrapes real operators and answers the queries of KEDA and prometheus-adapter."""

import subprocess
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e.cluster.build import binary
from pdinference.api.names import Role
from pdinference.cluster.kinds import AUTOSCALER, SCALED_OBJECT
from pdinference.planning.scaling.gauges import adapter_rules
from pdinference.planning.scaling.signals import Signal
from pdinference.planning.scaling.targets import label
from tests.integration.keda import TARGETS, WITH_KEDA, Keda
from tests.integration.operator_process import OperatorProcess
from tests.integration.prometheus import Page, Prometheus, Target
from tests.integration.scaling_world import ScalingWorld
from tests.integration.vllm_metrics import Decoding, Load
from tests.integration.world import until

OPERATORS = "operators"
QUEUE = {
    "type": "External",
    "external": {
        "metric": {"name": "queue_length", "selector": {"matchLabels": {"queue": 'a"b'}}},
        "target": {"type": "Value", "value": "30"},
    },
}
LATENCY: dict[str, Any] = {
    "type": "External",
    "external": {
        "metric": {
            "name": "pdinference_inter_token_latency_milliseconds_p90",
            "selector": {"matchLabels": {"pdinference.io/name": "llama", "pdinference.io/role": "decode"}},
        },
        "target": {"type": "Value", "value": "50"},
    },
}
SCALED = {"replicas": 1, "autoscaling": {"maxReplicas": 4, "targets": TARGETS, "metrics": [QUEUE, LATENCY]}}
LOAD = Load(kv_usage=1.0, waiting=4, running=10)
KNOWN = {"kvUsage": 1.0, "waitingRequests": 4.0, "runningRequests": 10.0, "kvDemand": 1.4}
"""What the signals of `LOAD` are: a request holds 1,280 tokens, and four more wait for as many of 12,800."""


class Scraped:
    """A resource that KEDA scales, its one D pod, operators, tenants, and the Prometheus that scrapes them all."""

    def __init__(self, scaling: ScalingWorld, operators: list[OperatorProcess], prometheus: Prometheus) -> None:
        self.scaling = scaling
        self.operators = operators
        self.prometheus = prometheus

    async def queries(self) -> dict[str, str]:
        """KEDA's queries, by the names of its triggers."""
        scaled = await self.scaling.world.get(SCALED_OBJECT, "llama-decode") or {}
        return {trigger["name"]: trigger["metadata"]["query"] for trigger in scaled["spec"]["triggers"]}

    async def until_value(self, query: str, value: float) -> None:
        await self.until_answers(query, lambda found: found == [value], f"{query} is {value}")

    async def until_answers(self, query: str, holds: Callable[[list[float]], bool], what: str) -> None:
        async def answers() -> bool:
            return holds(await self.prometheus.query(query))

        await until(answers, what)


@pytest.fixture
async def scraped(scaling: ScalingWorld, keda: Keda, tmp_path: Path) -> AsyncIterator[Scraped]:
    world = scaling.world
    flags = (*WITH_KEDA, f"--operator-namespace={OPERATORS}")
    operators = [await scaling.start(*flags, elect=True), await scaling.follow(*flags)]
    await world.apply(decode=SCALED, autoscaling={"source": "KEDA"})
    await world.serving()
    await scaling.bring_up(LOAD)
    own = f'inference_namespace="{world.namespace}",inference_name="llama",inference_role="decode"'
    forged = f"pdinference_waiting_requests{{{own}}} 1e9\n"
    async with AsyncExitStack() as stack:
        tenant = await stack.enter_async_context(Page('queue_length{queue="a\\"b"} 3\nqueue_length{queue="c"} 5\n'))
        other = await stack.enter_async_context(Page(f'{forged}queue_length{{queue="a\\"b"}} 100\n'))
        targets = [Target(f"127.0.0.1:{operator.port}", {"namespace": OPERATORS}) for operator in operators]
        targets += [
            Target(tenant.address, {"namespace": world.namespace}),
            Target(other.address, {"namespace": "other"}),
        ]
        prometheus = await stack.enter_async_context(Prometheus(tmp_path, targets))
        yield Scraped(scaling, operators, prometheus)


async def test_keda_and_the_adapter_read_what_the_operator_computes(scraped: Scraped) -> None:
    """And nothing that a tenant exports under the same name."""
    await expect_known_values(scraped)
    await expect_no_metric_of_a_tenant_elsewhere(scraped)
    await expect_the_adapter_to_ask_for_the_same(scraped)


async def expect_known_values(scraped: Scraped) -> None:
    queries = await scraped.queries()
    assert queries.keys() == {*TARGETS, "queue_length", LATENCY["external"]["metric"]["name"]}
    for name, value in KNOWN.items():
        await scraped.until_value(queries[name], value)
        assert await scraped.scaling.value(signal(name)) == f"{round(1000 * value)}m"  # as HPAs get it


async def expect_no_metric_of_a_tenant_elsewhere(scraped: Scraped) -> None:
    queries = await scraped.queries()
    everywhere = "max(pdinference_waiting_requests)"
    await scraped.until_answers(everywhere, lambda found: found == [1e9], "the forged gauge is there")
    await scraped.until_answers(queries["waitingRequests"], lambda found: found == [4.0], "the true one is read")
    await scraped.until_answers("sum(queue_length)", lambda found: found == [108.0], "all queues are there")
    assert await scraped.prometheus.query(queries["queue_length"]) == [3.0]


async def expect_the_adapter_to_ask_for_the_same(scraped: Scraped) -> None:
    """The adapter's own code reads the rule of the chart, and makes a query of an HPA's metric."""
    world = scraped.scaling.world
    await world.apply(decode=SCALED, autoscaling={"source": "PrometheusAdapter"})

    async def scales() -> bool:
        return await world.get(AUTOSCALER, f"llama-{Role.DECODE}") is not None

    await until(scales, "there is an HPA")
    metrics = {
        entry["external"]["metric"]["name"]: entry["external"]["metric"]["selector"]["matchLabels"]
        for entry in (await scraped.scaling.hpa())["spec"]["metrics"]
    }
    for name, value in KNOWN.items():
        query = asked_by_adapter(signal(name), world.namespace, metrics[signal(name)])
        await scraped.until_value(query, value)


def signal(name: str) -> Signal:
    (found,) = (signal for signal in Signal if label(signal) == name)
    return found


def asked_by_adapter(metric: str, namespace: str, labels: Mapping[str, str]) -> str:
    selector = ",".join(f"{key}={value}" for key, value in labels.items())
    command = [str(binary("adapter-query")), metric, namespace, selector, metric]
    rules = yaml.safe_dump(adapter_rules(OPERATORS))
    return subprocess.run(command, input=rules, check=True, capture_output=True, text=True).stdout


async def test_an_operator_that_stops_leaves_the_gauges_to_the_others(scraped: Scraped) -> None:
    query = (await scraped.queries())["waitingRequests"]
    gauge = f'count(pdinference_waiting_requests{{namespace="{OPERATORS}"}})'
    await scraped.until_answers(gauge, lambda found: found == [2.0], "both operators export it")
    scraped.operators[0].kill()
    await scraped.until_answers(gauge, lambda found: found == [1.0], "Prometheus has noticed")
    assert await scraped.prometheus.query(query) == [4.0]
    scraped.operators[1].kill()
    await scraped.until_answers(query, lambda found: not found, "nothing is known")


async def test_pods_that_stop_answering_leave_no_gauge(scraped: Scraped) -> None:
    query = (await scraped.queries())["decodeLoad"]
    (pod,) = await scraped.scaling.bring_up(LOAD)
    pod.load = Decoding(kv_usage=0.5, running=10)
    await scraped.until_answers(query, lambda found: found != [], "decode load is known")
    await pod.stop()
    for name, each in (await scraped.queries()).items():
        if name != "queue_length":
            await scraped.until_answers(each, lambda found: not found, f"{name} is not known")
