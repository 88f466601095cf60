"""`pdinference doctor` against a real API server: nodes and devices that exist for the scheduler only."""

import asyncio
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e.cluster import Cluster
from pdinference.api.names import LABEL_ROLE
from pdinference.cli.doctor.bandwidth.jobs import AT_ONCE, LABEL_RUN
from pdinference.cluster.client import Json
from pdinference.cluster.kinds import JOB, POD, RESOURCE_CLAIM_TEMPLATE
from tests.integration.accounts import user
from tests.integration.fleet import DRIVER, NODES, Device, Fleet
from tests.integration.oldest import needs_claims
from tests.integration.world import World
from tests.waiting import until

PRODUCT = "nvidia.com/gpu.product"
GPU = "nvidia.com/gpu"
pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    name = f"{os.environ.get('PDINFERENCE_CLUSTER', 'integration')}-doctor"
    with Cluster.fresh(name, nodes=0, kwok=True) as cluster:
        yield cluster


@pytest.fixture
async def fleet(world: World) -> Fleet:
    return Fleet(world.api, world.namespace)


async def ready(world: World, fleet: Fleet) -> None:
    """Wait until the kubelets that kwok plays have reported, and controllers have removed their taints."""

    async def all_ready() -> bool:
        nodes = (await world.api.get(NODES, labelSelector=f"pool={fleet.pool}"))["items"]
        taints = [taint["key"] for node in nodes for taint in node["spec"].get("taints", ())]
        conditions = [c for node in nodes for c in node["status"].get("conditions", ()) if c["type"] == "Ready"]
        reported = [condition["status"] for condition in conditions] == ["True"] * len(nodes)
        return reported and not any(key.startswith("node.kubernetes.io/") for key in taints)

    await until(all_ready, "all nodes are ready")


async def doctor(world: World, *words: str, kubeconfig: Path | None = None) -> tuple[int, Json]:
    """Exit status and report."""
    place = ["--kubeconfig", str(kubeconfig or world.cluster.kubeconfig), "--namespace", world.namespace, "-o", "json"]
    program = Path(sys.executable).with_name("pdinference")
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(program, "doctor", *words, *place, stdout=pipe, stderr=pipe)
    output, errors = await process.communicate()
    assert output.startswith(b"{"), errors.decode()
    assert process.returncode is not None
    return process.returncode, json.loads(output)


def results(report: Json) -> dict[str, str]:
    return {finding["subject"]: finding["result"] for finding in report["findings"]}


def found(report: Json, subject: str) -> Json:
    (finding,) = (finding for finding in report["findings"] if finding["subject"] == subject)
    answer: Json = finding
    return answer


def on(fleet: Fleet, **role: Any) -> Json:
    return {"placement": fleet.placement, **role}


async def test_of_the_cluster_it_lists_what_nodes_offer(world: World, fleet: Fleet) -> None:
    await fleet.add("a", amounts={GPU: "8", "rdma/ib": "2"})
    await ready(world, fleet)
    status, report = await doctor(world)
    assert "rdma/ib: 2" in found(report, "extended resources")["found"]
    assert results(report)["CRDs"] == results(report)["Kubernetes"] == results(report)["DRA"] == "ok"
    assert results(report)["operator"] == results(report)["webhook"] == "problem"
    assert status == 1
    assert not report["healthy"]


async def test_nodes_devices_and_products_are_those_that_the_pods_may_use(world: World, fleet: Fleet) -> None:
    product = f"H9-{world.namespace}"
    await fleet.add("small", amounts={GPU: "2"}, labels={PRODUCT: product})
    await fleet.add("large", amounts={GPU: "4"}, labels={PRODUCT: product}, taints=[GPU])
    await fleet.add("other", amounts={GPU: "8"}, labels={PRODUCT: "other"})
    await ready(world, fleet)
    await world.apply(
        parameter=on(fleet, parallelism={"tensor": 4}, accelerator={"products": [product]}),
        decode=on(fleet, parallelism={"tensor": 8}, accelerator={"products": [product]}),
    )
    mark = world.audit_mark()
    _, report = await doctor(world, "llama")
    assert not world.writes(mark), "without --bandwidth it writes nothing"
    assert found(report, "nodes of P")["found"].startswith("2 of ")
    assert found(report, f"{GPU} for P")["result"] == "ok"
    assert "1 of these nodes" in found(report, f"{GPU} for P")["found"]
    assert found(report, f"{GPU} for D")["result"] == "problem"
    assert "8 on one node; the largest of these nodes has 4" in found(report, f"{GPU} for D")["found"]
    assert results(report)["products"] == "ok"
    assert report["way"] == "TCP"
    assert results(report)["way of the KV cache"] == "problem"


async def test_rdma_is_looked_for_on_the_nodes_of_both_roles(world: World, fleet: Fleet) -> None:
    await fleet.add("with", amounts={GPU: "8", "rdma/ib": "1"}, labels={"way": "rdma"})
    await fleet.add("without", amounts={GPU: "8"}, labels={"way": "tcp"})
    await ready(world, fleet)
    only = {"nodeSelector": {**fleet.placement["nodeSelector"], "way": "tcp"}}
    await world.apply(parameter=on(fleet), decode={"placement": only}, transfer={"rdma": {"resourceName": "rdma/ib"}})
    _, report = await doctor(world, "llama")
    assert report["way"] == "RDMA"
    assert found(report, "rdma/ib for P")["result"] == "ok"
    assert found(report, "rdma/ib for D")["result"] == "problem"
    assert "none of these nodes has any" in found(report, "rdma/ib for D")["found"]


@needs_claims
async def test_device_claims_need_their_class_and_published_devices(world: World, fleet: Fleet) -> None:
    await fleet.add("a", devices=[Device("gpu-0"), Device("gpu-1")])
    await ready(world, fleet)
    claims = {"devices": {"deviceClassName": DRIVER}}
    await world.apply(
        parameter=on(fleet, accelerator=claims, parallelism={"tensor": 2}),
        decode=on(fleet, accelerator=claims, parallelism={"tensor": 4}),
    )
    _, report = await doctor(world, "llama")
    assert results(report)[f"DeviceClass {DRIVER} for P"] == results(report)["devices for P"] == "ok"
    assert found(report, "devices for D")["result"] == "problem"
    assert "A pod needs 4 of one node; the largest node has 2" in found(report, "devices for D")["found"]
    assert results(report)["IMEX"] == "ok"

    await world.apply(
        "other", parameter=on(fleet, accelerator={"devices": {"deviceClassName": "nothing"}}), decode=on(fleet)
    )
    _, report = await doctor(world, "other")
    assert found(report, "DeviceClass nothing for P")["result"] == "problem"
    assert DRIVER in found(report, "DeviceClass nothing for P")["found"]


async def test_what_a_user_of_the_namespace_may_not_read_is_unknown_with_the_missing_right(
    world: World, fleet: Fleet, tmp_path: Path
) -> None:
    await world.apply(decode=on(fleet))
    kubeconfig = await _user(world, tmp_path, [])
    status, report = await doctor(world, "llama", kubeconfig=kubeconfig)
    unknown = {subject for subject, result in results(report).items() if result == "unknown"}
    assert {"operator", "webhook", "nodes of P", "nodes of D"} <= unknown
    assert 'cannot list resource "nodes"' in found(report, "nodes of P")["found"]
    assert results(report)["CRDs"] == "ok"
    assert status == 1, "TCP between GPUs"

    _, report = await doctor(world, "llama", "--bandwidth", kubeconfig=kubeconfig)
    assert 'cannot create resource "jobs"' in found(report, "bandwidth")["found"]
    assert found(report, "bandwidth")["result"] == "unknown"


@needs_claims
async def test_the_pods_of_a_measurement_meet_the_restricted_standard_and_go_when_they_get_no_node(
    world: World, fleet: Fleet
) -> None:
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    await world.api.merge(f"/api/v1/namespaces/{world.namespace}", {"metadata": {"labels": labels}})
    await fleet.add_class(DRIVER)
    claims = {"devices": {"deviceClassName": DRIVER}}
    await world.apply(parameter=on(fleet, accelerator=claims), decode=on(fleet, accelerator=claims))
    running = asyncio.create_task(doctor(world, "llama", "--bandwidth", "--timeout", "20"))
    claimed: set[str] = set()
    templates: set[str] = set()

    async def claims_a_template() -> bool:
        """The Job owns the template, so that its pod can exist first."""
        nonlocal claimed, templates
        pods, found = [
            (await world.api.get(kind.path(world.namespace), labelSelector=LABEL_RUN))["items"]
            for kind in (POD, RESOURCE_CLAIM_TEMPLATE)
        ]
        claimed = {claim["resourceClaimTemplateName"] for pod in pods for claim in pod["spec"]["resourceClaims"]}
        templates = {template["metadata"]["name"] for template in found}
        return bool(claimed) and claimed <= templates

    await until(claims_a_template, "the pod in the place of P and the template of its claim exist")
    _, report = await running
    assert found(report, "bandwidth")["result"] == "problem"
    assert "has no node" in found(report, "bandwidth")["found"]

    async def gone() -> bool:
        paths = [kind.path(world.namespace) for kind in (JOB, POD, RESOURCE_CLAIM_TEMPLATE)]
        return not [i for path in paths for i in (await world.api.get(path, labelSelector=LABEL_RUN))["items"]]

    await until(gone, "Jobs, pods and claim templates are gone")


async def test_a_result_of_the_pods_is_reported(world: World, fleet: Fleet, tmp_path: Path) -> None:
    """The pods get no node. The test reports in the place of kubelets."""
    cpu = on(fleet, accelerator={"type": "CPU"})
    manifest = tmp_path / "llama.yaml"
    manifest.write_text(yaml.safe_dump(world.resource(parameter=cpu, decode=cpu)), encoding="utf-8")
    running = asyncio.create_task(doctor(world, "-f", str(manifest), "--bandwidth"))
    await _report(world, "parameter", {"phase": "Running", "podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}]})
    ended = {"terminated": {"exitCode": 0, "message": json.dumps(_result())}}
    container = {"name": "vllm", "image": "i", "imageID": "i", "ready": False, "restartCount": 0, "state": ended}
    await _report(world, "decode", {"phase": "Succeeded", "containerStatuses": [container]})
    status, report = await running
    assert report["bandwidth"]["lanes"] == ["tcp/eth0"]
    assert report["load"]["gigabytesPerSecond"] == pytest.approx(0.7)
    assert results(report)["bandwidth"] == "ok"
    assert results(report)["contents"] == "problem"
    assert status == 1


async def _report(world: World, role: str, status: Json) -> None:
    """Write the status of a role's pod, once it exists."""
    found: list[Json] = []

    async def exists() -> bool:
        nonlocal found
        selector = f"{LABEL_RUN},{LABEL_ROLE}={role}"
        found = (await world.api.get(POD.path(world.namespace), labelSelector=selector))["items"]
        return bool(found)

    await until(exists, f"the pod in the place of {role} exists")
    (pod,) = found
    await world.api.merge(f"{POD.path(world.namespace, pod['metadata']['name'])}/status", {"status": status})


def _result() -> Json:
    lists = ("rdmaDevices", "rdmaDeviceFiles", "nvidiaDeviceFiles", "imexChannels", "gpus", "interfaces")
    seen = {**{name: [] for name in lists}, "memlockBytes": 65536, "pidNamespace": "pid:[1]", "dns": True}
    case = {"direction": "pull", "first": 5e8, "speed": 7e8, "transfers": 3}
    cases = [{**case, "atOnce": number, "right": number == 1} for number in AT_ONCE]
    return {"cases": cases, "lanes": ["tcp/eth0"], "parameter": seen, "decode": seen}


async def _user(world: World, folder: Path, rules: list[Json]) -> Path:
    """A kubeconfig of an account that may read PDInferences in its namespace, and what the rules add."""
    roles = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{world.namespace}/roles"
    reads = {"apiGroups": ["pdinference.io"], "resources": ["*"], "verbs": ["get", "list"]}
    await world.api.create(roles, {"metadata": {"name": "user"}, "rules": [reads, *rules]})
    return await user(world, folder, {"kind": "Role", "name": "user"})
