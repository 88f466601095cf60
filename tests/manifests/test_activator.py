"""The activator in front of the router, only for resources with scaleToZero."""

from collections.abc import Callable
from typing import Any

import pytest

from pdinference.api import names
from pdinference.api.v1alpha1 import PDInference
from pdinference.api.validation import InvalidResourceError, validated
from pdinference.manifests import RenderSettings, render

Make = Callable[..., PDInference]
SCALED = {"autoscaling": {"maxReplicas": 2}}
SLEEPY: dict[str, Any] = {
    "parameter": SCALED,
    "decode": SCALED,
    "autoscaling": {"scaleToZero": {"maxQueuedRequests": 7, "maxWaitSeconds": 9}},
}
SETTINGS = RenderSettings(model_image="registry.example/model:1", router_image="registry.example/router:1")


def router_pod(resource: PDInference) -> dict[str, Any]:
    found = {o["metadata"]["name"]: o for o in render(resource, SETTINGS).objects if o["kind"] == "Deployment"}[
        "llama-router"
    ]
    pod: dict[str, Any] = found["spec"]["template"]["spec"]
    return pod


def containers(resource: PDInference) -> dict[str, dict[str, Any]]:
    return {container["name"]: container for container in router_pod(resource)["containers"]}


def test_it_stands_where_clients_come_and_the_router_behind_it(resource: Make) -> None:
    found = containers(resource(**SLEEPY))
    router, activator = found[names.ROUTER_CONTAINER], found[names.ACTIVATOR_CONTAINER]
    assert {"name": "http", "containerPort": 8080, "protocol": "TCP"} in activator["ports"]
    assert "http" not in {port["name"] for port in router["ports"]}
    assert "--port=8081" in router["args"]
    assert "--router-port=8081" in activator["args"]
    assert {"--max-queued-requests=7", "--max-wait-seconds=9"} <= set(activator["args"])
    assert activator["image"] == "registry.example/model:1", "an upgrade of the operator alone restarts no router"


def test_it_says_when_the_pod_is_ready_and_each_when_it_lives(resource: Make) -> None:
    found = containers(resource(**SLEEPY))
    router, activator = found[names.ROUTER_CONTAINER], found[names.ACTIVATOR_CONTAINER]
    assert "readinessProbe" not in router
    assert router["livenessProbe"]["httpGet"] == {"path": "/liveness", "port": 8081}
    assert activator["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "activator"}
    assert activator["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": "activator"}


def test_it_keeps_to_the_restricted_standard(resource: Make) -> None:
    assert containers(resource(**SLEEPY))[names.ACTIVATOR_CONTAINER]["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


@pytest.mark.parametrize("stopped", ["parameter", "decode"])
def test_without_it_nothing_stands_in_front(resource: Make, stopped: str) -> None:
    assert containers(resource()).keys() == {names.ROUTER_CONTAINER}
    assert containers(resource(**{**SLEEPY, stopped: {**SCALED, "replicas": 0}})).keys() == {names.ROUTER_CONTAINER}


def test_pods_of_p_and_d_are_the_same_with_it(resource: Make) -> None:
    without = {key: value for key, value in SLEEPY.items() if key != "autoscaling"}
    assert render(resource(**SLEEPY), SETTINGS).revision == render(resource(**without), SETTINGS).revision


@pytest.mark.parametrize(
    ("edit", "says"),
    [
        ({"decode": {}}, "autoscaling in spec.parameter and spec.decode"),
        ({"parameter": {}}, "autoscaling in spec.parameter and spec.decode"),
        ({"router": {"replicas": 0}}, "spec.router.replicas to 1 or more"),
    ],
)
def test_scale_to_zero_without_its_requirements_is_rejected(document: Callable[..., Any], edit: Any, says: str) -> None:
    with pytest.raises(InvalidResourceError, match=says):
        validated(document(**{**SLEEPY, **edit}))


def test_an_overlay_cannot_take_it_over(document: Callable[..., Any]) -> None:
    overlay = {"podTemplate": {"spec": {"containers": [{"name": "activator", "image": "evil"}]}}}
    made = PDInference.model_validate(document(**SLEEPY, router=overlay))
    with pytest.raises(InvalidResourceError, match="image"):
        render(made, SETTINGS)
