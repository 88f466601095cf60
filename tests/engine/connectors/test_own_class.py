"""The launcher of vLLM with a connector class of ours."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pdinference.api.names import Role
from pdinference.api.v1alpha1 import PDInference
from pdinference.engine.command import Command
from pdinference.engine.vllm import engine_command
from tests.engine.connectors.transfers import through
from tests.waiting import LONG_S

Make = Callable[..., PDInference]
VLLM = ["python3", "-m", "vllm.entrypoints.cli.main", "serve"]
MODULE = "def tell(): print('told $(word)', flush=True)"
SPAWNING = """
import multiprocessing, sys
from pdinference_shared_files import tell

if __name__ == "__main__":
    tell()
    child = multiprocessing.get_context("spawn").Process(target=tell)
    child.start()
    child.join()
    print([path for path in sys.path if path == "/of/the/image"])
"""
"""A program whose children import anew what they need, as vLLM's do."""


def run(command: Command, *program: str, **environment: str) -> str:
    """Run a program in place of vLLM; what it prints."""
    launcher = [part.replace("$$", "$") for part in command.program]
    assert launcher[-len(VLLM) :] == VLLM
    done = subprocess.run(
        [sys.executable, *launcher[1 : -len(VLLM)], *program],
        env=os.environ | environment,
        check=False,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def command(resource: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    """D's command, with a folder of the test's own."""
    monkeypatch.setattr("pdinference.engine.connectors.own_class._FOLDER", str(tmp_path / "modules"))
    return engine_command(through(resource, "SharedStorage"), Role.DECODE)


def test_the_program_and_its_children_can_import_the_module(command: Command, tmp_path: Path) -> None:
    """In place of the connector, which needs vLLM, a module of one line."""
    program = tuple(MODULE if "class SharedFilesConnector" in part else part for part in command.program)
    script = tmp_path / "main.py"
    script.write_text(SPAWNING)
    said = run(Command(program, ()), sys.executable, str(script), PYTHONPATH="/of/the/image")
    assert said.splitlines() == ["told $(word)", "told $(word)", "['/of/the/image']"]


def test_a_second_start_in_the_same_pod_works_too(command: Command) -> None:
    for _ in range(2):
        assert run(command, sys.executable, "-c", "print('serves')") == "serves\n"


def test_the_program_takes_the_place_of_the_launcher(command: Command) -> None:
    """So that it gets the kubelet's signals, and its exit code counts."""
    launcher = [part.replace("$$", "$") for part in command.program[1 : -len(VLLM)]]
    process = subprocess.Popen(
        [sys.executable, *launcher, sys.executable, "-c", "import os; os._exit(os.getpid() % 251)"]
    )
    assert process.wait(LONG_S) == process.pid % 251
