"""vLLM's command on the nodes of one P instance."""

from collections.abc import Callable

import pytest

from pdinference.api import names
from pdinference.api.names import Role
from pdinference.api.v1alpha1 import PDInference
from pdinference.engine.command import Command
from pdinference.engine.scripts import group_member
from pdinference.engine.vllm import engine_command

Make = Callable[..., PDInference]


@pytest.fixture
def commands(resource: Make) -> list[Command]:
    spec = {"parallelism": {"pipeline": 2, "nodes": 2}}
    return [engine_command(resource(parameter=spec), Role.PARAMETER, rank) for rank in range(2)]


def as_the_kubelet_runs(command: Command) -> list[str]:
    """In pod 7 of a revision."""
    sources = {e["name"]: e["valueFrom"]["fieldRef"]["fieldPath"] for e in command.environment if "valueFrom" in e}
    values = {"metadata.labels['apps.kubernetes.io/pod-index']": "7", f"metadata.labels['{names.LABEL_REVISION}']": "r"}
    text = [*command.program, *command.arguments]
    for name, path in sources.items():
        text = [part.replace(f"$({name})", values[path]) if path in values else part for part in text]
    return [part.replace("$$", "$") for part in text]


def test_all_nodes_connect_to_the_first_pod_of_their_instance(commands: list[Command]) -> None:
    first, second = map(as_the_kubelet_runs, commands)
    leader = "llama-parameter-r-7.llama-parameter"
    assert first[3:8] == ["0", "2", leader, str(names.GROUP_PORT), "10"]
    assert second[3:8] == ["1", "2", leader, str(names.GROUP_PORT), "10"]
    assert "--master-addr=127.0.0.1" in first
    assert f"--master-addr={leader}" in second


def test_the_program_is_a_file_in_the_pod(commands: list[Command]) -> None:
    for command in commands:
        assert as_the_kubelet_runs(command)[:3] == ["python3", "-I", "/etc/pdinference/scripts/group_member.py"]
        assert command.scripts == ("group_member",)


def test_only_the_first_node_has_api_servers(resource: Make) -> None:
    spec = {"parallelism": {"tensor": 1, "pipeline": 2, "nodes": 2}, "args": {"api-server-count": 2}}
    first, second = (engine_command(resource(parameter=spec), Role.PARAMETER, rank).arguments for rank in range(2))
    assert "--headless" not in first
    assert second.index("--api-server-count=0") > second.index("--api-server-count=2")
    assert "--headless" in second


def test_script_and_operator_agree_on_the_exit_code() -> None:
    assert group_member.BROKEN_EXIT == names.GROUP_BROKEN_EXIT


@pytest.mark.parametrize(("data", "nodes", "starts"), [(2, 2, [1]), (4, 2, [2]), (16, 4, [4, 8, 12])])
def test_each_node_starts_the_data_parallel_ranks_after_those_of_the_nodes_before(
    resource: Make, data: int, nodes: int, starts: list[int]
) -> None:
    r = resource(parameter={"parallelism": {"data": data, "nodes": nodes, "expert": True}})
    first, *others = (engine_command(r, Role.PARAMETER, rank) for rank in range(nodes))
    for command in (first, *others):
        words = as_the_kubelet_runs(command)
        assert f"--data-parallel-size={data}" in words
        assert f"--data-parallel-size-local={data // nodes}" in words
        assert not any(word.startswith(("--nnodes", "--master")) for word in words)
    assert "--data-parallel-address=$(VLLM_HOST_IP)" in as_the_kubelet_runs(first)
    assert not any("start-rank" in word for word in first.arguments)
    for command, start in zip(others, starts, strict=True):
        words = as_the_kubelet_runs(command)
        assert f"--data-parallel-start-rank={start}" in words
        assert "--data-parallel-address=llama-parameter-r-7.llama-parameter" in words
        assert "--headless" in words
