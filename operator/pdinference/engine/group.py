"""vLLM on several nodes that are one instance (vllm/entrypoints/cli/serve.py, run_headless)."""

from functools import cache
from importlib.resources import files

from pdinference.api import names
from pdinference.api.names import Role
from pdinference.engine import lifecycle
from pdinference.engine.command import EnvironmentVariable, literal, pod_field_variable

# The only entry that knows --headless; the module rather than the `vllm` command, which not every build has.
_PROGRAM = ("python3", "-m", "vllm.entrypoints.cli.main", "serve")
_INDEX, _REVISION = "PDINFERENCE_POD_INDEX", "PDINFERENCE_REVISION"


def group_program(name: str, node_rank: int, nodes: int) -> tuple[str, ...]:
    """What runs vLLM on one of the nodes: it keeps the nodes together, which vLLM leaves to others.

    Args:
        name: The PDInference.
        node_rank: vLLM's node rank; node 0 answers requests.
        nodes: Number of nodes of the instance.
    """
    arguments = (node_rank, nodes, _leader(name), names.GROUP_PORT, lifecycle.PRE_STOP_SECONDS)
    return ("python3", "-I", "-c", literal(group_script()), *map(str, arguments), *_PROGRAM)


def group_arguments(name: str, node_rank: int, nodes: int) -> tuple[str, ...]:
    """vLLM's options that make the nodes one instance; the kubelet puts in which instance it is."""
    return (
        "--distributed-executor-backend=mp",
        f"--nnodes={nodes}",
        f"--node-rank={node_rank}",
        # Node 0 listens there itself, and on every address.
        f"--master-addr={_leader(name) if node_rank else '127.0.0.1'}",
        f"--master-port={names.RENDEZVOUS_PORT}",
        # A number of API servers that the user gave is for node 0.
        *(("--headless", "--api-server-count=0") if node_rank else ()),
    )


def group_environment() -> list[EnvironmentVariable]:
    """What the kubelet tells a node: which instance of which revision it belongs to, and its address for the others."""
    return [
        pod_field_variable(_INDEX, f"metadata.labels['{names.LABEL_POD_INDEX}']"),
        pod_field_variable(_REVISION, f"metadata.labels['{names.LABEL_REVISION}']"),
        pod_field_variable("VLLM_HOST_IP", "status.podIP"),
    ]


@cache
def group_script() -> str:
    """The program that keeps the nodes together, as text: the image need not have this package."""
    return files("pdinference.engine").joinpath("scripts/group_member.py").read_text(encoding="utf-8")


def _leader(name: str) -> str:
    """DNS name of node 0 of the pod's own instance."""
    pod = f"{names.parameter_workload(name, f'$({_REVISION})')}-$({_INDEX})"
    return f"{pod}.{names.role_object(name, Role.PARAMETER)}"
