"""The start of vLLM with a connector class of ours, from a folder as a pod has it."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pdinference.api.engines import slots
from pdinference.api.names import Role
from pdinference.api.v1alpha1 import PDInference
from pdinference.api.v1alpha1.transfer import HostLocal
from pdinference.engine.command import SCRIPTS_MOUNT
from pdinference.engine.connectors.configuration import kv_transfer_config
from pdinference.engine.vllm import engine_command
from pdinference.manifests.pods.scripts import script_files
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


def run(launcher: list[str], *program: str, **environment: str) -> str:
    """Run a program in place of vLLM; what it prints."""
    done = subprocess.run(
        [*launcher, *program],
        env=os.environ | environment,
        check=False,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def launcher(resource: Make, tmp_path: Path) -> list[str]:
    """The words before vLLM in D's command. In place of the connector, which needs vLLM, a module of one line."""
    command = engine_command(through(resource, "SharedStorage"), Role.DECODE)
    folder = tmp_path / "scripts"
    folder.mkdir()
    for name, text in {**script_files(command.scripts), "pdinference_shared_files.py": MODULE}.items():
        (folder / name).write_text(text)
    folder.chmod(0o555)
    words = [word.replace(SCRIPTS_MOUNT, str(folder)) for word in command.program]
    assert words[-len(VLLM) :] == VLLM
    return [sys.executable, *words[1 : -len(VLLM)]]


def test_the_program_and_its_children_can_import_the_module(launcher: list[str], tmp_path: Path) -> None:
    main = tmp_path / "main.py"
    main.write_text(SPAWNING)
    said = run(launcher, sys.executable, str(main), PYTHONPATH="/of/the/image")
    assert said.splitlines() == ["told $(word)", "told $(word)", "['/of/the/image']"]


def test_a_second_start_in_the_same_pod_works_too(launcher: list[str]) -> None:
    for _ in range(2):
        assert run(launcher, sys.executable, "-c", "print('serves')") == "serves\n"


def test_the_program_takes_the_place_of_the_launcher(launcher: list[str]) -> None:
    """So that it gets the kubelet's signals, and its exit code counts."""
    process = subprocess.Popen([*launcher, sys.executable, "-c", "import os; os._exit(os.getpid() % 251)"])
    assert process.wait(LONG_S) == process.pid % 251


@pytest.mark.parametrize("role", [Role.PARAMETER, Role.DECODE])
def test_engines_that_share_a_pod_let_go_of_the_memory_of_dead_ones(resource: Make, role: Role) -> None:
    shared = resource(transfer={"hostLocal": {}})
    slot = next(each for each in slots(HostLocal()) if each.role is role)
    command = engine_command(shared, role, slot=slot)
    assert {"pdinference_nixl", "pdinference_cuda_ipc"} <= set(command.scripts)
    config = kv_transfer_config(shared, role)
    assert (config["kv_connector"], config["kv_connector_module_path"]) == ("NixlConnector", "pdinference_nixl")
    assert "kv_connector_module_path" not in kv_transfer_config(resource(), role)
