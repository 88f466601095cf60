"""First errors that a user meets: each says what is wrong and what to do."""

import asyncio
import json
from pathlib import Path

import pytest
from aiohttp import web
from click.testing import CliRunner

from pdinference.cli import main
from tests.cli.kubeconfig import KUBECONFIG
from tests.cli.served_cluster import ServedCluster
from tests.http_server import served

FORBIDDEN = 'pdinferences.pdinference.io is forbidden: User "u" cannot list resource "pdinferences" in team-a'
NOT_INSTALLED = (
    "This cluster has no PDInferences: the operator's CRDs are not installed. Install the operator (README.md), or "
    "name another cluster with --context."
)


async def error(file: Path, *words: str) -> str:
    result = await asyncio.to_thread(CliRunner().invoke, main, [*words, "--kubeconfig", str(file)])
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: ")
    return result.stderr.removeprefix("Error: ").rstrip("\n")


@pytest.mark.parametrize(
    ("status", "body", "words"),
    [
        (
            404,
            "404 page not found\n",
            NOT_INSTALLED,
        ),
        (
            403,
            json.dumps({"reason": "Forbidden", "message": FORBIDDEN}),
            f"{FORBIDDEN}. Ask for this right: docs/kubectl-pdi.md#rights has those of each command.",
        ),
        (
            401,
            json.dumps({"reason": "Unauthorized", "message": "Unauthorized"}),
            "The API server refuses your credentials (Unauthorized). Log in again, or pass another --context.",
        ),
    ],
)
@pytest.mark.parametrize("command", [("status",), ("status", "llama"), ("history",), ("logs", "llama", "decode")])
async def test_a_refusal_says_what_to_do(
    tmp_path: Path, status: int, body: str, words: str, command: tuple[str, ...]
) -> None:
    async def refuse(_request: web.Request) -> web.Response:
        return web.Response(status=status, text=body)

    async with served([web.get("/{path:.*}", refuse)]) as port:
        file = tmp_path / "kubeconfig"
        file.write_text(KUBECONFIG.replace("https://127.0.0.1:1", f"http://127.0.0.1:{port}"))
        assert await error(file, *command) == words


async def test_a_server_that_is_away_is_named_with_what_to_check(tmp_path: Path) -> None:
    file = tmp_path / "kubeconfig"
    file.write_text(KUBECONFIG)
    found = await error(file, "status")
    assert found.startswith("the API server does not answer: Cannot connect to host 127.0.0.1:1")
    assert found.endswith(" Check that the cluster runs, and its context: `kubectl config get-contexts`.")


async def test_a_namespace_without_resources_says_how_to_name_another(tmp_path: Path) -> None:
    cluster = ServedCluster()
    cluster.resources = []
    async with cluster.running(tmp_path):
        found = await cluster.run("top")
    assert found.stderr == "Error: The namespace team-a has no PDInference. Name another one with -n.\n"
