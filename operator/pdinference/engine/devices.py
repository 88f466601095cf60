"""Environment variables for the compute devices of vLLM and for the network devices of KV transfer.

Tests: tests/engine/test_vllm.py
"""

from pdinference.api.v1alpha1 import RoleSpec
from pdinference.api.v1alpha1.transfer import RDMA, Transfer
from pdinference.engine.command import EnvironmentVariable, resource_variable, variable

_TCP_SEGMENT = "512k"


def device_environment(spec: RoleSpec, transfer: Transfer | None) -> list[EnvironmentVariable]:
    """Environment for GPU or CPU, and for UCX, which NIXL uses for transfers.

    Args:
        spec: The role.
        transfer: How KV cache moves; None if none does.
    """
    cpu = spec.accelerator.type == "CPU"
    network = [] if transfer is None else _network_environment(transfer, cpu=cpu)
    return [*_cores_environment(spec), *network, *_single_process_environment()] if cpu else network


def _cores_environment(spec: RoleSpec) -> list[EnvironmentVariable]:
    # One thread for each requested core. By default, PyTorch starts one for each core of the node.
    threads = [resource_variable("OMP_NUM_THREADS", "requests.cpu")] if "cpu" in spec.resources.requests else []
    # The cgroup limits the cores of the pod. By default, vLLM selects and binds cores of the whole node.
    return [*threads, variable("VLLM_CPU_OMP_THREADS_BIND", "nobind")]


def _network_environment(transfer: Transfer, *, cpu: bool) -> list[EnvironmentVariable]:
    return _pod_network_environment(cpu=cpu) if transfer.rdma is None else _rdma_environment(transfer.rdma)


def _pod_network_environment(*, cpu: bool) -> list[EnvironmentVariable]:
    """Between CPU pods there are no RDMA devices, and one interface. With GPUs, UCX selects the transports."""
    chosen = [variable("UCX_TLS", "tcp,self"), variable("UCX_NET_DEVICES", "eth0")] if cpu else []
    return [*chosen, *_tcp_environment()]


def _tcp_environment() -> list[EnvironmentVariable]:
    """Segment size of UCX over TCP, the usual transport between pods: five times as fast as the default of 8 KiB.

    P and D must have the same value on all devices: UCX closes a connection on a segment that is too large.
    """
    return [variable("UCX_TCP_TX_SEG_SIZE", _TCP_SEGMENT), variable("UCX_TCP_RX_SEG_SIZE", _TCP_SEGMENT)]


def _rdma_environment(rdma: RDMA) -> list[EnvironmentVariable]:
    """All transports except TCP, to which UCX would otherwise fall back silently, and which is many times slower.

    Without a working RDMA device, vLLM then fails at start, because NIXL cannot connect to itself.
    """
    chosen = [variable("UCX_NET_DEVICES", ",".join(rdma.net_devices))] if rdma.net_devices else []
    return [variable("UCX_TLS", "^tcp"), *chosen]


def _single_process_environment() -> list[EnvironmentVariable]:
    # One process less in each pod, and no process that spins on a shared-memory ring. Otherwise two vLLM pods on two
    # cores block each other for seconds. This has an effect with one rank only.
    return [variable("VLLM_ENABLE_V1_MULTIPROCESSING", "0")]
