"""`pdinference doctor NAME` reads the logs of containers that stopped, and quotes the line that says why."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web

from pdinference.api.names import GROUP_BROKEN_EXIT
from pdinference.cli.doctor.finding import FindingResult
from pdinference.cli.doctor.stopped import LogEnd, Stopped, finding, sorted_by_role, stopped
from tests.cli.served_cluster import ServedCluster, pod
from tests.conftest import REPOSITORY

LOGS = Path(__file__).parent / "logs"
CAUSES = {
    "worker-instructions": "AttributeError: '_OpNamespace' '_C' object has no attribute 'init_cpu_memory_env'",
}
"""Whole logs of vLLM 0.33 on CPU, with shorter paths: each start failed for the reason that the file is named after."""


def ended(code: int, *, again: bool, reason: str = "Error", message: str = "") -> dict[str, Any]:
    """The status of a pod whose container vllm ended, and was started again or was not."""
    terminated = {"terminated": {"exitCode": code, "reason": reason, "message": message}}
    waits = {"state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": terminated, "restartCount": 3}
    state = waits if again else {"state": terminated, "restartCount": 0}
    return {"conditions": [{"type": "Ready", "status": "False"}], "containerStatuses": [{"name": "vllm", **state}]}


def cluster_with(*pods: dict[str, Any]) -> ServedCluster:
    cluster = ServedCluster()
    (body,) = yaml.safe_load_all((REPOSITORY / "examples/llama-8b.yaml").read_text(encoding="utf-8"))
    cluster.resources[0]["spec"] = body["spec"]
    cluster.pods = list(pods)

    async def nothing(_request: web.Request) -> web.Response:
        return web.json_response({"gitVersion": "v1.34.1"})

    cluster.routes.append(web.get("/{path:.*}", nothing))
    return cluster


async def test_pods_with_copied_labels_are_left_out(tmp_path: Path) -> None:
    posing = pod("decode", "llama-decode-r1-a", **ended(1, again=True))
    del posing["metadata"]["ownerReferences"]
    cluster = cluster_with(posing)
    async with cluster.running(tmp_path):
        found = await cluster.run("doctor", "llama", "-o", "json")
    assert "llama-decode-r1-a" not in found.stdout
    assert not cluster.queries


@pytest.mark.parametrize(("name", "said"), CAUSES.items(), ids=list(CAUSES))
async def test_the_cause_is_quoted_although_it_is_not_in_what_the_kubelet_keeps(
    name: str, said: str, tmp_path: Path
) -> None:
    log = (LOGS / f"{name}.txt").read_bytes()
    kept = log[-2048:].decode(errors="replace")
    assert said not in kept
    cluster = cluster_with(pod("decode", "llama-decode-r1-a", **ended(1, again=True, message=kept)))
    cluster.logs["llama-decode-r1-a", "vllm"] = log.splitlines(keepends=True)
    async with cluster.running(tmp_path):
        found = await cluster.run("doctor", "llama", "-o", "json")
    assert found.exit_code == 1
    (told,) = (one for one in json.loads(found.stdout)["findings"] if one["subject"] == "pod llama-decode-r1-a")
    assert told["found"].startswith(f"Container vllm ended with exit code 1. Its log says: «{said}")
    assert "kubectl logs -n team-a llama-decode-r1-a -c vllm --previous" in told["remedy"]
    (query,) = cluster.queries
    assert query == {
        "pod": "llama-decode-r1-a",
        "container": "vllm",
        "tailLines": "1000",
        "limitBytes": "1048576",
        "previous": "true",
    }


async def test_hostile_logs_are_quoted_in_one_short_line_without_control_characters(tmp_path: Path) -> None:
    cluster = cluster_with(pod("decode", "d", **ended(1, again=False)))
    cluster.logs["d", "vllm"] = [b"x" * 2**16 + b"\n"] * 30 + [b"ValueError: \x1b]0;title\x07" + b"y" * 5000 + b"\n"]
    async with cluster.running(tmp_path):
        found = await cluster.run("doctor", "llama")
    assert "ValueError" in found.stdout
    assert "\x1b" not in found.stdout
    assert found.stdout.count("y") < 500
    assert "previous" not in cluster.queries[0]


async def test_a_log_that_may_not_be_read_is_unknown_with_the_reason(tmp_path: Path) -> None:
    cluster = cluster_with(pod("decode", "d", **ended(1, again=True)))
    async with cluster.running(tmp_path):
        found = await cluster.run("doctor", "llama")
    assert "Its log cannot be read. container" in " ".join(found.stdout.split())


async def test_without_containers_that_stopped_no_log_is_read(tmp_path: Path) -> None:
    well = ended(1, again=True) | {"conditions": [{"type": "Ready", "status": "True"}]}
    cluster = cluster_with(pod("decode", "d", **well), pod("parameter", "p", **ended(0, again=True)))
    async with cluster.running(tmp_path):
        await cluster.run("doctor", "llama")
    assert cluster.queries == []


def test_what_ended_from_outside_is_not_said_to_be_in_the_log() -> None:
    found = finding("ns", Stopped("d", "vllm", previous=True, code=137, reason="OOMKilled"), LogEnd())
    assert found.result is FindingResult.PROBLEM
    assert found.found == (
        "Container vllm ended with exit code 137 (OOMKilled). It was ended from outside, so its log does not say why."
    )
    assert found.remedy == "See `kubectl describe -n ns pod d`."


def test_a_log_without_the_cause_is_not_quoted_as_the_cause() -> None:
    words = "RuntimeError: Engine core initialization failed. See root cause above."
    one = Stopped("d", "vllm", previous=False, code=1)
    assert "The cause is not in the last 1000 lines." in finding("ns", one, LogEnd(words)).found
    assert "do not say why" in finding("ns", one, LogEnd()).found


def test_a_pod_of_each_role_comes_first_and_followers_of_others_after_them() -> None:
    ends = {"x-node1-r-0": GROUP_BROKEN_EXIT, "x-decode-r-b": 1, "x-decode-r-a": 1, "x-parameter-r-0": 1}
    found = sorted_by_role(Stopped(name, "vllm", previous=True, code=code) for name, code in ends.items())
    assert [one.pod for one in found] == ["x-decode-r-a", "x-parameter-r-0", "x-node1-r-0", "x-decode-r-b"]


def test_init_containers_count_too() -> None:
    ended_first = [{"name": "model", "state": {"terminated": {"exitCode": 3}}}]
    assert [*stopped([pod("decode", "d", conditions=[], initContainerStatuses=ended_first)])] == [
        Stopped("d", "model", previous=False, code=3)
    ]
