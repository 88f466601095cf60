"""KV cache from pipeline stages of P: the push connector, and its subclass for D with the number of stages."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pdinference.api.names import Role
from pdinference.api.v1alpha1 import PDInference
from pdinference.engine.command import Command
from pdinference.engine.connectors.configuration import kv_transfer_config
from pdinference.engine.vllm import engine_command

Make = Callable[..., PDInference]
STAGES = {"parallelism": {"pipeline": 3}}
MODULE = "def tell(): print('told $(word)', flush=True)"
SPAWNING = """
import multiprocessing, sys
from pdinference_staged_push import tell

if __name__ == "__main__":
    tell()
    child = multiprocessing.get_context("spawn").Process(target=tell)
    child.start()
    child.join()
    print([path for path in sys.path if path == "/of/the/image"])
"""
"""A program whose children import anew what they need, as vLLM's do."""
LOADING = """
import sys
from types import SimpleNamespace
from vllm.config import KVTransferConfig
from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory

config = KVTransferConfig(**__import__("json").loads(sys.argv[1]))
found = KVConnectorFactory.get_connector_class(config)
assert KVConnectorFactory.get_connector_class_by_name(found.__name__) is found
assert KVConnectorFactory.supports_hma_config(config)
connector = found.__new__(found)
connector.kv_transfer_config = config
arrived = []
note = lambda request: arrived.append(request.kv_transfer_params)
connector.connector_scheduler = SimpleNamespace(on_new_request=note)
for told in ({"do_remote_prefill": True, "tp_size": 1}, {"do_remote_decode": True}, None):
    connector.on_new_request(SimpleNamespace(kv_transfer_params=told))
print(found.__mro__[1].__name__, arrived)
"""
"""What vLLM makes of the configuration, as in each of its processes."""


def run(command: Command, *program: str, **environment: str) -> str:
    """Run a program in place of vLLM; what it prints."""
    launcher = [part.replace("$$", "$") for part in command.program]
    assert launcher[-3:] == ["python3", "-m", "vllm.entrypoints.openai.api_server"]
    done = subprocess.run(
        [sys.executable, *launcher[1:-3], *program],
        env=os.environ | environment,
        check=False,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def staged(resource: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    """D's command, with a folder of the test's own."""
    monkeypatch.setattr("pdinference.engine.connectors.own_class._FOLDER", str(tmp_path / "modules"))
    return engine_command(resource(parameter=STAGES), Role.DECODE)


def test_stages_push_and_d_is_told_how_many_there_are(resource: Make) -> None:
    r = resource(parameter=STAGES)
    assert kv_transfer_config(r, Role.PARAMETER)["kv_connector"] == "NixlPushConnector"
    config = kv_transfer_config(r, Role.DECODE)
    assert config["kv_connector"] == "StagedPushConnector"
    assert config["kv_connector_extra_config"] == {"parameter_stages": 3}


@pytest.mark.parametrize("spec", [{}, {"parameter": STAGES, "transfer": {"connector": "Mooncake"}}])
def test_nothing_changes_without_stages_or_with_another_connector(resource: Make, spec: dict[str, Any]) -> None:
    r = resource(**spec)
    for role in Role.PARAMETER, Role.DECODE:
        assert engine_command(r, role).program == ("python3", "-m", "vllm.entrypoints.openai.api_server")
        assert "kv_connector_module_path" not in kv_transfer_config(r, role)


def test_with_tiers_the_module_is_that_of_the_transfer_only(resource: Make) -> None:
    """vLLM looks for the MultiConnector itself in its own modules."""
    r = resource(parameter=STAGES, decode={"kvTiers": {"cpu": {"size": "1Gi"}}})
    config = kv_transfer_config(r, Role.DECODE)
    transfer, _ = config["kv_connector_extra_config"]["connectors"]
    assert "kv_connector_module_path" not in config
    assert transfer == kv_transfer_config(resource(parameter=STAGES), Role.DECODE)


def test_the_program_and_its_children_can_import_the_module(staged: Command, tmp_path: Path) -> None:
    """In place of the connector, which needs vLLM, a module of one line."""
    program = tuple(MODULE if "class StagedPushConnector" in part else part for part in staged.program)
    script = tmp_path / "main.py"
    script.write_text(SPAWNING)
    said = run(Command(program, ()), sys.executable, str(script), PYTHONPATH="/of/the/image")
    assert said.splitlines() == ["told $(word)", "told $(word)", "['/of/the/image']"]


def test_a_second_start_in_the_same_pod_works_too(staged: Command) -> None:
    for _ in range(2):
        assert run(staged, sys.executable, "-c", "print('serves')") == "serves\n"


def test_the_program_takes_the_place_of_the_launcher(staged: Command) -> None:
    """So that it gets the kubelet's signals, and its exit code counts."""
    launcher = [part.replace("$$", "$") for part in staged.program[1:-3]]
    process = subprocess.Popen(
        [sys.executable, *launcher, sys.executable, "-c", "import os; os._exit(os.getpid() % 251)"]
    )
    assert process.wait(30) == process.pid % 251


@pytest.mark.vllm
@pytest.mark.parametrize("tiers", [False, True], ids=["alone", "with tiers"])
def test_vllm_loads_the_connector_which_adds_the_stages_to_what_d_was_told(
    resource: Make, staged: Command, tiers: bool
) -> None:
    decode = {"kvTiers": {"cpu": {"size": "1Gi"}}} if tiers else {}
    config = kv_transfer_config(resource(parameter=STAGES, decode=decode), Role.DECODE)
    if tiers:
        config = config["kv_connector_extra_config"]["connectors"][0]
    said = run(staged, sys.executable, "-c", LOADING, json.dumps(config))
    told = [{"do_remote_prefill": True, "tp_size": 1, "pp_size": 3}, {"do_remote_decode": True}, None]
    assert said.splitlines()[-1] == f"NixlPushConnector {told}"
