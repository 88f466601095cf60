"""What vLLM needs to be told about the device it runs on."""

from pdinference.api.v1alpha1 import RoleSpec
from pdinference.engine.command import EnvironmentVariable, resource_variable, variable


def device_environment(spec: RoleSpec) -> list[EnvironmentVariable]:
    """Environment for GPU or CPU."""
    return _cpu_environment(spec) if spec.accelerator.type == "CPU" else []


def _cpu_environment(spec: RoleSpec) -> list[EnvironmentVariable]:
    # As many threads as the pod asks for cores; otherwise PyTorch starts one for each core of the node.
    threads = [resource_variable("OMP_NUM_THREADS", "requests.cpu")] if "cpu" in spec.resources.requests else []
    return [
        *threads,
        # The pod's cores are what its cgroup gives it, not what vLLM would pick and bind among all of the node's.
        variable("VLLM_CPU_OMP_THREADS_BIND", "nobind"),
        # KV moves over the pod network: no RDMA devices to look for, and one interface.
        variable("UCX_TLS", "tcp,self"),
        variable("UCX_NET_DEVICES", "eth0"),
        # One process less to each pod, and none that spins on a shared-memory ring; without it, two vLLM pods on two
        # cores stall each other for seconds. Has an effect with one rank only.
        variable("VLLM_ENABLE_V1_MULTIPROCESSING", "0"),
    ]
