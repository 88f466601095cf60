"""`pdinference check` without an operator, and as JSON. tests/integration has it with a real one."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web

from tests.cli.served_cluster import ServedCluster

REFUSAL = "spec.engine.args.max-logprob is no option of vLLM."


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[ServedCluster]:
    async def refuse(request: web.Request) -> web.Response:
        assert request.query["dryRun"] == "All"
        return web.json_response({"reason": "Invalid", "message": REFUSAL}, status=422)

    cluster = ServedCluster()
    cluster.routes.append(web.post("/apis/{group}/{version}/namespaces/team-a/pdinferences", refuse))
    async with cluster.running(tmp_path):
        yield cluster


async def test_a_webhook_that_answers_is_reported(cluster: ServedCluster) -> None:
    found = await cluster.run("check", "--no-metrics-api", "--wait=0")
    assert (found.exit_code, found.stdout) == (0, "The webhook answers.\n")
    found = await cluster.run("check", "--no-metrics-api", "--wait=0", "-o", "json")
    assert json.loads(found.stdout) == {"webhook": {"answers": True, "problem": ""}}


async def test_as_json_each_part_is_reported_and_the_exit_status_is_that_of_all(cluster: ServedCluster) -> None:
    found = await cluster.run("check", "--wait=0", "-o", "json")
    assert found.exit_code == 1
    answers = json.loads(found.stdout)
    assert (answers["webhook"]["answers"], answers["metricsApi"]["answers"]) == (True, False)
    assert "Not Found" in answers["metricsApi"]["problem"]


async def test_a_kubeconfig_that_is_missing_is_an_error_without_a_traceback(cluster: ServedCluster) -> None:
    cluster.kubeconfig.write_text("", encoding="utf-8")
    found = await cluster.run("check", "--wait=0")
    assert found.exit_code == 1
    assert f"Error: {cluster.kubeconfig} is not a kubeconfig." in found.stderr
