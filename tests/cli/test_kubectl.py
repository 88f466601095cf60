"""`kubectl pdi`: the plug-in and its completion, as kubectl and shells run them."""

import asyncio
import re
import sys
from collections.abc import AsyncIterator, Callable
from importlib.metadata import entry_points
from pathlib import Path

import pytest
from click.testing import CliRunner

from pdinference.cli import chosen, main
from pdinference.cli.lazy_group import subcommands
from tests.cli.served_cluster import ServedCluster, resource
from tests.conftest import REPOSITORY

Ran = Callable[..., str]


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Ran:
    """What an installed program prints."""

    def run(program: str, *words: str) -> str:
        (entry,) = entry_points(group="console_scripts", name=program)
        monkeypatch.setattr(sys, "argv", [f"/somewhere/{program}", *words])
        try:
            entry.load()()
        except SystemExit as ended:
            assert not ended.code  # noqa: PT017 - programs end so
        return capsys.readouterr().out

    return run


def test_the_plugin_is_the_same_program_under_the_name_of_kubectl(ran: Ran) -> None:
    assert ran("kubectl-pdi", "--help").startswith("Usage: kubectl pdi [OPTIONS] COMMAND [ARGS]...")
    assert ran("kubectl-pdi", "history", "-h").startswith("Usage: kubectl pdi history [OPTIONS] [NAME]")
    assert ran("pdinference", "history", "-h").startswith("Usage: pdinference history [OPTIONS] [NAME]")


def test_kubectl_gets_commands_with_descriptions_and_no_files(ran: Ran) -> None:
    *found, directive = ran("kubectl_complete-pdi", "").splitlines()
    assert [line.partition("\t")[0] for line in found] == sorted(subcommands(main))
    assert all(line.partition("\t")[2] for line in found)
    assert directive == ":4"
    assert ran("kubectl_complete-pdi").splitlines() == [*found, directive]


def test_kubectl_gets_values_and_options_of_a_command(ran: Ran) -> None:
    assert ran("kubectl_complete-pdi", "explain", "-o", "").splitlines() == ["text", "json", "yaml", ":4"]
    options = [line.partition("\t")[0] for line in ran("kubectl_complete-pdi", "history", "--").splitlines()]
    assert {"--namespace", "--kubeconfig", "--context"} <= set(options)


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[ServedCluster]:
    cluster = ServedCluster()
    cluster.resources = [resource("llama"), resource("llama-large"), resource("qwen")]
    async with cluster.running(tmp_path):
        yield cluster


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A shell waits two seconds for names, in which a busy machine may not find any."""
    monkeypatch.setattr(chosen, "_COMPLETION_SECONDS", 60.0)


async def completed(ran: Ran, cluster: ServedCluster, *words: str) -> list[str]:
    command, *rest = words
    line = (command, "--kubeconfig", str(cluster.kubeconfig), *rest)
    return (await asyncio.to_thread(ran, "kubectl_complete-pdi", *line)).splitlines()


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("command", ["status", "history", "diff", "undo", "explain", "plan", "top", "bench", "doctor"])
async def test_a_name_is_completed_from_the_namespace(ran: Ran, cluster: ServedCluster, command: str) -> None:
    assert await completed(ran, cluster, command, "") == ["llama", "llama-large", "qwen", ":4"]
    assert await completed(ran, cluster, command, "llama-") == ["llama-large", ":4"]


@pytest.mark.usefixtures("patient")
async def test_names_and_roles_are_completed_each_in_its_place(ran: Ran, cluster: ServedCluster) -> None:
    roles = ["parameter", "decode", "router"]
    assert await completed(ran, cluster, "logs", "") == ["llama", "llama-large", "qwen", *roles, ":4"]
    assert await completed(ran, cluster, "logs", "llama", "") == [*roles, ":4"]
    assert await completed(ran, cluster, "logs", "llama", "d") == ["decode", ":4"]
    assert await completed(ran, cluster, "chat", "q") == ["qwen", ":4"]


async def test_a_cluster_that_does_not_answer_disturbs_no_completion(ran: Ran, cluster: ServedCluster) -> None:
    cluster.answers.clear()
    assert await completed(ran, cluster, "restart", "") == ["parameter", "decode", "router", ":4"]
    cluster.answers.set()
    cluster.kubeconfig.write_text("{", encoding="utf-8")
    assert await completed(ran, cluster, "status", "") == [":4"]
    cluster.kubeconfig.unlink()
    assert await completed(ran, cluster, "status", "") == [":4"]


def test_where_a_file_belongs_the_shell_completes_files(ran: Ran) -> None:
    assert ran("kubectl_complete-pdi", "plan", "--file", "") == ":0\n"


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_scripts_of_shells_ask_the_program(shell: str) -> None:
    script = CliRunner().invoke(main, ["completion", shell]).output
    assert f"_PDINFERENCE_COMPLETE={shell}_complete" in script


def test_each_command_that_talks_to_a_cluster_has_its_rights_on_the_page() -> None:
    page = (REPOSITORY / "docs" / "kubectl-pdi.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`.*?) \|", page.partition("## Rights")[2], re.MULTILINE)
    documented = {name for row in rows for name in re.findall(r"`([\w-]+)`", row)}
    of_cluster = {
        name
        for name, command in subcommands(main).items()
        if {"kubeconfig", "context"} <= {parameter.name for parameter in command.params}
    }
    assert of_cluster - documented == set()
    assert {"status", "logs", "restart", "history"} <= of_cluster
