"""`pdinference status NAME --startup`: real logs of vLLM, pods as the API server has them, over HTTP."""

import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from prometheus_client import CollectorRegistry, generate_latest

from pdinference.api.engines import engines_of
from pdinference.api.names import METRIC_ADMISSION_TIME, Role
from pdinference.cli.status.startup import Start, admissions, advice, by_role, start_of
from pdinference.router.admission_metrics import AdmissionMetrics
from pdinference.router.pod import Admission, Observed
from pdinference.router.pods import Pods
from tests.cli.served_cluster import ServedCluster, pod, resource
from tests.engine.test_start_log import BEGIN, lines
from tests.http_server import served

Json = dict[str, Any]
CREATED = BEGIN - timedelta(seconds=30)


def stamp(seconds: float) -> str:
    """A time, in seconds after the process of vLLM began."""
    return (BEGIN + timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z")


def log(later: float = 0.0, prefix: str = "") -> list[bytes]:
    return [f"{(at + timedelta(seconds=later)).isoformat()} {prefix}{text}\n".encode() for at, text in lines()]


def started(name: str, role: str = "decode", ready: float | None = 45.0, restarts: int = 0) -> Json:
    """A pod that was scheduled after 2 s, had its image after 8, its model after 25, and began vLLM after 30."""
    model = {"startedAt": stamp(-20), "finishedAt": stamp(-5)}
    conditions = [{"type": "PodScheduled", "status": "True", "lastTransitionTime": stamp(-28)}]
    if ready is not None:
        conditions.append({"type": "Ready", "status": "True", "lastTransitionTime": stamp(ready)})
    found = pod(
        role,
        name,
        conditions=conditions,
        initContainerStatuses=[{"name": "pdinference-model", "state": {"terminated": model}}],
        containerStatuses=[{"name": "vllm", "restartCount": restarts, "state": {"running": {"startedAt": stamp(0)}}}],
    )
    found["metadata"]["creationTimestamp"] = stamp(-30)
    found["spec"]["containers"] = [{"name": "vllm", "ports": [{"name": "http", "containerPort": 8000}]}]
    return found


async def router_metrics(_request: web.Request) -> web.Response:
    """What the router exports of D pods: d-0 got requests 2.5 s after it was ready, d-9 is gone."""
    pods = Pods(wall_clock=(BEGIN + timedelta(seconds=47.5)).timestamp)
    for ready in (False, True):
        pods.observe({name: Observed(name, name, Role.DECODE, name, ready=ready) for name in ("d-0", "d-9")})
    for one in pods:
        pods.admit(one, Admission.PROVEN)
    registry = CollectorRegistry()
    registry.register(AdmissionMetrics(pods))
    return web.Response(body=generate_latest(registry))


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[ServedCluster]:
    found = ServedCluster()
    found.pods = [started("p-0", "parameter"), started("d-0"), started("d-1", ready=None), pod("router", "r-0")]
    found.pods[2]["metadata"]["creationTimestamp"] = stamp(-29)
    for name in ("p-0", "d-0", "d-1"):
        found.logs[name, "vllm"] = log()
    async with served([web.get("/metrics", router_metrics)]) as found.pod_port, found.running(tmp_path):
        yield found


async def test_the_phases_add_up_to_the_whole(cluster: ServedCluster) -> None:
    result = await cluster.run("status", "llama", "--startup", "-o", "json")
    found = {start["pod"]: start for start in json.loads(result.stdout)["starts"]}
    assert set(found) == {"p-0", "d-0", "d-1"}
    ready = found["d-0"]
    assert ready["totalSeconds"] == 77.5
    assert ready["seconds"]["canary"] == 2.5
    assert sum(ready["seconds"].values()) == pytest.approx(77.5, abs=0.01)
    assert "canary" not in found["p-0"]["seconds"]
    before = {phase: ready["seconds"][phase] for phase in ("scheduling", "image, volumes", "model", "container")}
    assert before == {"scheduling": 2, "image, volumes": 8, "model": 15, "container": 5}
    assert (ready["seconds"]["imports"], ready["compiledCodeFound"]) == (20.538, True)
    assert found["d-1"]["totalSeconds"] is None
    asked = cluster.queries[0]
    assert (asked["timestamps"], asked["limitBytes"]) == ("true", str(2**20))


async def test_a_person_sees_a_table_that_fits_80_columns(cluster: ServedCluster) -> None:
    found = await cluster.run_on_terminal(80, "status", "llama", "--startup")
    assert "imports" in found
    assert max(len(line) for line in found.splitlines()) <= 80
    assert "D, median of 2" in " ".join(found.split())
    assert "not ready" in found
    assert "D: pod d-1, compiled code was found" in found


async def test_a_container_that_was_started_again_begins_there(cluster: ServedCluster) -> None:
    cluster.pods = [started("d-0", restarts=2)]
    result = await cluster.run("status", "llama", "--startup", "-o", "json")
    (found,) = json.loads(result.stdout)["starts"]
    assert found["containerStartedAgain"]
    assert "scheduling" not in found["seconds"]
    assert found["totalSeconds"] == 45


async def test_engines_of_a_launcher_have_their_own_lines(cluster: ServedCluster) -> None:
    one = started("d-0")
    ports = [{"name": name, "containerPort": 8000 + n} for n, name in enumerate(("decode-0", "parameter-0"))]
    one["spec"]["containers"][0]["ports"] = ports
    cluster.pods = [one]
    cluster.logs["d-0", "vllm"] = [*log(0, "decode-0: "), *log(5, "parameter-0: ")]
    result = await cluster.run("status", "llama", "--startup", "-o", "json")
    found = {start["engine"]: start["seconds"]["imports"] for start in json.loads(result.stdout)["starts"]}
    assert found == {"decode-0": 20.538, "parameter-0": 25.538}


async def test_what_cannot_be_read_is_said_and_hides_nothing_else(cluster: ServedCluster) -> None:
    del cluster.logs["d-1", "vllm"]
    cluster.logs["d-0", "vllm"] = [b"2026-11-29T16:00:00Z a later line\n", b"no time\n", b"\xff\xff\n", b"\n"]
    result = await cluster.run("status", "llama", "--startup")
    assert result.exit_code == 0, result.output
    said = " ".join(result.stdout.split())
    assert 'Note: d-1: container "vllm" is waiting to start: PodInitializing' in said
    assert "Note: d-0: its log no longer has the start of vLLM." in said
    assert "imports" in said


async def test_without_the_right_to_forward_ports_the_canary_alone_is_missing(cluster: ServedCluster) -> None:
    cluster.forward_refusal = 403
    result = await cluster.run("status", "llama", "--startup")
    said = " ".join(result.stdout.split())
    assert "Note: r-0: when canaries passed is not known:" in said
    assert "resource pods/portforward" in said
    assert "readiness" in said


async def test_where_no_canary_is_asked_for_no_router_is(cluster: ServedCluster) -> None:
    cluster.forward_refusal = 403
    cluster.resources = [resource(transfer={"verification": "Warn"})]
    result = await cluster.run("status", "llama", "--startup", "-o", "json")
    assert json.loads(result.stdout)["notes"] == []


def admitted(**seconds: float) -> dict[str, datetime]:
    """What a router with these admissions exports, in seconds after vLLM's container started."""
    lines = [
        f'{METRIC_ADMISSION_TIME}{{decode="{name.replace("_", "/")}"}} {BEGIN.timestamp() + later}\n'
        for name, later in seconds.items()
    ]
    return admissions("".join(lines).encode(), BEGIN + timedelta(hours=1))


@pytest.mark.parametrize(
    ("routers", "canary"),
    [
        ([{"d0": 47.0}, {"d0": 46.0}], 2),
        ([{"d0_rank0": 46.0, "d0_rank1": 48.0, "d01": 99.0}], 3),
        ([{"d0": 40.0}], 0),  # a container of several was ready before its pod
        ([{"d0": -1e6}, {"d0": 1e9}], None),  # of an earlier pod of that name, and of nobody
        ([{"d1": 47.0}], None),
    ],
)
def test_the_canary_ends_when_all_routers_send_requests_to_all_ranks(
    routers: list[dict[str, float]], canary: float | None
) -> None:
    (engine,) = engines_of(started("d0"))
    found = start_of(started("d0"), engine, log(), [admitted(**one) for one in routers])
    assert found is not None
    assert found.seconds.get("canary") == canary
    assert found.total == 75 + (canary or 0)


def test_a_time_that_is_none_is_left_out() -> None:
    page = "".join(f'{METRIC_ADMISSION_TIME}{{decode="d-{each}"}} {each}\n' for each in ("NaN", "-1", "+Inf", "9e14"))
    assert admissions(page.encode(), BEGIN) == {}


async def test_odd_data_hides_nothing_else(cluster: ServedCluster) -> None:
    cluster.pods[2]["status"]["containerStatuses"][0]["state"] = {"running": None}
    cluster.logs["d-0", "vllm"] = [line.replace(b"+00:00", b"") for line in log()]
    result = await cluster.run("status", "llama", "--startup", "-o", "json")
    assert result.exit_code == 0, result.output
    found = {start["pod"]: start for start in json.loads(result.stdout)["starts"]}
    assert "imports" not in found["d-0"]["seconds"], "times without a zone are unknown"
    assert "imports" in found["p-0"]["seconds"]


async def test_a_pod_that_became_ready_once_more_has_no_total(cluster: ServedCluster) -> None:
    cluster.pods = [started("d-0", ready=259200)]
    result = await cluster.run("status", "llama", "--startup", "-o", "json")
    (found,) = json.loads(result.stdout)["starts"]
    assert found["totalSeconds"] is None
    assert "readiness" not in found["seconds"]
    assert "imports" in found["seconds"]


async def test_without_pods_it_says_so(cluster: ServedCluster) -> None:
    cluster.pods = []
    assert "No pod of P or D has started yet." in (await cluster.run("status", "llama", "--startup")).stdout


@pytest.mark.parametrize("words", [("--startup",), ("llama", "--startup", "--watch")])
async def test_it_is_about_one_resource_at_one_moment(cluster: ServedCluster, words: tuple[str, ...]) -> None:
    found = await cluster.run("status", *words)
    assert found.exit_code == 2
    assert "--startup needs NAME, and does not go with --watch." in found.output


def start(role: Role, minute: int, **seconds: float) -> Start:
    began = datetime(2026, 11, 29, 10, minute, tzinfo=UTC)
    return Start(f"{role}-{minute}", "", role, began, seconds, sum(seconds.values()))


def test_typical_is_the_median_and_the_last_one_began_last() -> None:
    several = [start(Role.DECODE, minute, imports=seconds) for minute, seconds in ((3, 10), (1, 30), (2, 20))]
    found = by_role(several)[Role.DECODE]
    assert (found.last.pod, found.typical, found.total, found.count) == ("decode-3", {"imports": 20}, 20, 3)


@pytest.mark.parametrize(
    ("seconds", "spec", "said"),
    [
        ({"compilation": 20.0, "warm-up": 15.0}, {}, "spec.engine.compileCache"),
        ({"compilation": 20.0, "warm-up": 15.0}, {"engine": {"compileCache": {}}}, ""),
        ({"scheduling": 90.0}, {}, "for a node"),
        ({"image, volumes": 90.0}, {}, "Pull the image"),
        ({"model": 90.0}, {}, "spec.model.cache"),
        ({"model": 90.0}, {"model": {"cache": {}}}, ""),
        ({"weights": 90.0}, {}, "Weights take 90 s"),
        ({"imports": 90.0}, {}, ""),
    ],
)
def test_advice_is_for_what_can_be_shortened(seconds: dict[str, float], spec: Json, said: str) -> None:
    if "cache" in (spec.get("model") or {}):
        spec["model"]["cache"] = {"persistentVolumeClaim": {"claimName": "m"}}
    if "compileCache" in (spec.get("engine") or {}):
        spec["engine"]["compileCache"] = {"persistentVolumeClaim": {"claimName": "c"}}
    found = advice(by_role([start(Role.DECODE, 1, **seconds)]), spec)
    assert (said in found[0]) if said else found == []
