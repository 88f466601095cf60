"""What vLLM needs to be told about the device it runs on, and about the one that moves the KV cache."""

from pdinference.api.v1alpha1 import RoleSpec
from pdinference.api.v1alpha1.transfer import RDMA
from pdinference.engine.command import EnvironmentVariable, resource_variable, variable

_TCP_SEGMENT = "512k"


def device_environment(spec: RoleSpec, rdma: RDMA | None) -> list[EnvironmentVariable]:
    """Environment for GPU or CPU, and for what NIXL moves KV cache with (UCX)."""
    cpu = spec.accelerator.type == "CPU"
    network = _rdma_environment(rdma) if rdma is not None else _pod_network_environment(cpu=cpu)
    return [*_cores_environment(spec), *network, *_single_process_environment()] if cpu else network


def _cores_environment(spec: RoleSpec) -> list[EnvironmentVariable]:
    # As many threads as the pod asks for cores; otherwise PyTorch starts one for each core of the node.
    threads = [resource_variable("OMP_NUM_THREADS", "requests.cpu")] if "cpu" in spec.resources.requests else []
    # The pod's cores are what its cgroup gives it, not what vLLM would pick and bind among all of the node's.
    return [*threads, variable("VLLM_CPU_OMP_THREADS_BIND", "nobind")]


def _pod_network_environment(*, cpu: bool) -> list[EnvironmentVariable]:
    """From CPU to CPU there are no RDMA devices to look for, and one interface; on GPUs UCX finds the best way."""
    chosen = [variable("UCX_TLS", "tcp,self"), variable("UCX_NET_DEVICES", "eth0")] if cpu else []
    return [*chosen, *_tcp_environment()]


def _tcp_environment() -> list[EnvironmentVariable]:
    """What UCX sends at once by TCP, its way between pods as a rule: five times as fast as with its own 8 KiB.

    The same for P and D, whatever they run on: more than the other side takes ends the connection.
    """
    return [variable("UCX_TCP_TX_SEG_SIZE", _TCP_SEGMENT), variable("UCX_TCP_RX_SEG_SIZE", _TCP_SEGMENT)]


def _rdma_environment(rdma: RDMA) -> list[EnvironmentVariable]:
    """All ways but TCP, which UCX would otherwise fall back to without a word, and many times slower.

    So vLLM stops at its start where RDMA does not work: NIXL finds no way to reach even itself.
    """
    chosen = [variable("UCX_NET_DEVICES", ",".join(rdma.net_devices))] if rdma.net_devices else []
    return [variable("UCX_TLS", "^tcp"), *chosen]


def _single_process_environment() -> list[EnvironmentVariable]:
    # One process less to each pod, and none that spins on a shared-memory ring; without it, two vLLM pods on two
    # cores stall each other for seconds. Has an effect with one rank only.
    return [variable("VLLM_ENABLE_V1_MULTIPROCESSING", "0")]
