"""Instances on several nodes: a StatefulSet for each node rank, and one router target for each instance."""

from collections.abc import Callable
from typing import Any

import pytest

from pdinference.api import names
from pdinference.api.v1alpha1 import PDInference
from pdinference.manifests import Manifest, RenderSettings, render

Make = Callable[..., PDInference]
TWO_NODES = {"replicas": 3, "parallelism": {"tensor": 4, "pipeline": 2, "nodes": 2}}
DECODE = {"parallelism": {"tensor": 4}}


D_ON_TWO = {"replicas": 3, "parallelism": {"data": 4, "nodes": 2, "expert": True}}


def of_kind(resource: PDInference, kind: str) -> dict[str, Manifest]:
    return {o["metadata"]["name"]: o for o in render(resource, RenderSettings()).objects if o["kind"] == kind}


def stateful_sets(resource: PDInference) -> list[Manifest]:
    """In the order of node ranks."""
    found = of_kind(resource, "StatefulSet").values()
    return sorted(found, key=lambda s: int(s["spec"]["template"]["metadata"]["labels"].get(names.LABEL_NODE_RANK, 0)))


def container(stateful_set: Manifest) -> dict[str, Any]:
    (found,) = stateful_set["spec"]["template"]["spec"]["containers"]
    return dict(found)


def labels(stateful_set: Manifest) -> dict[str, str]:
    return dict(stateful_set["spec"]["template"]["metadata"]["labels"])


def selected(selector: dict[str, Any], pod: dict[str, str]) -> bool:
    """What the API server makes of a label selector."""
    return selector["matchLabels"].items() <= pod.items() and all(
        pod.get(expression["key"]) in expression["values"] for expression in selector.get("matchExpressions", [])
    )


@pytest.fixture
def two_nodes(resource: Make) -> PDInference:
    return resource(parameter=TWO_NODES, decode=DECODE)


def test_each_node_rank_is_a_stateful_set_with_a_pod_for_each_instance(two_nodes: PDInference) -> None:
    revision = render(two_nodes, RenderSettings()).revision
    sets = stateful_sets(two_nodes)
    assert [s["metadata"]["name"] for s in sets] == [f"llama-parameter-{revision}", f"llama-node1-{revision}"]
    assert [s["spec"]["replicas"] for s in sets] == [3, 3]
    assert all(s["spec"]["podManagementPolicy"] == "Parallel" for s in sets)


def test_each_stateful_set_selects_its_own_pods(two_nodes: PDInference) -> None:
    sets = stateful_sets(two_nodes)
    for one in sets:
        assert [selected(one["spec"]["selector"], labels(other)) for other in sets] == [one is other for other in sets]
        assert names.node_of(one["metadata"]["labels"]) == names.node_of(labels(one))


def test_the_router_and_the_headless_service_see_an_instance_once(two_nodes: PDInference) -> None:
    service = of_kind(two_nodes, "Service")["llama-parameter"]
    selector = service["spec"]["selector"].items()
    assert [selector <= labels(s).items() for s in stateful_sets(two_nodes)] == [True, False]
    roles = [labels(s)[names.LABEL_ROLE] for s in stateful_sets(two_nodes)]
    assert [role in names.ENGINE_ROLES for role in roles] == [True, False], "which the router watches"
    assert service["spec"]["publishNotReadyAddresses"] is True, "the nodes meet before they are ready"


def test_devices_are_shared_out_evenly(two_nodes: PDInference) -> None:
    assert [container(s)["resources"]["limits"] for s in stateful_sets(two_nodes)] == [{"nvidia.com/gpu": "4"}] * 2


def test_only_the_first_node_serves_and_is_probed(two_nodes: PDInference) -> None:
    first, second = (container(s) for s in stateful_sets(two_nodes))
    serving = {"ports", "startupProbe", "readinessProbe", "livenessProbe", "lifecycle"}
    assert serving <= first.keys()
    assert not serving & second.keys()


def test_the_pods_of_an_instance_reach_one_another_and_d_on_every_port(two_nodes: PDInference) -> None:
    first, second = (labels(s) for s in stateful_sets(two_nodes))
    decode = of_kind(two_nodes, "Deployment")
    (d,) = (labels(o) for name, o in decode.items() if "-decode-" in name)
    policies = of_kind(two_nodes, "NetworkPolicy")
    for role, targets, sources in (
        ("parameter", [first, second], [first, second, d]),
        ("decode", [d], [first, second]),
    ):
        spec = policies[f"llama-{role}"]["spec"]
        assert all(selected(spec["podSelector"], pod) for pod in targets)
        (open_to,) = (rule["from"] for rule in spec["ingress"] if "ports" not in rule)
        for source in sources:
            assert any(selected(peer["podSelector"], source) for peer in open_to)


def test_one_budget_counts_all_pods_of_p(two_nodes: PDInference) -> None:
    """An eviction takes a whole instance down, so that a second one elsewhere would take a second."""
    spec = of_kind(two_nodes, "PodDisruptionBudget")["llama-parameter"]["spec"]
    assert spec["maxUnavailable"] == 1
    assert all(selected(spec["selector"], labels(s)) for s in stateful_sets(two_nodes))


def test_the_revision_is_of_all_nodes(resource: Make) -> None:
    def revision(zone: str) -> str:
        pools = [{}, {"nodeSelector": {"zone": zone}}]
        return render(resource(parameter={**TWO_NODES, "nodePools": pools}, decode=DECODE), RenderSettings()).revision

    assert revision("a") != revision("b")
    assert revision("a") == revision("a")


def test_an_instance_on_one_node_is_as_ever(resource: Make) -> None:
    plain, stated = (render(resource(parameter={"parallelism": p}), RenderSettings()) for p in ({}, {"nodes": 1}))
    assert plain == stated
    assert not any(names.LABEL_NODE_RANK in str(o) for o in plain.objects)


def test_node_pools_place_early_and_later_layers(resource: Make) -> None:
    r = resource(
        parameter={
            **TWO_NODES,
            "maxNumBatchedTokens": 4096,
            "maxNumSeqs": 64,
            "accelerator": {"products": ["H200"]},
            "placement": {
                "nodeSelector": {"zone": "a", "rack": "any"},
                "topologySpread": [{"topologyKey": "kubernetes.io/hostname"}],
            },
            "nodePools": [{"nodeSelector": {"rack": "1"}}, {"products": ["A100"]}],
        },
        decode=DECODE,
    )
    first, second = (s["spec"]["template"] for s in stateful_sets(r))
    assert [p["spec"]["nodeSelector"] for p in (first, second)] == [
        {"zone": "a", "rack": "1"},
        {"zone": "a", "rack": "any"},
    ]
    products = [
        pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"][
            0
        ]["matchExpressions"][0]["values"]
        for pod in (first, second)
    ]
    assert products == [["H200"], ["A100"]]
    for pod, other in ((first, second), (second, first)):
        (spread,) = pod["spec"]["topologySpreadConstraints"]
        assert selected(spread["labelSelector"], pod["metadata"]["labels"])
        assert not selected(spread["labelSelector"], other["metadata"]["labels"])


@pytest.mark.parametrize("role", names.ENGINE_ROLES)
def test_the_longest_name_fits_the_labels_of_the_statefulset(role: names.Role) -> None:
    name = names.node_workload("x" * names.NAME_MAX_LENGTH, role, 15, "r" * names.REVISION_LENGTH)
    assert len(name) <= 52


@pytest.fixture
def d_on_two(resource: Make) -> PDInference:
    return resource(decode=D_ON_TWO)


def test_d_on_several_nodes_is_a_stateful_set_for_each(d_on_two: PDInference) -> None:
    revision = render(d_on_two, RenderSettings()).revision
    p, *d = stateful_sets(d_on_two)
    assert labels(p)[names.LABEL_ROLE] == names.Role.PARAMETER
    assert names.LABEL_NODE_RANK not in labels(p)
    assert [s["metadata"]["name"] for s in d] == [f"llama-decode-{revision}", f"llama-decode1-{revision}"]
    assert [s["spec"]["replicas"] for s in d] == [3, 3]
    assert [names.node_of(labels(s)) for s in d] == [(names.Role.DECODE, 0), (names.Role.DECODE, 1)]
    assert [len(container(s).get("ports", ())) > 0 for s in d] == [True, False]
    assert list(of_kind(d_on_two, "Deployment")) == ["llama-router"]
    for one in d:
        assert [selected(one["spec"]["selector"], labels(other)) for other in d] == [one is other for other in d]


def test_the_nodes_of_d_find_the_first_one_by_name(d_on_two: PDInference) -> None:
    _, first, second = stateful_sets(d_on_two)
    service = of_kind(d_on_two, "Service")["llama-decode"]
    assert service["spec"]["publishNotReadyAddresses"] is True
    assert selected({"matchLabels": service["spec"]["selector"]}, labels(first))
    leader = "llama-decode-$(PDINFERENCE_REVISION)-$(PDINFERENCE_POD_INDEX).llama-decode"
    assert first["spec"]["serviceName"] == "llama-decode"
    words = [container(second)[part] for part in ("command", "args")]
    assert leader in words[0]
    assert {f"--data-parallel-address={leader}", "--data-parallel-size-local=2", "--data-parallel-start-rank=2"} <= set(
        words[1]
    )


def test_all_pods_of_d_reach_each_other_and_p(d_on_two: PDInference) -> None:
    p, *d = (labels(s) for s in stateful_sets(d_on_two))
    policies = of_kind(d_on_two, "NetworkPolicy")
    for role, targets, sources in (("parameter", [p], d), ("decode", d, [p, *d])):
        spec = policies[f"llama-{role}"]["spec"]
        assert all(selected(spec["podSelector"], pod) for pod in targets)
        (open_to,) = (rule["from"] for rule in spec["ingress"] if "ports" not in rule)
        for source in sources:
            assert any(selected(peer["podSelector"], source) for peer in open_to)
    budget = of_kind(d_on_two, "PodDisruptionBudget")["llama-decode"]["spec"]
    assert all(selected(budget["selector"], pod) for pod in d)


def test_an_instance_is_in_one_domain_and_d_near_p_besides(resource: Make) -> None:
    placed = {**D_ON_TWO, "placement": {"domain": "rack"}}
    p = {"parallelism": D_ON_TWO["parallelism"], "placement": {"domain": "clique"}}
    near = {"topologyKey": "row", "required": True}
    found = stateful_sets(resource(parameter=p, decode=placed, colocation=near))
    kind = "requiredDuringSchedulingIgnoredDuringExecution"
    for one in found:
        own, *others = one["spec"]["template"]["spec"]["affinity"]["podAffinity"][kind]
        role, _ = names.node_of(labels(one)) or (None, 0)
        assert own["topologyKey"] == ("clique" if role is names.Role.PARAMETER else "rack")
        assert own["matchLabelKeys"] == [names.LABEL_REVISION, names.LABEL_POD_INDEX]
        same = [other for other in found if selected(own["labelSelector"], labels(other))]
        assert [names.node_of(labels(other)) for other in same] == [(role, 0), (role, 1)]
        assert [term["topologyKey"] for term in others] == ([] if role is names.Role.PARAMETER else ["row"])


def test_d_alone_may_be_on_several_nodes(resource: Make) -> None:
    found = stateful_sets(resource(mode="Aggregated", decode=D_ON_TWO))
    assert [names.node_of(labels(s)) for s in found] == [(names.Role.DECODE, 0), (names.Role.DECODE, 1)]
