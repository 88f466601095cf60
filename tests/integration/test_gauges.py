"""A real Prometheus scrapes real operators, and answers what KEDA and prometheus-adapter ask it."""

import subprocess
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e.cluster.build import binary
from pdinference.api.names import Role
from pdinference.cluster.kinds import AUTOSCALER, POD, SCALED_OBJECT
from pdinference.planning.scaling.gauges import adapter_rules
from pdinference.planning.scaling.signals import Signal
from pdinference.planning.scaling.targets import label
from tests.integration.keda import WITH_KEDA, install_keda
from tests.integration.operator_process import OperatorProcess
from tests.integration.prometheus import Prometheus, Target, page
from tests.integration.scaling_world import ScalingWorld, served
from tests.integration.vllm_metrics import Decoding, Load
from tests.waiting import until

TARGETS = {label(signal): 80 for signal in Signal}
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


@dataclass
class Scraped:
    """A resource that KEDA scales, its one D pod, operators, tenants, and the Prometheus that scrapes them all.

    Attributes:
        queries: What KEDA asks Prometheus, by the names of its triggers.
    """

    scaling: ScalingWorld
    operators: list[OperatorProcess]
    prometheus: Prometheus
    queries: Mapping[str, str]

    async def until_value(self, query: str, value: float) -> None:
        await self.until_answers(query, lambda found: found == [value], str(value))

    async def until_unknown(self, query: str) -> None:
        await self.until_answers(query, lambda found: not found, "unknown")

    async def until_answers(self, query: str, holds: Callable[[list[float]], bool], what: str) -> None:
        async def answers() -> bool:
            return holds(await self.prometheus.query(query))

        await until(answers, f"{query} is {what}")


@pytest.fixture
async def scraped(scaling: ScalingWorld, tmp_path: Path) -> AsyncIterator[Scraped]:
    world = scaling.world
    await install_keda(world)
    flags = (*WITH_KEDA, f"--operator-namespace={OPERATORS}")
    operators = [await scaling.start(*flags, elect=True), await scaling.follow(*flags)]
    await world.apply(decode=SCALED, autoscaling={"source": "KEDA"})
    await world.serving()
    await scaling.bring_up(LOAD)
    own = f'inference_namespace="{world.namespace}",inference_name="llama",inference_role="decode"'
    forged = f"pdinference_waiting_requests{{{own}}} 1e9\n"
    async with AsyncExitStack() as stack:
        tenant = await stack.enter_async_context(page('queue_length{queue="a\\"b"} 3\nqueue_length{queue="c"} 5\n'))
        other = await stack.enter_async_context(page(f'{forged}queue_length{{queue="a\\"b"}} 100\n'))
        targets = [Target(f"127.0.0.1:{operator.port}", {"namespace": OPERATORS}) for operator in operators]
        targets += [Target(tenant, {"namespace": world.namespace}), Target(other, {"namespace": "other"})]
        prometheus = await stack.enter_async_context(Prometheus(tmp_path, targets))
        triggers = (await world.api.get(SCALED_OBJECT.path(world.namespace, "llama-decode")))["spec"]["triggers"]
        queries = {trigger["name"]: trigger["metadata"]["query"] for trigger in triggers}
        yield Scraped(scaling, operators, prometheus, queries)


async def test_keda_and_the_adapter_read_what_the_operator_computes(scraped: Scraped) -> None:
    """And nothing that a tenant exports under the same name."""
    await expect_known_values(scraped)
    await expect_no_metric_of_a_tenant_elsewhere(scraped)
    await expect_pods_that_stop_answering_to_leave_no_gauge(scraped)
    await expect_the_adapter_to_ask_for_the_same(scraped)
    await expect_an_operator_that_stops_to_leave_the_gauges_to_the_others(scraped)


async def expect_known_values(scraped: Scraped) -> None:
    assert scraped.queries.keys() == {*TARGETS, "queue_length", LATENCY["external"]["metric"]["name"]}
    for name, value in KNOWN.items():
        await scraped.until_value(scraped.queries[name], value)
        await served(scraped.scaling, f"{round(1000 * value)}m", signal(name))  # as HPAs get it


async def expect_no_metric_of_a_tenant_elsewhere(scraped: Scraped) -> None:
    await scraped.until_value("max(pdinference_waiting_requests)", 1e9)  # the forged gauge is there
    await scraped.until_value(scraped.queries["waitingRequests"], 4)
    await scraped.until_value("sum(queue_length)", 108)
    assert await scraped.prometheus.query(scraped.queries["queue_length"]) == [3.0]


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


async def expect_pods_that_stop_answering_to_leave_no_gauge(scraped: Scraped) -> None:
    """Their successors have gauges again."""
    world, queries = scraped.scaling.world, scraped.queries
    (pod,) = await scraped.scaling.bring_up(LOAD)
    pod.load = Decoding(kv_usage=0.5, running=10)
    await scraped.until_answers(queries["decodeLoad"], bool, "known")
    await pod.stop()
    for name, query in queries.items():
        if name != "queue_length":
            await scraped.until_unknown(query)
    (old,) = await world.pods(Role.DECODE)
    await world.delete(POD, old["metadata"]["name"])

    async def replaced() -> bool:
        return [one["metadata"]["uid"] for one in await world.pods(Role.DECODE)] not in ([], [old["metadata"]["uid"]])

    await until(replaced, "there is another D pod")
    await scraped.scaling.bring_up(LOAD)
    await scraped.until_value(queries["waitingRequests"], 4.0)


async def expect_an_operator_that_stops_to_leave_the_gauges_to_the_others(scraped: Scraped) -> None:
    query = scraped.queries["waitingRequests"]
    gauge = f'count(pdinference_waiting_requests{{namespace="{OPERATORS}"}})'
    await scraped.until_value(gauge, 2)
    scraped.operators[0].kill()
    await scraped.until_value(gauge, 1)
    await scraped.until_value(query, 4.0)
    scraped.operators[1].kill()
    await scraped.until_unknown(query)
