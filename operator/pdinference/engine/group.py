"""vLLM instances on several nodes (vllm/entrypoints/cli/serve.py, run_headless)."""

from typing import Final

from pdinference.api import names
from pdinference.api.names import Role
from pdinference.api.v1alpha1.roles.role import Parallelism
from pdinference.engine import lifecycle
from pdinference.engine.command import EnvironmentVariable, pod_field_variable, script_program

GROUP_SCRIPT: Final = "group_member"
"""The program that holds the nodes together (engine/scripts/group_member.py)."""
_INDEX, _REVISION = "PDINFERENCE_POD_INDEX", "PDINFERENCE_REVISION"
_HOST_IP: Final = "VLLM_HOST_IP"


def group_program(program: tuple[str, ...], name: str, role: Role, node_rank: int, nodes: int) -> tuple[str, ...]:
    """The program that runs vLLM on one node, and restarts all nodes of an instance together.

    Args:
        program: The program that runs vLLM on a single node.
        name: Name of the PDInference.
        role: Role of the instance.
        node_rank: vLLM's node rank. Node 0 serves requests.
        nodes: Number of nodes of the instance.
    """
    arguments = (node_rank, nodes, _leader(name, role), names.GROUP_PORT, lifecycle.PRE_STOP_SECONDS)
    return (*script_program(GROUP_SCRIPT), *map(str, arguments), *program)


def group_arguments(name: str, role: Role, parallelism: Parallelism, node_rank: int) -> tuple[str, ...]:
    """vLLM's options that connect the nodes of an instance. The kubelet fills in the index of the instance."""
    connected = _of_ranks if parallelism.data > 1 else _of_one_rank
    return (
        "--distributed-executor-backend=mp",
        *connected(_leader(name, role), parallelism, node_rank),
        # The user's number of API servers applies to node 0 only.
        *(("--headless", "--api-server-count=0") if node_rank else ()),
    )


def _of_one_rank(leader: str, parallelism: Parallelism, node_rank: int) -> tuple[str, ...]:
    """The nodes share the layers of the model, or the heads of each layer."""
    return (
        f"--nnodes={parallelism.nodes}",
        f"--node-rank={node_rank}",
        # Node 0 itself listens on all addresses.
        f"--master-addr={leader if node_rank else '127.0.0.1'}",
        f"--master-port={names.RENDEZVOUS_PORT}",
    )


def _of_ranks(leader: str, parallelism: Parallelism, node_rank: int) -> tuple[str, ...]:
    """Each node has whole data-parallel ranks. The API server of node 0 sends requests to all of them.

    Node 0 tells the others its address, where also their process groups meet. So it must be one that they reach.
    """
    local = parallelism.data // parallelism.nodes
    return (
        f"--data-parallel-size-local={local}",
        f"--data-parallel-address={leader if node_rank else f'$({_HOST_IP})'}",
        f"--data-parallel-rpc-port={names.DATA_PARALLEL_PORT}",
        *((f"--data-parallel-start-rank={node_rank * local}",) if node_rank else ()),
    )


def group_environment() -> list[EnvironmentVariable]:
    """Variables with the instance and revision of a node, and with its address for the other nodes."""
    return [
        pod_field_variable(_INDEX, f"metadata.labels['{names.LABEL_POD_INDEX}']"),
        pod_field_variable(_REVISION, f"metadata.labels['{names.LABEL_REVISION}']"),
        pod_field_variable(_HOST_IP, "status.podIP"),
    ]


def _leader(name: str, role: Role) -> str:
    """DNS name of node 0 of the pod's instance."""
    pod = f"{names.revision_object(name, role, f'$({_REVISION})')}-$({_INDEX})"
    return f"{pod}.{names.role_object(name, role)}"
