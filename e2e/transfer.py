"""The proof that KV cache moved: what vLLM itself counted on P and on D."""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any, Final, Self

import httpx
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from e2e.kubectl import Kubectl
from e2e.waiting import wait_until
from pdinference.api.engines import engines_of
from pdinference.api.names import ENGINE_ROLES, LABEL_NAME, LABEL_ROLE, Role

BLOCK: Final = 128
"""Tokens in a KV block on CPU; the tiny model's tokenizer makes a token of each byte."""


@dataclass(frozen=True)
class Transfer:
    """Counters of a P/D pair since its engines started, summed over engines.

    Attributes:
        computed_on_parameter: Prompt tokens whose KV cache P computed.
        computed_on_decode: Prompt tokens whose KV cache D had to compute itself; 0 when all of it moved.
        queried_on_decode: Prompt tokens whose KV cache D looked for outside itself.
        moved_to_decode: Prompt tokens whose KV cache D got from P.
        bytes: Bytes of KV cache that moved.
        transfers: Number of transfers.
        seconds: Time that the transfers took.
        failed: Transfers that failed.
    """

    computed_on_parameter: float = 0
    computed_on_decode: float = 0
    queried_on_decode: float = 0
    moved_to_decode: float = 0
    bytes: float = 0
    transfers: float = 0
    seconds: float = 0
    failed: float = 0

    def __sub__(self, earlier: Self) -> "Transfer":
        """What happened since `earlier`."""
        return Transfer(**{f.name: getattr(self, f.name) - getattr(earlier, f.name) for f in fields(self)})


def transfer(kubectl: Kubectl, name: str) -> Transfer:
    """Read the counters of all engines of a PDInference."""
    parameter = counters(kubectl, name, Role.PARAMETER)
    decode = counters(kubectl, name, Role.DECODE)
    # Who moves it counts it: D when it pulls, P when it pushes from pipeline stages.
    both = {sample: parameter.get(sample, 0) + decode.get(sample, 0) for sample in parameter | decode}
    return Transfer(
        computed_on_parameter=parameter.get("vllm:prompt_tokens_by_source_total{local_compute}", 0),
        computed_on_decode=decode.get("vllm:prompt_tokens_by_source_total{local_compute}", 0),
        queried_on_decode=decode.get("vllm:external_prefix_cache_queries_total", 0),
        moved_to_decode=decode.get("vllm:external_prefix_cache_hits_total", 0),
        bytes=both.get("vllm:nixl_bytes_transferred_sum", 0),
        transfers=both.get("vllm:nixl_bytes_transferred_count", 0),
        seconds=both.get("vllm:nixl_xfer_time_seconds_sum", 0),
        failed=both.get("vllm:nixl_num_failed_transfers_total", 0),
    )


def settled(kubectl: Kubectl, name: str) -> Transfer:
    """The counters, once two readings are alike: vLLM counts after it has answered, canaries included.

    Raises:
        WaitTimeoutError: They do not come to rest.
    """
    last = None

    def unchanged() -> Transfer | None:
        nonlocal last
        earlier, last = last, transfer(kubectl, name)
        return last if last == earlier else None

    return wait_until("the counters of P and D to rest", unchanged)


def counters(kubectl: Kubectl, name: str, role: Role) -> dict[str, float]:
    """Samples summed over the engines of a role that serve, by name and, where there is one, source."""
    selector = f"{LABEL_NAME}={name},{LABEL_ROLE} in ({','.join(ENGINE_ROLES)})"
    totals: dict[str, float] = {}
    for pod in filter(_serves, kubectl.get("pods", "-l", selector)["items"]):
        for port in (engine.port for engine in engines_of(pod) if engine.role is role):
            for sample, value in samples(kubectl, pod["metadata"]["name"], port):
                totals[sample] = totals.get(sample, 0) + value
    return totals


def _serves(pod: dict[str, Any]) -> bool:
    """Whether vLLM has started in it, and is not about to end, when it may have closed its port already."""
    started = [status.get("started", False) for status in pod["status"].get("containerStatuses", [])]
    return bool(started) and all(started) and "deletionTimestamp" not in pod["metadata"]


def samples(kubectl: Kubectl, pod: str, port: int) -> Iterator[tuple[str, float]]:
    """The metrics of an engine, by name and source."""
    for sample in metrics_of(kubectl, pod, port):
        if not sample.name.endswith(("_bucket", "_created")):
            source = sample.labels.get("source")
            yield f"{sample.name}{{{source}}}" if source else sample.name, sample.value


def metrics_of(kubectl: Kubectl, pod: str, port: int) -> list[Sample]:
    """Read metrics through a pod's kubelet, which NetworkPolicies leave alone."""
    with kubectl.port_forward(f"pod/{pod}", port) as url:
        text = httpx.get(f"{url}/metrics", timeout=60, trust_env=False).raise_for_status().text
    return [sample for family in text_string_to_metric_families(text) for sample in family.samples]
