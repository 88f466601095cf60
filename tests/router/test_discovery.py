"""The engines of the pods that the API server has, one by one."""

from typing import Any

import pytest

from pdinference.api import names
from pdinference.api.names import Role
from pdinference.router.discovery import Discovery, WatchEndedError
from pdinference.router.pod import Observed, Pod
from pdinference.router.pods import Pods
from tests.controllers import owned
from tests.router.engines import D, P


def body(
    *containers: tuple[str, dict[str, int]],
    uid: str = "u1",
    ip: str = "10.0.0.1",
    ready: tuple[str, ...] = (),
    role: Role = D,
) -> dict[str, Any]:
    """A pod: its containers with their ports by name, and the containers that are ready."""
    return {
        "metadata": owned({"uid": uid, "name": f"x-{uid}", "labels": names.role_selector("x", role, "r1")}),
        "spec": {
            "containers": [
                {"name": name, "ports": [{"name": port, "containerPort": number} for port, number in ports.items()]}
                for name, ports in containers
            ]
        },
        "status": {
            "podIP": ip,
            "conditions": [{"type": "Ready", "status": str(len(ready) == len(containers))}],
            "containerStatuses": [{"name": name, "ready": name in ready} for name in dict(containers)],
        },
    }


OWN = (("decode-0", {"decode-0": 8000}), ("parameter-0", {"parameter-0": 8001}))
SHARED = (("vllm", {"decode-0": 8000, "decode-1": 8001, "parameter-0": 8002}),)


def seen(pods: Pods) -> dict[str, tuple[str, str, bool]]:
    return {pod.observed.name: (pod.observed.role, pod.observed.address, pod.observed.ready) for pod in pods}


@pytest.fixture
def pods() -> Pods:
    return Pods()


@pytest.fixture
def discovery(pods: Pods) -> Discovery:
    return Discovery(pods, "team", "x", "r1")


def test_an_ordinary_pod_is_one_engine(pods: Pods, discovery: Discovery) -> None:
    discovery.take("ADDED", body(("vllm", {"http": 8000}), ready=("vllm",)))
    assert [pod.observed for pod in pods] == [Observed("u1", "x-u1", D, "10.0.0.1:8000", ready=True)]


def test_each_data_parallel_rank_of_a_pod_is_one(pods: Pods) -> None:
    discovery = Discovery(pods, "team", "x", "r1", {D: 2})
    discovery.take("ADDED", body(("vllm", {"http": 8000}), ready=("vllm",)))
    discovery.take("ADDED", body(("vllm", {"http": 8000}), ready=("vllm",), uid="u2", role=P))
    assert seen(pods) == {
        "x-u1/rank-0": (D, "10.0.0.1:8000", True),
        "x-u1/rank-1": (D, "10.0.0.1:8000", True),
        "x-u2": (P, "10.0.0.1:8000", True),
    }
    assert [pod.observed.rank for pod in pods] == [0, 1, None]
    assert pods.complete, "KV cache gets from P to each"


def test_engines_with_containers_of_their_own_are_ready_each_by_itself(pods: Pods, discovery: Discovery) -> None:
    discovery.take("ADDED", body(*OWN, ready=("decode-0",), ip="fd00::1"))
    assert seen(pods) == {
        "x-u1/decode-0": (D, "[fd00::1]:8000", True),
        "x-u1/parameter-0": (P, "[fd00::1]:8001", False),
    }
    assert {pod.observed.group for pod in pods} == {"u1"}
    assert pods.first_complete is None
    discovery.take("MODIFIED", body(*OWN, ready=("decode-0", "parameter-0")))
    assert pods.first_complete is not None


def test_p_and_d_of_two_pods_are_not_complete(pods: Pods, discovery: Discovery) -> None:
    discovery.take("ADDED", body(*OWN, ready=("decode-0",)))
    discovery.take("ADDED", body(*OWN, ready=("parameter-0",), uid="u2"))
    assert (len(pods.available(P)), len(pods.available(D)), pods.complete) == (1, 1, False)
    assert pods.complete_since is None


def test_a_terminating_pod_ends_for_all_its_engines(pods: Pods, discovery: Discovery) -> None:
    found = body(*SHARED, ready=("vllm",))
    discovery.take("ADDED", found)
    assert len(pods.available(D)) == 2
    found["metadata"]["deletionTimestamp"] = "2026-11-23T00:00:00Z"
    discovery.take("MODIFIED", found)
    assert pods.available(D) == pods.available(P) == []
    discovery.take("DELETED", found)
    assert list(pods) == []


def test_an_engine_stays_the_same_while_another_one_of_its_pod_restarts(pods: Pods, discovery: Discovery) -> None:
    """What is under way at it goes on."""

    def decode() -> Pod:
        return next(pod for pod in pods if pod.observed.role is D)

    discovery.take("ADDED", body(*OWN, ready=("decode-0", "parameter-0")))
    before = decode()
    discovery.take("MODIFIED", body(*OWN, ready=("decode-0",)))
    assert decode() is before
    assert before.observed.ready


def test_a_strangers_pod_is_bounded_and_harms_no_other(pods: Pods, discovery: Discovery) -> None:
    discovery.take("ADDED", body(*OWN, ready=("decode-0", "parameter-0")))
    ports = {f"{role}-{number}": 65535 for role in names.ENGINE_ROLES for number in range(100)}
    containers = [(f"c{number}", ports) for number in range(100)] + [(f"decode-{number}", ports) for number in range(9)]
    discovery.take("ADDED", body(*containers, uid="u2", ready=("decode-0",)))
    hostile = [pod.observed for pod in pods if pod.observed.group == "u2"]
    assert len(hostile) == 20
    assert len({one.uid for one in hostile}) == 20
    assert len(pods.available(P)) == 1 + 10
    assert seen(pods)["x-u1/decode-0"] == (D, "10.0.0.1:8000", True)


def test_router_pods_of_the_revision_are_counted_and_get_no_requests(pods: Pods, discovery: Discovery) -> None:
    routers = [
        body(("router", {"http": 8080}), uid=f"r{number}", ready=("router",), role=Role.ROUTER) for number in range(2)
    ]
    assert pods.routers == 1, "itself, before the API server has said so"
    for router in routers:
        discovery.take("ADDED", router)
    discovery.take("MODIFIED", routers[0])
    assert (pods.routers, list(pods)) == (2, [])
    discovery.take("DELETED", routers[0])
    assert pods.routers == 1


def strangers() -> dict[str, dict[str, Any]]:
    """Pods with the labels of the revision, each of another stranger."""
    found = {one: body(("vllm", {"http": 8000}), uid=one, ready=("vllm",)) for one in ("bare", "other", "not-theirs")}
    del found["bare"]["metadata"]["ownerReferences"]
    (reference,) = found["other"]["metadata"]["ownerReferences"]
    reference["name"] = "x-decode-r2-6d5f7c9b8"
    (reference,) = found["not-theirs"]["metadata"]["ownerReferences"]
    reference["controller"] = False
    return found


@pytest.mark.parametrize("role", names.SERVING_ROLES)
def test_a_pod_that_poses_as_one_of_the_revision_is_no_pod_of_it(pods: Pods, discovery: Discovery, role: Role) -> None:
    for stranger in strangers().values():
        stranger["metadata"]["labels"][names.LABEL_ROLE] = role
        discovery.take("ADDED", stranger)
        discovery.take("MODIFIED", stranger)
    assert (list(pods), pods.routers) == ([], 1)


@pytest.mark.parametrize("role", names.SERVING_ROLES)
def test_a_pod_counts_while_its_workload_has_it(pods: Pods, discovery: Discovery, role: Role) -> None:
    """A workload gives a pod up if its labels are edited, or if it is deleted without its pods; a new one adopts it."""
    discovery.take("ADDED", body(("router", {}), uid="r1", role=Role.ROUTER))
    found = body(("vllm", {"http": 8000}), ready=("vllm",), role=role)
    references = found["metadata"].pop("ownerReferences")
    for owned_by, count in ((references, 1), ([], 0), (references, 1)):
        found["metadata"]["ownerReferences"] = owned_by
        discovery.take("MODIFIED", found)
        assert len(list(pods)) + pods.routers - 1 == count


def test_an_error_ends_the_watch(discovery: Discovery) -> None:
    with pytest.raises(WatchEndedError, match="too old"):
        discovery.take("ERROR", {"message": "too old"})


def further_node(uid: str, ip: str, ordinal: str = "0") -> dict[str, Any]:
    """A pod of the second nodes of P instances."""
    found = body(("vllm", {}), uid=uid, ip=ip)
    labels = (
        names.role_selector("x", P, "r1")
        | names.node_labels(names.Role.PARAMETER, 1)
        | {names.LABEL_POD_INDEX: ordinal}
    )
    found["metadata"] = owned({"uid": uid, "name": f"x-node1-{ordinal}", "labels": labels})
    return found


def test_p_has_the_addresses_of_the_further_nodes_of_its_own_instance(pods: Pods, discovery: Discovery) -> None:
    """They are no engines: their ranks get requests through the first node."""
    first = body(("vllm", {"http": 8000}), ready=("vllm",), role=P)
    first["metadata"]["name"] = "x-parameter-r1-0"
    discovery.take("ADDED", first)
    discovery.take("ADDED", further_node("n0", ip=""))
    discovery.take("ADDED", further_node("n1", ip="10.0.0.9", ordinal="1"))
    assert [pod.observed.further_hosts for pod in pods] == [()]
    discovery.take("MODIFIED", further_node("n0", ip="10.0.0.2"))
    assert [pod.observed.further_hosts for pod in pods] == [("10.0.0.2",)]
    evicted = further_node("n0", ip="10.0.0.2")
    evicted["status"]["phase"] = "Failed"
    discovery.take("MODIFIED", evicted)
    assert [pod.observed.further_hosts for pod in pods] == [()], "another pod may have its address"
    discovery.take("MODIFIED", further_node("n0", ip="10.0.0.2"))
    assert [pod.observed.further_hosts for pod in pods] == [("10.0.0.2",)]
    discovery.take("DELETED", further_node("n0", ip="10.0.0.2"))
    assert [pod.observed.further_hosts for pod in pods] == [()]


def test_each_rank_of_p_has_the_addresses_of_all_nodes(pods: Pods) -> None:
    discovery = Discovery(pods, "team", "x", "r1", {P: 2})
    first = body(("vllm", {"http": 8000}), ready=("vllm",), role=P)
    first["metadata"]["name"] = "x-parameter-r1-0"
    discovery.take("ADDED", first)
    discovery.take("ADDED", further_node("n0", ip="10.0.0.2"))
    assert [pod.observed.further_hosts for pod in pods] == [("10.0.0.2",)] * 2


def test_a_pod_with_the_labels_of_a_further_node_alone_is_none(pods: Pods, discovery: Discovery) -> None:
    first = body(("vllm", {"http": 8000}), ready=("vllm",), role=P)
    first["metadata"]["name"] = "x-parameter-r1-0"
    discovery.take("ADDED", first)
    foreign = further_node("n0", ip="10.6.6.6")
    foreign["metadata"]["ownerReferences"] = []
    discovery.take("ADDED", foreign)
    assert [pod.observed.further_hosts for pod in pods] == [()]
