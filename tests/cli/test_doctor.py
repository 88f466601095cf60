"""`pdinference doctor`: its options, and what it prints. tests/integration/test_doctor.py has a real API server."""

import asyncio
from collections import Counter
from io import StringIO
from pathlib import Path

import pytest
from aiohttp import web
from click.testing import CliRunner
from rich.console import Console

from pdinference.cli import main
from pdinference.cli.doctor.finding import ok, problem, unknown
from pdinference.cli.doctor.report import Report
from pdinference.cli.doctor.text import print_report
from tests.cli.kubeconfig import KUBECONFIG
from tests.cli.served_cluster import ServedCluster
from tests.conftest import REPOSITORY
from tests.http_server import served


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--bandwidth",), "--bandwidth needs the NAME of a PDInference, or -f FILE."),
        (("llama", "-f", "-"), "Write NAME or -f FILE, not both."),
    ],
)
def test_wrong_options_are_refused(words: tuple[str, ...], message: str) -> None:
    result = CliRunner().invoke(main, ["doctor", *words])
    assert result.exit_code == 2
    assert message in result.output


def test_a_cluster_that_does_not_answer_is_an_error(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(KUBECONFIG, encoding="utf-8")
    result = CliRunner().invoke(main, ["doctor", "--kubeconfig", str(kubeconfig)])
    assert result.exit_code == 1
    assert "the API server does not answer" in result.output


def test_a_problem_makes_the_report_unhealthy_and_what_is_unknown_does_not() -> None:
    findings = (ok("a", "fine"), unknown("b", "not known"))
    assert Report(None, findings).as_json()["healthy"]
    assert not Report(None, (*findings, problem("c", "wrong", "do it"))).as_json()["healthy"]


def test_findings_are_printed_with_their_remedies_and_without_markup() -> None:
    text = StringIO()
    console = Console(file=text, width=120)
    print_report(Report(None, (ok("[red]a", "fine"), problem("c", "wrong", "do it"))), console)
    assert "[red]a" in text.getvalue()
    assert "do it" in text.getvalue()
    assert "1 problems, 0 unknown, 1 ok" in text.getvalue()


async def test_the_deployments_of_operators_are_listed_once(tmp_path: Path) -> None:
    asked = Counter[str]()

    async def answer(request: web.Request) -> web.Response:
        asked[request.path] += 1
        return web.json_response({"gitVersion": "v1.34.1"})

    async with served([web.get("/{path:.*}", answer)]) as port:
        kubeconfig = tmp_path / "kubeconfig"
        kubeconfig.write_text(KUBECONFIG.replace("https://127.0.0.1:1", f"http://127.0.0.1:{port}"), encoding="utf-8")
        words = ["doctor", "-f", str(REPOSITORY / "examples/llama-8b.yaml"), "--kubeconfig", str(kubeconfig)]
        result = await asyncio.to_thread(CliRunner().invoke, main, words)
    assert "No Deployment of the operator was found." in result.stdout
    assert asked["/apis/apps/v1/deployments"] == 1


async def test_a_resource_that_does_not_exist_is_named_with_its_namespace(tmp_path: Path) -> None:
    cluster = ServedCluster()

    async def no_deployments(_request: web.Request) -> web.Response:
        return web.json_response({"items": []})

    cluster.routes.append(web.get("/apis/apps/v1/deployments", no_deployments))
    async with cluster.running(tmp_path):
        found = await cluster.run("doctor", "qwen")
    assert found.exit_code == 1
    assert found.stderr.startswith("Error: The namespace team-a has no PDInference qwen.")
