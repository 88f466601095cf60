"""`pdinference status`: resources as the operator leaves them, shown as a tree, a table and JSON."""

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from pdinference.api.names import Role
from pdinference.cli import main, watching
from pdinference.cli.status import command as status_command
from pdinference.cli.status.overview import Overview, overview
from pdinference.cli.status.text import tree
from pdinference.cli.terminal import terminal
from pdinference.cluster import client
from pdinference.cluster.errors import ApiError
from pdinference.cluster.kinds import POD, RESOURCE, SCALER, Kind
from tests.cli.kubeconfig import KUBECONFIG
from tests.cli.terminal import as_terminal
from tests.cluster.fake_api import FakeApi
from tests.conftest import Golden
from tests.controllers import owned
from tests.inference import sleeping
from tests.inference.budgeted import BUDGET
from tests.inference.scaled import recommend, serving
from tests.inference.world import CR, World

Json = dict[str, Any]
Make = Callable[..., Json]
GOLDEN = Path(__file__).parent / "golden" / "status"
NO_NODE = "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."
IMAGE = {"image": "registry.example/vllm:2"}
_MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")


def bodies(world: World, kind: Kind) -> list[Json]:
    return [body for path, body in sorted(world.api.objects.items()) if path.startswith(f"{kind.path('ns')}/")]


def view_of(world: World) -> Overview:
    return overview(world.api.objects[CR], bodies(world, POD), bodies(world, SCALER))


def drawn(view: Overview, *revisions: str) -> str:
    """The tree, without what differs from one run or one template to the next."""
    console = terminal()
    with console.capture() as captured:
        console.print(tree(view))
    text = _MOMENT.sub("<time>", captured.get())
    for number, revision in enumerate(revisions):
        text = text.replace(revision, f"<revision-{number}>")
    return "".join(f"{line.rstrip()}\n" for line in text.splitlines())


async def test_a_resource_at_rest_has_no_concerns(document: Make) -> None:
    world = World(document(model={"source": {"path": "/a"}}))
    revision = await serving(world)
    view = view_of(world)
    assert (view.ready, view.rollout, view.serving) == ("True", "RolloutComplete", revision)
    assert {role.role: (role.ready, role.desired, len(role.pods)) for role in view.roles} == dict.fromkeys(
        (Role.PARAMETER, Role.DECODE, Role.ROUTER), (1, 1, 1)
    )
    assert {concern.condition for concern in view.concerns} == {"MemoryFits", "Pinned"}
    assert all(pod.target and not pod.problem for role in view.roles for pod in role.pods)


async def test_a_stuck_roll_out_beside_the_revision_that_serves(document: Make, golden: Golden) -> None:
    world = World(document(decode={"replicas": 1}))
    first = await serving(world)
    world.edit(engine=IMAGE)
    await world.reconcile()
    world.roll_out(ready=False)
    second: str = world.status["revision"]
    for pod in bodies(world, POD):
        if pod["metadata"]["labels"]["pdinference.io/revision"] == first:
            pod["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
            pod["spec"]["nodeName"] = "gpu-1"
        elif "decode" in pod["metadata"]["name"]:
            pod["status"]["conditions"] = [{"type": "PodScheduled", "status": "False", "message": NO_NODE}]
            pod["status"]["phase"] = "Pending"
        world.api.put(POD.path("ns", pod["metadata"]["name"]), pod)
    world.sync()
    await world.reconcile()
    view = view_of(world)
    assert (view.serving, view.revision) == (first, second)
    (waits, serves) = view.role(Role.DECODE).pods
    assert (waits.target, serves.target, serves.node, serves.problem) == (True, False, "gpu-1", "")
    assert "fits on no node" in waits.problem
    golden(GOLDEN / "stuck.txt", drawn(view, first, second))


async def test_a_status_that_no_operator_updates_is_called_out_of_date(document: Make) -> None:
    """The pods are read now, and their counts in the status may be of hours ago."""
    world = World(document())
    await serving(world)
    for path in [path for path in world.api.objects if path.startswith(POD.path("ns", "llama-decode"))]:
        body = world.api.objects[path]
        moment = "2026-11-26T23:00:00Z"
        body["status"]["conditions"] = [{"type": "Ready", "status": "False", "lastTransitionTime": moment}]
    resource = world.api.objects[CR]
    resource["metadata"]["managedFields"] = [{"subresource": "status", "time": "2026-11-26T22:59:00Z"}]

    def at(second: int) -> Overview:
        now = datetime(2026, 11, 26, 23, 0, second, tzinfo=UTC)
        return overview(resource, bodies(world, POD), bodies(world, SCALER), now=now)

    assert at(5).notes == (), "the operator may be about to write"
    (note,) = at(30).notes
    assert "it says 1 of 1 D pods ready, and 0 are. It was written last at 2026-11-26T22:59:00Z." in note
    assert "D  0/1 ready, 1/1 in the status" in drawn(at(30))
    assert "P  1/1 ready" in drawn(at(30))


async def test_limited_replicas_are_shown_with_the_limit(document: Make, golden: Golden) -> None:
    world = World(document(**BUDGET))
    revision = await serving(world)
    recommend(world, 6, "parameter")
    recommend(world, 6)
    await world.reconcile()
    await world.reconcile()
    view = view_of(world)
    decode = view.role(Role.DECODE)
    assert (decode.recommended, decode.desired) == (6, 4)
    assert decode.limited.startswith("GpuBudget: 6 pods recommended, 4 allocated")
    golden(GOLDEN / "limited.txt", drawn(view, revision))


async def test_a_role_without_pods_of_its_own_says_why(document: Make) -> None:
    world = World(document(mode="Aggregated"))
    await serving(world)
    assert view_of(world).role(Role.PARAMETER).note == "none: D computes the prompts (spec.mode Aggregated)"
    body = {**world.api.objects[CR], "spec": {}}
    shared = overview({**body, "status": {"transfer": {"path": "HostLocal"}}})
    assert shared.role(Role.PARAMETER).note == "in the pods of D (HostLocal)"


async def test_a_sleeping_resource_is_ready_and_asleep(document: Make) -> None:
    world = World(document(parameter=sleeping.NODES, decode=sleeping.SCALED, autoscaling=sleeping.SLEEPY))
    await sleeping.serving(world)
    await sleeping.asleep(world)
    view = view_of(world)
    assert (view.ready, view.ready_reason) == ("True", "Asleep")
    assert view.role(Role.DECODE).desired == 0


def test_transfer_and_objectives_are_shown_as_measured(golden: Golden) -> None:
    transfer = {
        "path": "Network", "fromParameterPercent": 96, "byDecodePercent": 4, "gigabytesPerSecond": 2.38,
        "gigabytesPerTransfer": 0.26, "failedPercent": 0.5, "expiredPercent": 0, "busyPercent": 41,
        "firstTokenPercent": 35, "inferredTransport": "TCP", "verification": {"state": "verified"},
    }  # fmt: skip
    objectives = {
        "stated": "ttft 500ms, tpot 30ms, 99 %", "requests": 1812, "limit": "Transfer",
        "ttft": {"keptPercent": 91.5, "milliseconds": 812}, "tpot": {"keptPercent": 99.9, "milliseconds": 21},
    }  # fmt: skip
    resource = {
        "metadata": {"name": "llama", "namespace": "ns"},
        "spec": {},
        "status": {"transfer": transfer, "objectives": objectives, "url": "http://llama.ns.svc"},
    }
    golden(GOLDEN / "measured.txt", drawn(overview(resource)))


def test_moments_in_which_the_status_is_not_that_of_the_spec() -> None:
    def notes(status: Json, **metadata: Any) -> str:
        metadata = {"name": "llama", "namespace": "ns", "generation": 2, **metadata}
        return " ".join(overview({"metadata": metadata, "status": status}).notes)

    condition = {
        "type": "Ready", "status": "True", "reason": "Serving", "message": "", "observedGeneration": 1,
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }  # fmt: skip
    assert "written no status yet" in notes({})
    assert "not handled the last edit yet (generation 2)" in notes({"conditions": [condition], "observedGeneration": 1})
    assert notes({"conditions": [condition], "observedGeneration": 2}) == ""
    assert notes({}, deletionTimestamp="2026-01-01T00:00:00Z") == "It is being deleted."
    assert "written no status yet" in notes({"conditions": "of another version"})


def test_names_of_nodes_and_pods_hold_no_control_characters() -> None:
    labels = {"pdinference.io/name": "llama", "pdinference.io/role": "decode", "pdinference.io/revision": "r"}
    metadata = {"name": "d", "namespace": "ns", "uid": "u", "resourceVersion": "1", "labels": labels}
    waiting = {"reason": "ErrImagePull", "message": "\x1b[2Jgone"}
    status = {"containerStatuses": [{"name": "vllm", "image": "i", "state": {"waiting": waiting}}]}
    pod = {"metadata": owned(metadata), "spec": {"nodeName": "\x1b[31mred"}, "status": status}
    text = drawn(overview({"metadata": {"name": "llama", "namespace": "ns"}}, [pod]))
    assert "\x1b" not in text
    assert "gone" in text


class Cluster:
    """The command on an API server in memory."""

    def __init__(self, api: FakeApi, kubeconfig: Path) -> None:
        self.api = api
        self.kubeconfig = kubeconfig

    def run(self, *words: str) -> Result:
        return CliRunner().invoke(main, ["status", *words, "--kubeconfig", str(self.kubeconfig)])


class Watched(FakeApi):
    """Something happens before each look at a resource; after the last, the user presses Ctrl-C."""

    def __init__(self, *events: Callable[[FakeApi], None]) -> None:
        super().__init__()
        self.events = list(events)

    async def get(self, path: str, *, accept: str = "application/json", **query: str) -> Json:
        if path.startswith(RESOURCE.path("team-a")):
            if not self.events:
                raise KeyboardInterrupt
            self.events.pop(0)(self)
        return await super().get(path, accept=accept, **query)


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[FakeApi], Cluster]:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(KUBECONFIG)

    def make(api: FakeApi) -> Cluster:
        monkeypatch.setattr(client, "ApiServer", lambda *_, **__: api)
        monkeypatch.setattr(watching, "_SECONDS", 0)
        return Cluster(api, kubeconfig)

    return make


def store(api: FakeApi, name: str = "llama", **status: Any) -> None:
    path = RESOURCE.path("team-a", name)
    api.put(path, {"metadata": {"name": name, "namespace": "team-a"}, "spec": {}, "status": status})


def test_the_command_prints_a_tree_or_json_and_writes_nothing(cluster: Callable[[FakeApi], Cluster]) -> None:
    api = FakeApi()
    store(api, revision="r1", servingRevision="r1")
    found = cluster(api).run("llama")
    assert found.exit_code == 0, found.output
    assert found.output.startswith("team-a/llama  not known to be ready\n")
    shown = json.loads(cluster(api).run("llama", "-o", "json").output)
    assert (shown["name"], shown["revision"], [role["role"] for role in shown["roles"]]) == (
        "llama",
        "r1",
        ["parameter", "decode", "router"],
    )
    assert api.writes() == 0


def test_without_a_name_each_resource_of_the_namespace_has_a_line(cluster: Callable[[FakeApi], Cluster]) -> None:
    api = FakeApi()
    assert cluster(api).run().output == "There are no PDInferences in the namespace team-a.\n"
    for name in ("llama", "qwen"):
        store(api, name, revision="r1")
    lines = cluster(api).run().output.splitlines()
    assert [line.split()[0] for line in lines] == ["NAME", "llama", "qwen"]
    items = json.loads(cluster(api).run("-o", "json").output)["items"]
    assert [item["name"] for item in items] == ["llama", "qwen"]


def test_what_may_not_be_read_is_noted_with_the_right(cluster: Callable[[FakeApi], Cluster]) -> None:
    api = FakeApi()
    store(api)
    refusal = 'pods is forbidden: User "u" cannot list resource "pods" in API group "" in the namespace "team-a"'
    api.fail("get", POD.path("team-a"), ApiError(403, "Forbidden", refusal))
    found = cluster(api).run("llama")
    assert found.exit_code == 0
    assert "Note: You may not list pods: pods is forbidden" in found.output


def test_a_resource_that_is_missing_and_a_kind_that_is_not_installed(cluster: Callable[[FakeApi], Cluster]) -> None:
    found = cluster(FakeApi()).run("llama")
    assert found.exit_code == 1
    assert "The namespace team-a has no PDInference llama." in found.output
    api = FakeApi()
    api.fail("get", RESOURCE.path("team-a"), ApiError(404, "Http404", "404 page not found\n"))
    found = cluster(api).run()
    assert found.exit_code == 1
    assert "the operator's CRDs are not installed" in found.output


def test_watch_off_a_terminal_prints_changes_until_ctrl_c(cluster: Callable[[FakeApi], Cluster]) -> None:
    api = Watched(
        lambda api: store(api, revision="r1"),
        lambda _: None,
        lambda api: api.fail("get", RESOURCE.path("team-a", "llama"), ApiError(503, "Unavailable", "the server rests")),
        lambda api: store(api, revision="r2"),
    )
    found = cluster(api).run("llama", "-w", "-o", "json")
    assert found.exit_code == 0, found.output
    assert [json.loads(line)["revision"] for line in found.stdout.splitlines()] == ["r1", "r2"]
    assert found.stderr == "the server rests. Trying again every 0 s.\n"


def test_watch_ends_when_the_resource_is_gone(cluster: Callable[[FakeApi], Cluster]) -> None:
    api = Watched(lambda api: store(api, revision="r1"), lambda api: api.objects.clear())
    found = cluster(api).run("llama", "--watch")
    assert found.exit_code == 1
    assert "revision  r1 not rolled out; none serves yet" in found.stdout
    assert "The namespace team-a has no PDInference llama." in found.stderr


async def test_watch_on_a_terminal_redraws_and_keeps_the_last_state(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    as_terminal(monkeypatch, width=100)
    monkeypatch.setattr(watching, "_SECONDS", 0)
    api = Watched(
        lambda api: store(api, revision="r1"),
        lambda api: api.fail("get", RESOURCE.path("team-a", "llama"), ApiError(0, "Unreachable", "no answer")),
    )
    with pytest.raises(KeyboardInterrupt):
        await status_command._watching("llama", "text")(api, "team-a")
    printed = capsys.readouterr().out
    assert printed.count("r1 not rolled out") >= 2
    assert "no answer. Trying again" in printed
