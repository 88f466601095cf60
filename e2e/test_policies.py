"""NetworkPolicies on nodes that enforce them: who can connect to which port of the pods. All of e2e runs like this."""

import json
from collections.abc import Hashable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import pytest

from e2e.conftest import NAME, Serving
from e2e.install import OPERATOR_NAMESPACE, RELEASE, apply
from e2e.kubectl import Kubectl
from e2e.requests import complete
from e2e.transfer import transfer
from e2e.waiting import wait_until
from pdinference.api import names
from pdinference.api.names import ENGINE_PORT, LABEL_NAME, LABEL_ROLE, ROUTER_PORT, ROUTER_STATE_PORT, Role
from pdinference.engine.connectors.registry import CONNECTORS

pytestmark = pytest.mark.timeout(2400)

Key = TypeVar("Key", bound=Hashable)
Way = tuple[Kubectl, str, dict[str, Any], int]
"""From a pod, by its name, to a port of another pod."""

SIDE_CHANNEL_PORT = CONNECTORS["Nixl"].ports(Role.PARAMETER)[0].number
STRANGERS = "strangers"
_HTTP_PORT = 8080
"""Of the operator: metrics and probes."""
_CONNECT = """
import socket, sys
try:
    socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=4).close()
except TimeoutError:
    print("dropped")
except ConnectionRefusedError:
    print("nothing listens")
else:
    print("connected")
"""
"""The agent that enforces the policies drops packets; a port without a listener answers at once."""


def pod(name: str, image: str, labels: dict[str, str]) -> dict[str, Any]:
    """A pod that does nothing until it is used."""
    container = {
        "name": "idle",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["python3", "-c", "import signal; signal.pause()"],
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    spec = {
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 0,
        "securityContext": {"runAsNonRoot": True, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [container],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels}, "spec": spec}


@pytest.fixture(scope="module")
def elsewhere(serving: Serving) -> Iterator[Kubectl]:
    """Another namespace, with a stranger and a pod that has the labels of the router."""
    found = Kubectl(serving.cluster.kubeconfig, STRANGERS)
    apply(found, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": STRANGERS}})
    started(found, pod("stranger", serving.images.operator, {"app": "stranger"}))
    started(found, pod("impostor", serving.images.operator, names.role_selector(NAME, Role.ROUTER)))
    yield found
    found.run("delete", "namespace", STRANGERS, "--wait=false")


@pytest.fixture(scope="module")
def stranger(serving: Serving) -> Iterator[str]:
    """A pod of the same namespace that has no part in serving."""
    started(serving.kubectl, pod("stranger", serving.images.operator, {"app": "stranger"}))
    yield "stranger"
    serving.kubectl.run("delete", "pod", "stranger", "--wait=false")


@pytest.fixture(scope="module")
def runner(serving: Serving) -> Iterator[None]:
    """A pod with the labels of a batch's runner."""
    started(serving.kubectl, pod("runner", serving.images.operator, names.batch_labels("job")))
    yield
    serving.kubectl.run("delete", "pod", "runner", "--wait=false")


def started(kubectl: Kubectl, document: dict[str, Any]) -> None:
    apply(kubectl, document)
    name = document["metadata"]["name"]
    kubectl.run("wait", f"pod/{name}", "--for=condition=Ready", "--timeout=180s", timeout=190)


def one(kubectl: Kubectl, selector: str) -> dict[str, Any]:
    """A pod that is not about to go."""
    found = kubectl.get("pods", "-l", selector)["items"]
    return next(item for item in found if "deletionTimestamp" not in item["metadata"])


def role(serving: Serving, role: Role) -> dict[str, Any]:
    return one(serving.kubectl, f"{LABEL_NAME}={NAME},{LABEL_ROLE}={role}")


def connects(kubectl: Kubectl, source: str, to: dict[str, Any], port: int) -> str:
    """What becomes of a connection from one pod to a port of another."""
    address = to["status"]["podIP"]
    return kubectl.run("exec", source, "--", "python3", "-c", _CONNECT, address, str(port)).strip()


def outcomes(ways: Mapping[Key, Way]) -> dict[Key, str]:
    """What becomes of several connections, tried at once: one that is dropped takes its whole timeout."""
    with ThreadPoolExecutor(len(ways)) as pool:
        return dict(zip(ways, pool.map(lambda way: connects(*way), ways.values()), strict=True))


def test_strangers_do_not_reach_vllm(serving: Serving, stranger: str, elsewhere: Kubectl) -> None:
    """Each port is one that another test connects to, so that it is the policy that keeps strangers out."""
    parameter, decode = role(serving, Role.PARAMETER), role(serving, Role.DECODE)
    sources = [(serving.kubectl, stranger), (elsewhere, "stranger"), (elsewhere, "impostor")]
    targets = {"P": (parameter, ENGINE_PORT), "P's KV": (parameter, SIDE_CHANNEL_PORT), "D": (decode, ENGINE_PORT)}
    found = outcomes(
        {
            f"{source} of {kubectl.namespace} to {target}": (kubectl, source, *way)
            for kubectl, source in sources
            for target, way in targets.items()
        }
    )
    assert found == dict.fromkeys(found, "dropped")


def test_pods_of_its_namespace_reach_the_router_by_default(serving: Serving, stranger: str, elsewhere: Kubectl) -> None:
    router = role(serving, Role.ROUTER)
    sources = [(serving.kubectl, stranger), (elsewhere, "stranger"), (elsewhere, "impostor")]
    found = outcomes(
        {
            (kubectl.namespace, source, port): (kubectl, source, router, port)
            for kubectl, source in sources
            for port in (ROUTER_PORT, ROUTER_STATE_PORT)
        }
    )
    admitted = (serving.kubectl.namespace, stranger, ROUTER_PORT)
    assert found == dict.fromkeys(found, "dropped") | {admitted: "connected"}


@pytest.mark.usefixtures("runner")
@pytest.mark.parametrize(
    ("clients", "admitted"),
    [
        ([], set()),
        ([{"podLabels": {"app": "stranger"}}], {"stranger here"}),
        ([{"namespace": STRANGERS, "podLabels": {"app": "stranger"}}], {"stranger elsewhere"}),
        ([{"namespace": STRANGERS}], {"stranger elsewhere", "impostor elsewhere"}),
    ],
    ids=["nobody", "labels", "namespace and labels", "namespace"],
)
def test_clients_and_runners_alone_reach_the_router_if_it_names_its_clients(
    serving: Serving, stranger: str, elsewhere: Kubectl, clients: list[dict[str, Any]], admitted: set[str]
) -> None:
    router = role(serving, Role.ROUTER)
    sources = {
        "stranger here": (serving.kubectl, stranger),
        "stranger elsewhere": (elsewhere, "stranger"),
        "impostor elsewhere": (elsewhere, "impostor"),
    }

    def connected() -> set[str]:
        found = outcomes({name: (kubectl, pod, router, ROUTER_PORT) for name, (kubectl, pod) in sources.items()})
        return {name for name, outcome in found.items() if outcome == "connected"}

    edit = {"spec": {"router": {"clients": clients}}}
    serving.kubectl.run("patch", "pdi", NAME, "--type=merge", "-p", json.dumps(edit))
    try:
        wait_until("exactly the clients to connect", lambda: connected() == admitted)
        assert connects(serving.kubectl, "runner", router, ROUTER_PORT) == "connected"
        assert role(serving, Role.ROUTER)["metadata"]["uid"] == router["metadata"]["uid"], "its pod did not restart"
    finally:
        serving.kubectl.run("patch", "pdi", NAME, "--type=merge", "-p", '{"spec": {"router": {"clients": null}}}')
    wait_until("the default to apply again", lambda: connected() == {"stranger here"})


def test_the_router_reaches_the_api_of_vllm_alone(serving: Serving) -> None:
    router = role(serving, Role.ROUTER)["metadata"]["name"]
    parameter, decode = role(serving, Role.PARAMETER), role(serving, Role.DECODE)
    found = outcomes(
        {
            "P": (serving.kubectl, router, parameter, ENGINE_PORT),
            "D": (serving.kubectl, router, decode, ENGINE_PORT),
            "P's KV": (serving.kubectl, router, parameter, SIDE_CHANNEL_PORT),
        }
    )
    assert found == {"P": "connected", "D": "connected", "P's KV": "dropped"}


def test_p_and_d_reach_each_other_on_every_port(serving: Serving) -> None:
    parameter, decode = role(serving, Role.PARAMETER), role(serving, Role.DECODE)
    decode_pod, parameter_pod = decode["metadata"]["name"], parameter["metadata"]["name"]
    assert connects(serving.kubectl, decode_pod, parameter, SIDE_CHANNEL_PORT) == "connected"
    assert connects(serving.kubectl, decode_pod, parameter, ENGINE_PORT) == "connected"
    assert connects(serving.kubectl, parameter_pod, decode, ENGINE_PORT) == "connected"
    assert connects(serving.kubectl, parameter_pod, decode, 9) == "nothing listens"


def test_the_operator_reads_metrics_and_reaches_no_other_port(serving: Serving) -> None:
    operator = Kubectl(serving.cluster.kubeconfig, OPERATOR_NAMESPACE)
    source = one(operator, f"app.kubernetes.io/instance={RELEASE}")["metadata"]["name"]
    parameter, decode, router = (role(serving, each) for each in (Role.PARAMETER, Role.DECODE, Role.ROUTER))
    found = outcomes(
        {
            "P": (operator, source, parameter, ENGINE_PORT),
            "P's KV": (operator, source, parameter, SIDE_CHANNEL_PORT),
            "D": (operator, source, decode, ENGINE_PORT),
            "router's state": (operator, source, router, ROUTER_STATE_PORT),
            "router": (operator, source, router, ROUTER_PORT),
        }
    )
    open_ones = ("P", "D", "router's state")
    assert found == dict.fromkeys(found, "dropped") | dict.fromkeys(open_ones, "connected")


def test_the_operator_is_reached_on_its_two_ports_alone(serving: Serving, stranger: str) -> None:
    operator = one(Kubectl(serving.cluster.kubeconfig, OPERATOR_NAMESPACE), f"app.kubernetes.io/instance={RELEASE}")
    found = outcomes(
        {port: (serving.kubectl, stranger, operator, port) for port in (_HTTP_PORT, names.OPERATOR_TLS_PORT, 9)}
    )
    assert found == {_HTTP_PORT: "connected", names.OPERATOR_TLS_PORT: "connected", 9: "dropped"}


def test_a_policy_that_allows_all_lets_strangers_in_while_it_exists(serving: Serving, stranger: str) -> None:
    """That strangers connect without it shows that it was the policy, and nothing else, that kept them out."""
    policy = f"networkpolicy/{NAME}-parameter"
    allow = {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": "everybody"},
        "spec": {"podSelector": {}, "policyTypes": ["Ingress"], "ingress": [{}]},
    }
    parameter = role(serving, Role.PARAMETER)
    apply(serving.kubectl, allow)
    try:
        wait_until(
            "a stranger to connect",
            lambda: connects(serving.kubectl, stranger, parameter, SIDE_CHANNEL_PORT) == "connected",
        )
    finally:
        serving.kubectl.run("delete", "networkpolicy", "everybody")
    serving.kubectl.run("delete", policy)
    wait_until(
        "the policy to be back and to be enforced",
        lambda: connects(serving.kubectl, stranger, parameter, SIDE_CHANNEL_PORT) == "dropped",
    )
    assert json.loads(serving.kubectl.run("get", policy, "-o", "json"))["spec"]["podSelector"]


def test_kv_cache_moves_while_policies_are_enforced(serving: Serving) -> None:
    before = transfer(serving.kubectl, NAME)
    with serving.kubectl.port_forward(f"service/{NAME}", 80) as url:
        complete(url, NAME, "policies are enforced " * 40, max_tokens=8)
    moved = transfer(serving.kubectl, NAME) - before
    assert moved.failed == 0
    assert moved.moved_to_decode == moved.queried_on_decode > 0
