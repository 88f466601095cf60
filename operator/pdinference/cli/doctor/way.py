"""The way of the KV cache that follows from a spec: its expected speed, and the load that it carries."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from pdinference.api.v1alpha1 import Spec
from pdinference.api.v1alpha1.conditions import KV_TRANSFER
from pdinference.api.v1alpha1.status import Status
from pdinference.cli.doctor.facts import ClusterFacts, Subject
from pdinference.cli.doctor.finding import Finding, ok, problem, unknown
from pdinference.cli.doctor.matching import selects
from pdinference.cli.listing import ObjectListing
from pdinference.engine.connectors.registry import connector_of, measurable
from pdinference.engine.transfer_measurement import KVShape
from pdinference.memory import RolePlan
from pdinference.memory.link_speeds import CPU, GIGA, NVLINK_PULL, NVLINK_PUSH, SLOW_DIRECT, TCP_PULL, TCP_PUSH
from pdinference.memory.moved import token_bytes
from pdinference.planning.condition_changes import find

_PROMPTS: Final = (1_000, 8_000, 32_000)
_LENGTH: Final = 8_000
"""Prompt tokens of a measured transfer."""
_MOST_BYTES: Final = 2**30
_MOST_BYTES_ON_CPU: Final = 2**26
_COMMON: Final = KVShape(regions=64, block_bytes=2**18, blocks=63)
"""Llama-3.1-8B in bf16 with blocks of 128 tokens."""
_BLOCKS: Final = 1024


class TransferWay(StrEnum):
    """How KV cache gets from P to D."""

    NONE = "none"
    OTHER = "the connector's own"
    CPU = "TCP between CPUs"
    TCP = "TCP"
    NVLINK = "NVLink in one pod"
    RDMA = "RDMA"


EXPECTED: Final = {
    TransferWay.TCP: (TCP_PULL, TCP_PUSH),
    TransferWay.NVLINK: (NVLINK_PULL, NVLINK_PUSH),
    TransferWay.CPU: (CPU, CPU),
}
"""GB/s that were measured: D pulls, P pushes."""


def way_of(spec: Spec) -> TransferWay:
    """The way that a spec leads to."""
    if not spec.transfers_kv:
        return TransferWay.NONE
    if not connector_of(spec).is_measured:
        return TransferWay.OTHER
    if spec.transfer.rdma is not None:
        return TransferWay.RDMA
    gpus = all(spec.of(role).accelerator.type == "GPU" for role in spec.engine_roles)
    if not gpus:
        return TransferWay.CPU
    return TransferWay.TCP if spec.host_local is None else TransferWay.NVLINK


def expected(way: TransferWay) -> float | None:
    """Expected GB/s when D pulls; None if it was not measured."""
    return EXPECTED[way][0] if way in EXPECTED else None


@dataclass(frozen=True, slots=True)
class CarriedLoad:
    """What a way carries of prompts of one length.

    Attributes:
        tokens: Tokens of a prompt.
        bytes: Their KV cache, of all ranks.
        seconds: Duration of one transfer.
        per_second: Transfers a second.
    """

    tokens: int
    bytes: int
    seconds: float
    per_second: float

    def as_json(self) -> dict[str, Any]:
        """All members."""
        return {
            "promptTokens": self.tokens,
            "bytes": self.bytes,
            "seconds": self.seconds,
            "promptsPerSecond": self.per_second,
        }


def loads(plan: RolePlan | None, speed: float | None) -> list[CarriedLoad]:
    """The load that a speed carries; empty while the bytes of a token or the speed are unknown.

    Args:
        plan: Memory plan of D.
        speed: GB/s.
    """
    size = None if plan is None else token_bytes(plan).value
    if plan is None or not size or not speed:
        return []
    token = round(size)
    longest = plan.settings.max_length or max(_PROMPTS)
    lengths = sorted({min(length, longest) for length in _PROMPTS})
    return [CarriedLoad(n, n * token, n * token / speed / GIGA, speed * GIGA / n / token) for n in lengths]


def shape_of(plan: RolePlan | None, *, gpu: bool) -> KVShape:
    """The shape of the KV cache that one rank of D reads. Bounded, because pods need memory for several."""
    rank = None if plan is None else plan.stage.kv_bytes_per_token.value
    most = _MOST_BYTES if gpu else _MOST_BYTES_ON_CPU
    if plan is None or not rank:
        return KVShape(
            _COMMON.regions, _COMMON.block_bytes, min(_COMMON.blocks, most // (_COMMON.regions * _COMMON.block_bytes))
        )
    regions = plan.stage.layers * (1 if plan.facts.mla else 2)
    block = max(1, round(rank) * plan.settings.block_size // regions)
    blocks = -(-_LENGTH // plan.settings.block_size)
    return KVShape(regions, block, max(1, min(blocks, _BLOCKS, most // (block * regions))))


def way_findings(facts: ClusterFacts, subject: Subject) -> Iterator[Finding]:
    """All checks of the way."""
    way = way_of(subject.resource.spec)
    yield _way(way, facts)
    if way is not TransferWay.NONE and subject.plan is None:
        yield unknown(
            "KV cache of a prompt",
            "The model's shape is unknown.",
            "Put the members of config.json into spec.model.architecture.config, or wait for the model Job.",
        )
    if subject.status is not None and way is not TransferWay.NONE:
        yield _observed(subject.status)
    yield from _egress(facts.policies, subject)


def _way(way: TransferWay, facts: ClusterFacts) -> Finding:
    if way is TransferWay.NONE:
        return ok("way of the KV cache", "spec.mode is Aggregated: no KV cache moves.")
    if way is TransferWay.OTHER:
        return ok("way of the KV cache", f"The connector is not {measurable()}. Its speed is not known here.")
    if way is TransferWay.CPU:
        return ok(
            "way of the KV cache",
            "TCP between CPUs: 0.7 to 0.9 GB/s on two busy cores (benchmarks/results/kv-transfer.md).",
        )
    if way is TransferWay.NVLINK:
        return ok(
            "way of the KV cache",
            f"NVLink within a pod (transfer.path HostLocal): {NVLINK_PULL:g} GB/s when D pulls, if NVLink joins the "
            "GPUs of a pod (docs/tuning.md). `nvidia-smi topo -m` on the node shows it.",
        )
    if way is TransferWay.RDMA:
        return ok(
            "way of the KV cache",
            f"RDMA. It was not measured by this project; it should give more than the {SLOW_DIRECT:g} GB/s from which "
            "on KVTransfer is not Slow.",
            "--bandwidth measures it.",
        )
    offered = sorted(
        {
            resource
            for node in facts.nodes.items
            for resource in (node.get("status") or {}).get("allocatable") or {}
            if "/" in resource and "rdma" in resource
        }
    )
    rdma = f"transfer.rdma, nodes offer {', '.join(offered[:4])}" if offered else "transfer.rdma, if the hosts have it"
    return problem(
        "way of the KV cache",
        f"TCP between pods with GPUs, also on one host: {TCP_PULL:g} GB/s when D pulls (docs/tuning.md).",
        f"Set transfer.path: HostLocal, if one host has the GPUs of P and D; or {rdma}. Otherwise compare with "
        "spec.mode: Aggregated (docs/p-d-or-not.md).",
    )


def _observed(status: Status) -> Finding:
    """What routers and vLLM measured under real load."""
    name, numbers = "status.transfer", status.transfer
    condition = find(status.conditions, KV_TRANSFER)
    if condition is None or numbers is None:
        return unknown(name, "The routers have reported nothing yet.")
    speed, busy = numbers.gigabytes_per_second, numbers.busy_percent
    measured = (
        "" if speed is None else f" At least {speed:g} GB/s while transfers are under way, {busy or 0} % of the time."
    )
    text = f"KVTransfer is {condition.status} ({condition.reason}).{measured}"
    if condition.status == "False":
        return problem(name, text, condition.message)
    return ok(name, text) if condition.status == "True" else unknown(name, text)


def _egress(policies: ObjectListing, subject: Subject) -> Iterator[Finding]:
    """NetworkPolicies of others that limit what P and D may connect to."""
    if policies.unreadable:
        yield unknown("NetworkPolicies", policies.unreadable)
        return
    limiting = [
        policy["metadata"]["name"]
        for policy in policies.items
        if "Egress" in (policy["spec"].get("policyTypes") or ())
        and any(
            selects(policy["spec"].get("podSelector") or {}, template["metadata"]["labels"])
            for template in subject.templates.values()
        )
    ]
    if limiting:
        yield unknown(
            "NetworkPolicies",
            f"{', '.join(limiting[:4])} limit egress of P or D. Their rules are not evaluated here.",
            "Allow all ports between P and D, and DNS. --bandwidth tries it.",
        )
    else:
        yield ok("NetworkPolicies", "None limits egress of P or D.")
