"""What a measurement says about the way of the KV cache, and about the nodes of its pods.

Tests: tests/cli/doctor/bandwidth/test_bandwidth.py
"""

from collections.abc import Iterator
from typing import Final

from pdinference.cli.doctor.bandwidth.measure import BandwidthMeasurement
from pdinference.cli.doctor.bandwidth.outcome import PodFacts
from pdinference.cli.doctor.finding import Finding, ok, problem
from pdinference.cli.doctor.way import TransferWay, expected
from pdinference.memory.link_speeds import SLOW_DIRECT, SLOW_TCP

_RDMA_LANES: Final = ("rc", "dc", "ud", "ib")
_LEAST: Final = {TransferWay.TCP: SLOW_TCP, TransferWay.RDMA: SLOW_DIRECT, TransferWay.NVLINK: SLOW_DIRECT}
"""GB/s below which the condition KVTransfer would be Slow, too."""
_MEMLOCK: Final = (
    "Set LimitMEMLOCK=infinity in the unit of the node's container runtime (docs/nodes.md#rdma), and restart it."
)


def measured_findings(way: TransferWay, measurement: BandwidthMeasurement) -> Iterator[Finding]:
    """All findings of a measurement."""
    found, nodes = measurement.measured, measurement.nodes.items()
    yield ok("nodes of the measurement", f"{', '.join(f'{pod} on {node}' for pod, node in nodes)}.")
    yield _speed(way, measurement)
    if not all(case.right for case in found.cases):
        yield problem(
            "contents", "KV cache arrived wrong.", "Do not use this combination of NIXL, driver and hardware."
        )
    if found.lanes:
        yield _transports(way, found.lanes)
    for name, facts in (("P", found.parameter), ("D", found.decode)):
        yield from _of_pod(way, name, facts)


def _speed(way: TransferWay, measurement: BandwidthMeasurement) -> Finding:
    pull, push = (measurement.measured.speed(direction) for direction in ("pull", "push"))
    usual = expected(way)
    beside = f" {usual:g} GB/s were measured by this project when D pulls." if usual else ""
    text = f"{pull:.2g} GB/s when D pulls, {push:.2g} GB/s when P pushes.{beside}"
    if pull < _LEAST.get(way, 0.0):
        return problem("bandwidth", text, "See docs/runbooks.md#slow.")
    return ok("bandwidth", text)


def _transports(way: TransferWay, lanes: list[str]) -> Finding:
    text = f"UCX chose {', '.join(lanes)}."
    if way is TransferWay.RDMA and not any(lane.startswith(_RDMA_LANES) for lane in lanes):
        return problem(
            "transports", text, "No RDMA transport is among them. Check transfer.rdma.netDevices and UCX_TLS."
        )
    return ok("transports", text)


def _of_pod(way: TransferWay, name: str, facts: PodFacts) -> Iterator[Finding]:
    limit = "unlimited" if facts.memlock_bytes < 0 else f"{facts.memlock_bytes:,} bytes"
    seen = (
        f"{len(facts.nvidia_device_files)} NVIDIA device files, {len(facts.gpus)} GPUs, "
        f"{len(facts.rdma_device_files)} RDMA device files, {len(facts.imex_channels)} IMEX channels, "
        f"locked memory {limit}, {facts.pid_namespace}."
    )
    subject = f"pod in the place of {name}"
    if way is TransferWay.RDMA and not facts.rdma_device_files:
        yield problem(
            subject,
            seen,
            "The resource of transfer.rdma.resourceName gives no /dev/infiniband. Check its device plug-in.",
        )
    elif way is TransferWay.RDMA and facts.memlock_bytes >= 0:
        yield problem(subject, seen, _MEMLOCK)
    else:
        yield ok(subject, seen)
    if not facts.dns:
        remedy = "Check CoreDNS, and NetworkPolicies that limit egress. Pods of P with several nodes need DNS."
        yield problem(f"DNS in the place of {name}", "kubernetes.default.svc has no address there.", remedy)
