"""`pdinference logs` on an API server over HTTP."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from pdinference.api.names import Role
from pdinference.cli import watching
from pdinference.cli.logs.reading import LogReader
from pdinference.cli.logs.sources import LogSource, sources
from pdinference.cluster.client import ApiServer, load_configuration
from pdinference.cluster.errors import ApiError
from tests.cli.served_cluster import NAMESPACE, ServedCluster, pod, resource, stranger

P, D, ROUTER = ("parameter", "decode", "router")


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[ServedCluster]:
    cluster = ServedCluster()
    cluster.pods = [pod(D, "d-1"), pod(D, "d-0"), pod(P, "p-0"), pod(ROUTER, "router-0"), pod(D, "old-0", "r0")]
    for name, container in (("d-0", "vllm"), ("d-1", "vllm"), ("p-0", "vllm"), ("router-0", "router")):
        cluster.logs[name, container] = [f"{name} starts\n".encode(), b"ready"]
    cluster.logs["old-0", "vllm"] = [b"old\n"]
    for role, container in ((P, "vllm"), (D, "vllm"), (ROUTER, "router")):
        cluster.pods.append(stranger(role, f"stranger-{role}"))
        cluster.logs[f"stranger-{role}", container] = [b"not of this resource\n"]
    async with cluster.running(tmp_path):
        yield cluster


async def test_lines_of_all_pods_of_the_current_revision_have_their_pod(cluster: ServedCluster) -> None:
    found = await cluster.run("logs", "llama", D)
    assert found.exit_code == 0, found.output
    assert found.stdout.splitlines() == ["[d-0] d-0 starts", "[d-0] ready", "[d-1] d-1 starts", "[d-1] ready"]
    assert (await cluster.run("logs", ROUTER)).stdout.splitlines() == ["[router-0] router-0 starts", "[router-0] ready"]


async def test_options_are_those_of_kubectl(cluster: ServedCluster) -> None:
    found = await cluster.run("logs", P, "--since", "10m", "--tail", "1", "-p")
    assert found.stdout == "[p-0] ready\n"
    asked = {"pod": "p-0", "container": "vllm", "sinceSeconds": "600", "tailLines": "1", "previous": "true"}
    assert cluster.queries == [asked]
    found = await cluster.run("logs", P, "--since", "soon")
    assert found.exit_code == 2
    assert "'soon' is no duration, such as 10m or 30s" in found.output


async def test_another_revision_has_to_be_named(cluster: ServedCluster) -> None:
    assert (await cluster.run("logs", D, "--revision", "r0")).stdout == "[old-0] old\n"
    cluster.resources = [resource(revision="r2")]
    cluster.resources[0]["status"]["servingRevision"] = "r1"
    found = await cluster.run("logs", D)
    assert found.exit_code == 1
    assert found.output == ("Error: There is no pod of decode of revision r2. Revision r1 serves: add --revision r1.\n")


async def test_a_container_that_has_not_started_does_not_hide_the_others(cluster: ServedCluster) -> None:
    del cluster.logs["d-0", "vllm"]
    found = await cluster.run("logs", D)
    assert found.stdout.splitlines() == ["[d-1] d-1 starts", "[d-1] ready"]
    assert found.stderr == 'd-0: container "vllm" is waiting to start: PodInitializing\n'
    cluster.logs["d-0", "vllm"] = []
    found = await cluster.run("logs", D)
    assert found.stderr == "d-0: the log of the container vllm has no lines.\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "Write [NAME] {parameter|decode|router}."),
        (("llama", "prefill"), "'prefill' is not one of parameter, decode, router."),
        (("none", "decode"), "The namespace team-a has no PDInference none."),
    ],
)
async def test_what_is_wrong_is_said(cluster: ServedCluster, words: tuple[str, ...], said: str) -> None:
    found = await cluster.run("logs", *words)
    assert found.exit_code != 0
    assert said in found.output


async def test_without_a_name_the_namespace_must_have_one_resource(cluster: ServedCluster) -> None:
    cluster.resources = [resource(), resource("qwen")]
    said = "The namespace team-a has 2 PDInferences (llama, qwen). Write the NAME of one."
    assert said in (await cluster.run("logs", D)).output
    cluster.resources = []
    assert "The namespace team-a has no PDInference." in (await cluster.run("logs", D)).output


async def test_without_a_revision_there_are_no_logs_yet(cluster: ServedCluster) -> None:
    cluster.resources = [resource(revision="")]
    assert "llama has no pods yet. `kubectl pdi status llama` says" in (await cluster.run("logs", D)).output


async def test_following_shows_new_pods_and_new_runs_of_containers(
    cluster: ServedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "_SECONDS", 0.01)
    lines: asyncio.Queue[tuple[str, bytes]] = asyncio.Queue()
    warnings: asyncio.Queue[str] = asyncio.Queue()
    api = ApiServer(await load_configuration(cluster.kubeconfig))
    reader = LogReader(
        api,
        NAMESPACE,
        {"tailLines": "1"},
        lambda source, line: lines.put_nowait((source.pod, line)),
        warnings.put_nowait,
    )

    rests = [ApiError(503, "Unavailable", "the server rests")]

    async def look() -> list[LogSource]:
        if rests:
            raise rests.pop()
        return sources(await reader.pods("llama"), Role.PARAMETER, "r1")

    cluster.logs["p-0", "vllm"] = [b"first\n", b"last\n"]
    following = asyncio.create_task(reader.follow(look))
    assert await warnings.get() == "the server rests. Trying again every 0.01 s."
    assert await lines.get() == ("p-0", b"last")
    cluster.pods.append(pod(P, "p-1"))
    assert await warnings.get() == 'p-1: container "vllm" is waiting to start: PodInitializing'
    cluster.logs["p-1", "vllm"] = [b"new\n"]
    assert await lines.get() == ("p-1", b"new")
    cluster.logs["p-0", "vllm"] = [b"again\n", b"ready\n"]
    cluster.pods = [pod(P, "p-0", containerStatuses=[{"name": "vllm", "restartCount": 1}])]
    assert [await lines.get(), await lines.get()] == [("p-0", b"again"), ("p-0", b"ready")]
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)
    assert warnings.empty()
    cluster.followed.set()
    await api.close()


def shared_pod() -> dict[str, Any]:
    found = pod(D, "shared")
    names = ("decode-0", "parameter-0")
    found["spec"]["containers"] = [
        {"name": name, "ports": [{"name": name, "containerPort": 8000 + number}]} for number, name in enumerate(names)
    ]
    return found


def test_p_in_the_pods_of_d_and_worker_nodes_have_logs() -> None:
    assert sources([shared_pod()], Role.PARAMETER, "r1") == [LogSource("shared", "parameter-0")]
    assert sources([shared_pod()], Role.DECODE, "r1") == [LogSource("shared", "decode-0")]
    node = pod("parameter-node", "node1-0")
    node["metadata"]["labels"]["pdinference.io/node-rank"] = "1"
    assert sources([node], Role.PARAMETER, "r1") == [LogSource("node1-0", "vllm")]
    assert sources([node], Role.DECODE, "r1") == []
    assert sources([node], Role.PARAMETER, "r1", "other") == [LogSource("node1-0", "other")]
    assert sources([pod("model", "job-0")], Role.PARAMETER, "r1") == []
