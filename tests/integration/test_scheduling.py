"""Placement of pods by Kubernetes' scheduler, on nodes and devices that exist for it only."""

import os
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from e2e.cluster import Cluster
from pdinference.api import names
from pdinference.api.names import SERVING_ROLES, Role
from pdinference.api.validation import validated
from pdinference.cluster.client import Json
from pdinference.cluster.kinds import POD, RESOURCE, RESOURCE_CLAIM_TEMPLATE, WORKLOADS
from pdinference.manifests import RenderSettings, render
from tests.conftest import EXAMPLES, example_documents
from tests.integration.calm import expect_quiet_restart
from tests.integration.fitting import add_exact_devices, add_fitting_nodes, add_volume, volume_claims
from tests.integration.fleet import DRIVER, Device, Fleet
from tests.integration.oldest import needs_claims
from tests.integration.operators import Operators
from tests.integration.world import World
from tests.waiting import until

PRIORITY_CLASS = "/apis/scheduling.k8s.io/v1/priorityclasses/models-first"
PATIENCE_S = 240.0  # machines may be busy
pytestmark = pytest.mark.timeout(600)
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/{}/resourceclaims"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    name = f"{os.environ.get('PDINFERENCE_CLUSTER', 'integration')}-kwok"
    with Cluster.fresh(name, nodes=0, kwok=True) as cluster:
        yield cluster


@pytest.fixture
def fleet(world: World) -> Fleet:
    return Fleet(world.api, world.namespace)


def claiming(*selectors: str, **more: Any) -> Json:
    """`accelerator` with devices of the fleet's driver."""
    return {"devices": {"deviceClassName": DRIVER, "selectors": list(selectors), **more}}


def has(attribute: str, value: str) -> str:
    return f"device.attributes['{DRIVER}'].{attribute} == '{value}'"


async def pods(world: World, role: Role, name: str = "llama") -> list[Json]:
    """The pods of a role that are not on their way out, in the order of their names."""
    selector = ",".join(f"{key}={value}" for key, value in names.role_selector(name, role).items())
    items: list[Json] = (await world.api.get(POD.path(world.namespace), labelSelector=selector))["items"]
    alive = [pod for pod in items if "deletionTimestamp" not in pod["metadata"]]
    return sorted(alive, key=lambda pod: str(pod["metadata"]["name"]))


async def nodes(world: World, role: Role, name: str = "llama", *, number: int = 1) -> list[str]:
    """Where the pods of a role run, once all of them are bound."""
    bound: list[str] = []

    async def all_bound() -> bool:
        nonlocal bound
        bound = [pod["spec"].get("nodeName", "") for pod in await pods(world, role, name)]
        return len(bound) == number and all(bound)

    await until(all_bound, f"{number} {role} pods of {name} are bound", within=PATIENCE_S)
    return bound


async def devices(world: World, role: Role) -> list[tuple[str, str]]:
    """Node and name of each device that the only pod of a role holds, from the status of its claim."""
    (node,) = await nodes(world, role)
    (pod,) = await pods(world, role)
    (claim,) = pod["status"]["resourceClaimStatuses"]
    assert claim["name"] == names.DEVICE_CLAIM
    path = CLAIMS.format(world.namespace)
    found = await world.api.get(f"{path}/{claim['resourceClaimName']}")
    results = found["status"]["allocation"]["devices"]["results"]
    assert {result["pool"] for result in results} == {f"{node}-{DRIVER}"}
    return sorted((node, result["device"]) for result in results)


async def says(world: World, type_: str, *words: str) -> None:
    """Wait until a condition is False with all these words in its message."""

    async def said() -> bool:
        condition = await world.condition(type_)
        return condition.get("status") == "False" and all(word in condition["message"] for word in words)

    await until(said, f"{type_} says {words}", within=PATIENCE_S)


@needs_claims
async def test_a_claim_gets_exactly_the_device_that_its_selectors_leave(
    world: World, operators: Operators, fleet: Fleet
) -> None:
    """One device for each role, whichever of them the scheduler places first."""
    await fleet.add("a", devices=[Device("gpu-0"), Device("gpu-1", product="X50", memory="40Gi")])
    devices_of_b = [Device("gpu-0", memory="40Gi"), Device("gpu-1", product="X50"), Device("gpu-2")]
    second = await fleet.add("b", devices=devices_of_b)
    await operators.start()
    exact = claiming(has("uuid", f"GPU-{second}-gpu-1"))
    large = claiming(
        has("productName", "X100"),
        f"device.capacity['{DRIVER}'].memory.compareTo(quantity('80Gi')) >= 0",
        f"device.attributes['{DRIVER}'].uuid.startsWith('GPU-{second}')",
    )
    await world.apply(
        parameter={"accelerator": exact, "placement": fleet.placement},
        decode={"accelerator": large, "placement": fleet.placement},
        router={"placement": fleet.placement},
    )
    assert await devices(world, Role.PARAMETER) == [(second, "gpu-1")]
    assert await devices(world, Role.DECODE) == [(second, "gpu-2")]


@needs_claims
async def test_all_devices_of_a_pod_share_the_attribute(world: World, operators: Operators, fleet: Fleet) -> None:
    """And an operator that starts anew finds the claims as they should be."""
    await fleet.add("apart", devices=[Device("gpu-0", root="pci0000:10"), Device("gpu-1", root="pci0000:20")])
    roots = ["pci0000:10", "pci0000:20", "pci0000:10", "pci0000:20"]
    near = await fleet.add("near", devices=[Device(f"gpu-{n}", root=root) for n, root in enumerate(roots)])
    operator = await operators.start()
    role = {
        "parallelism": {"tensor": 2},
        "accelerator": claiming(matchAttribute="resource.kubernetes.io/pcieRoot"),
        "placement": fleet.placement,
    }
    await world.apply(parameter=role, decode=role, router={"placement": fleet.placement})
    pairs = {tuple(await devices(world, role)) for role in (Role.PARAMETER, Role.DECODE)}
    assert pairs == {((near, "gpu-0"), (near, "gpu-2")), ((near, "gpu-1"), (near, "gpu-3"))}
    await world.rolled_out()  # kwok may take many quiet seconds to make pods ready
    await expect_quiet_restart(world, operators, operator)


@needs_claims
async def test_p_and_d_of_a_pod_get_one_claim_with_the_devices_of_both_on_one_node(
    world: World, operators: Operators, fleet: Fleet
) -> None:
    """Three devices of one node and one of another are not enough for 1 P and 1 D with two ranks each."""
    await fleet.add("three", devices=[Device(f"gpu-{n}") for n in range(3)])
    await fleet.add("one", devices=[Device("gpu-0")])
    operator = await operators.start()
    role = {"parallelism": {"tensor": 2}, "accelerator": claiming(), "placement": fleet.placement}
    placed = {"placement": fleet.placement}
    await world.apply(parameter=role, decode=role, router=placed, transfer={"hostLocal": {}})
    await says(world, "DecodeReady", "cannot allocate all claims")

    four = await fleet.add("four", devices=[Device(f"gpu-{n}") for n in range(4)])
    assert await devices(world, Role.DECODE) == [(four, f"gpu-{n}") for n in range(4)]
    (pod,) = await pods(world, Role.DECODE)
    claims = [container["resources"]["claims"] for container in pod["spec"]["containers"]]
    assert claims == [[{"name": names.DEVICE_CLAIM}]] * 2
    assert await pods(world, Role.PARAMETER) == []

    await world.rolled_out()
    assert (await world.condition("ParameterReady"))["reason"] == "HostLocal"
    await expect_quiet_restart(world, operators, operator)


@needs_claims
async def test_missing_devices_are_named_and_the_old_revision_keeps_its_claims(
    world: World, operators: Operators, fleet: Fleet
) -> None:
    await fleet.add("a", devices=[Device(f"gpu-{n}", product=f"X{n // 2}") for n in range(6)])
    await operators.start()

    async def asked(product: str) -> str:
        await world.apply(
            parameter={"accelerator": claiming(has("productName", product)), "placement": fleet.placement},
            decode={"accelerator": claiming(has("productName", "X1")), "placement": fleet.placement},
            router={"placement": {"nodeSelector": {"pool": "none"}}},  # kwok would call it ready without P and D
        )
        await world.settled()
        revision: str = (await world.status())["revision"]
        return revision

    async def templates() -> set[str]:
        items = (await world.api.get(RESOURCE_CLAIM_TEMPLATE.path(world.namespace)))["items"]
        return {item["metadata"]["name"] for item in items}

    async def exactly(*revisions: str) -> bool:
        return await templates() == {f"llama-{role}-{r}" for role in names.ENGINE_ROLES for r in revisions}

    first = await asked("X0")
    await nodes(world, Role.DECODE)
    await world.make_ready(first)
    await until(lambda: exactly(first), "the first pair has templates", within=PATIENCE_S)

    stuck = await asked("X9")
    await says(world, "ParameterReady", "cannot allocate all claims", "spec.parameter.accelerator.devices")
    assert (await world.condition("Ready"))["status"] == "True"
    assert await exactly(first, stuck)

    third = await asked("X2")
    await until(lambda: exactly(first, third), "the stuck pair is gone and the first is not", within=PATIENCE_S)
    await world.make_ready(third)
    await until(lambda: exactly(third), "the first pair goes once the third serves", within=PATIENCE_S)


async def test_accelerators_of_all_vendors_by_resource_product_and_taint(
    world: World, operators: Operators, fleet: Fleet
) -> None:
    vendors = {
        "nvidia": ("nvidia.com/gpu", "nvidia.com/gpu.product", "NVIDIA-H100-80GB-HBM3"),
        "amd": ("amd.com/gpu", "amd.com/gpu.product-name", "AMD_Instinct_MI300X_OAM"),
        "gaudi": ("habana.ai/gaudi", "habana.ai/device.gaudi", "gaudi3"),
        "tpu": ("google.com/tpu", "cloud.google.com/gke-tpu-accelerator", "tpu-v5-lite-podslice"),
    }
    placed = {}
    for name, (resource, label, product) in vendors.items():
        await fleet.add(f"{name}-old", amounts={resource: "8"}, labels={label: "older"}, taints=[resource])
        placed[name] = await fleet.add(name, amounts={resource: "8"}, labels={label: product}, taints=[resource])
    await fleet.add("cpu")
    await operators.start()
    for name, (resource, label, product) in vendors.items():
        role = {
            "parallelism": {"tensor": 4},
            "accelerator": {"resourceName": resource, "productLabel": label, "products": [product]},
            "placement": fleet.placement,
        }
        await world.apply(name, parameter=role, decode=role, router={"placement": fleet.placement})
    cpu = {"accelerator": {"type": "CPU"}, "placement": fleet.placement}
    await world.apply("cpu", parameter=cpu, decode=cpu, router={"placement": fleet.placement})
    for name, node in placed.items():
        assert await nodes(world, Role.PARAMETER, name) == [node]
        assert await nodes(world, Role.DECODE, name) == [node]
    # CPU pods tolerate no vendor's taint, and neither does any router.
    for serving in SERVING_ROLES:
        assert await nodes(world, serving, "cpu") == [f"{fleet.pool}-cpu"]


async def test_a_pod_that_wants_more_than_any_node_has_stays_pending_and_says_so(
    world: World, operators: Operators, fleet: Fleet
) -> None:
    await fleet.add("a", amounts={"nvidia.com/gpu": "8", "rdma/ib": "1"})
    await operators.start()
    await world.apply(
        parameter={"parallelism": {"tensor": 8, "data": 2}, "placement": fleet.placement},
        decode={"parallelism": {"tensor": 8}, "accelerator": {"products": ["H9000"]}, "placement": fleet.placement},
        router={"placement": fleet.placement},
        transfer={"rdma": {"resourceName": "rdma/ib", "count": 2}},
    )
    await says(
        world, "ParameterReady", "Insufficient nvidia.com/gpu", "No node has enough free nvidia.com/gpu and rdma/ib "
    )
    await says(world, "DecodeReady", "node affinity/selector", "spec.decode.accelerator.products")


async def test_d_runs_on_the_products_of_p_and_the_condition_says_where(
    world: World, operators: Operators, fleet: Fleet
) -> None:
    label, product = "nvidia.com/gpu.product", f"H9-{world.namespace}"
    await fleet.add("other", amounts={"nvidia.com/gpu": "8"}, labels={label: "other"})
    right = await fleet.add("right", amounts={"nvidia.com/gpu": "8"}, labels={label: product})
    operator = await operators.start()

    async def apply(parameter: Json, decode: Json) -> None:
        placed = {"placement": fleet.placement}
        await world.apply(parameter={**placed, "accelerator": parameter}, decode=decode, router=placed)
        await world.settled()

    async def affinity_of_d() -> Json:
        revision = (await world.status())["revision"]
        (deployment,) = (
            child
            for (kind, name), child in (await world.children()).items()
            if kind == "Deployment" and name == f"llama-decode-{revision}"
        )
        found: Json = deployment["spec"]["template"]["spec"].get("affinity", {})
        return found

    await apply({}, {"placement": fleet.placement})
    await says(world, "Pinned", "P is not pinned to a product", "`kubectl get nodes -L nvidia.com/gpu.product`")
    await nodes(world, Role.PARAMETER)

    await apply({"products": [product]}, {})
    condition = await world.condition("Pinned")
    assert (condition["status"], condition["reason"]) == ("True", "Pinned")
    assert condition["message"] == f"P runs on {product}. D runs on {product}, the products of P."
    wanted = {"key": label, "operator": "In", "values": [product]}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [wanted]}]}
    assert await affinity_of_d() == {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}

    await world.rolled_out()
    for role in names.ENGINE_ROLES:
        assert await nodes(world, role) == [right]
    stored: Json = (await world.get(RESOURCE, "llama") or {})["spec"]
    assert "products" not in stored["decode"]["accelerator"], "the spec is as it was written"

    await expect_quiet_restart(world, operators, operator)

    await apply({"products": [product]}, {"placement": {"nodeSelector": {"kubernetes.io/os": "linux"}}})
    assert (
        "D runs on nodes that its own placement or podTemplate choose" in (await world.condition("Pinned"))["message"]
    )
    assert await affinity_of_d() == {}

    await apply({"type": "CPU"}, {"accelerator": {"type": "CPU"}})
    assert await world.condition("Pinned") == {}


async def test_d_follows_p_and_spreads_with_taints_priority_and_queue(
    world: World, operators: Operators, fleet: Fleet
) -> None:
    for zone in ("east", "west"):
        for number in (1, 2):
            await fleet.add(
                f"{zone}-{number}",
                labels={"topology.kubernetes.io/zone": zone},
                amounts={"nvidia.com/gpu": "4"},
                taints=["dedicated"] if zone == "west" else [],
            )
    priority = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": 1000}
    metadata = {"name": PRIORITY_CLASS.rpartition("/")[2]}
    await world.api.apply(PRIORITY_CLASS, {**priority, "metadata": metadata}, manager="test")
    await operators.start()
    tolerations = [{"key": "dedicated", "operator": "Exists"}]
    west = {**fleet.placement["nodeSelector"], "topology.kubernetes.io/zone": "west"}
    spread = [{"topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule"}]
    await world.apply(
        parameter={"placement": {"nodeSelector": west, "tolerations": tolerations}},
        decode={
            "replicas": 2,
            "placement": {
                **fleet.placement,
                "tolerations": tolerations,
                "topologySpread": spread,
                "priorityClassName": metadata["name"],
                "queueName": "gpus",
            },
        },
        colocation={"topologyKey": "topology.kubernetes.io/zone", "required": True},
        router={"placement": fleet.placement},
    )
    (parameter,) = await nodes(world, Role.PARAMETER)
    decode = await nodes(world, Role.DECODE, number=2)
    assert parameter.startswith(f"{fleet.pool}-west")
    assert sorted(decode) == [f"{fleet.pool}-west-1", f"{fleet.pool}-west-2"]
    for pod in await pods(world, Role.DECODE):
        assert pod["spec"]["priority"] == 1000
        assert pod["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "gpus"
    (router,) = await nodes(world, Role.ROUTER)
    assert router.startswith(f"{fleet.pool}-east")


@needs_claims
async def test_every_pod_of_every_example_finds_a_node(world: World, operators: Operators, fleet: Fleet) -> None:
    """On nodes with the labels, devices and volumes that the example speaks of."""
    documents = [document for path in EXAMPLES for document in example_documents(path)]
    assert len({document["metadata"]["name"] for document in documents}) == len(documents)
    rendered = {d["metadata"]["name"]: render(validated(d), RenderSettings()).objects for d in documents}
    # All at once: pods of one example may run on nodes of another, which then need the zones that both speak of.
    await add_fitting_nodes(fleet, "fitting", chain.from_iterable(rendered.values()))
    await add_exact_devices(fleet)
    for claim in set().union(*map(volume_claims, rendered.values())):
        await add_volume(fleet, world.namespace, claim)
    await operators.start()
    for document in documents:
        name = document["metadata"]["name"]
        document["metadata"]["namespace"] = world.namespace
        await world.api.apply(RESOURCE.path(world.namespace, name), document, manager="test")
    homeless: list[str] = []

    async def all_bound() -> bool:
        nonlocal homeless
        items = (await world.api.get(POD.path(world.namespace)))["items"]
        homeless = [f"{p['metadata']['name']}: {p['status']}" for p in items if "nodeName" not in p["spec"]]
        return len(items) == expected and not homeless

    specs = {document["metadata"]["name"]: document["spec"] for document in documents}

    def wanted(name: str, workload: Json) -> int:
        """With an HPA, the manifest has no replica count, and the workload starts with the count of the spec."""
        seed = specs[name].get(workload["metadata"]["labels"][names.LABEL_ROLE], {}).get("replicas", 1)
        return int(workload["spec"].get("replicas", seed))

    expected = sum(wanted(name, o) for name, objects in rendered.items() for o in objects if o["kind"] in WORKLOADS)
    try:
        await until(all_bound, "all pods are bound", within=PATIENCE_S)
    except AssertionError:
        pytest.fail(f"of {expected} pods these are not bound: " + "\n".join(homeless))


async def test_a_capability_that_pod_security_forbids_is_reported(
    world: World, operators: Operators, fleet: Fleet, tmp_path: Path
) -> None:
    """The installation allows IPC_LOCK, and the namespace does not."""
    labels = {"pod-security.kubernetes.io/enforce": "baseline"}
    await world.api.merge(f"/api/v1/namespaces/{world.namespace}", {"metadata": {"labels": labels}})
    await fleet.add("a", amounts={"nvidia.com/gpu": "8", "rdma/ib": "8"})
    policy = tmp_path / "policy.yaml"
    policy.write_text("capabilities: [IPC_LOCK]", encoding="utf-8")
    await operators.start(f"--policy={policy}")
    role = {"placement": fleet.placement}
    rdma = {"resourceName": "rdma/ib"}
    await world.apply(parameter=role, decode=role, router=role, transfer={"rdma": rdma})
    await says(world, "DecodeReady", "IPC_LOCK", "baseline")
    allowed = {"pod-security.kubernetes.io/enforce": "privileged"}
    await world.api.merge(f"/api/v1/namespaces/{world.namespace}", {"metadata": {"labels": allowed}})
    await nodes(world, Role.PARAMETER)
    await nodes(world, Role.DECODE)


async def test_the_nodes_of_an_instance_are_in_one_domain(world: World, operators: Operators, fleet: Fleet) -> None:
    """On 64 nodes. Each has room for many pods, so that no instance waits for another one."""
    racks = {}
    for number in range(64):
        rack = str(number % 8)
        node = await fleet.add(str(number), labels={"rack": rack}, amounts={"nvidia.com/gpu": "64"})
        racks[node] = rack
    await operators.start()
    near = {**fleet.placement, "domain": "rack"}
    nodes_of = {Role.PARAMETER: 2, Role.DECODE: 4}
    await world.apply(
        parameter={"replicas": 6, "parallelism": {"data": 16, "nodes": 2, "expert": True}, "placement": near},
        decode={"replicas": 4, "parallelism": {"data": 32, "nodes": 4, "expert": True}, "placement": near},
        router={"placement": fleet.placement},
    )
    found: dict[tuple[str, str], list[str]] = {}

    async def placed() -> bool:
        found.clear()
        selector = f"{names.LABEL_NAME}=llama,{names.LABEL_NODE_RANK}"
        for pod in (await world.api.get(POD.path(world.namespace), labelSelector=selector))["items"]:
            if node := pod["spec"].get("nodeName"):
                labels = pod["metadata"]["labels"]
                instance = labels[names.LABEL_APP_COMPONENT], labels[names.LABEL_POD_INDEX]
                found.setdefault(instance, []).append(racks[node])
        return sum(map(len, found.values())) == 6 * 2 + 4 * 4

    await until(placed, "all nodes of all instances are bound", within=PATIENCE_S)
    assert {instance: len(domains) for instance, domains in found.items()} == {
        (str(role), str(number)): nodes
        for (role, nodes), instances in zip(nodes_of.items(), (6, 4), strict=True)
        for number in range(instances)
    }
    assert all(len({*domains}) == 1 for domains in found.values()), found
    assert len({domains[0] for domains in found.values()}) > 1
