"""The HTTPRoute to the router's Service."""

from collections.abc import Callable
from typing import Any

import pytest

from pdinference.api.v1alpha1 import PDInference
from tests.api.routes import EVERY_FIELD, PUBLIC, routed
from tests.manifests.rendering import children

Make = Callable[..., dict[str, Any]]
KEY = ("HTTPRoute", "llama")


def spec_of_route(document: dict[str, Any]) -> dict[str, Any]:
    spec: dict[str, Any] = children(PDInference.model_validate(document))[KEY]["spec"]
    return spec


def test_there_is_none_without_the_field(document: Make) -> None:
    assert KEY not in children(PDInference.model_validate(document()))


def test_it_sends_all_paths_to_the_service(document: Make) -> None:
    """The router has its own list of paths, and refuses all others."""
    assert spec_of_route(document(**routed())) == {
        "parentRefs": [{"group": "gateway.networking.k8s.io", "kind": "Gateway", **PUBLIC}],
        "rules": [
            {
                "matches": [{"path": {"type": "PathPrefix", "value": "/"}}],
                "backendRefs": [{"group": "", "kind": "Service", "name": "llama", "port": 80, "weight": 1}],
            }
        ],
    }


def test_it_has_what_the_fields_say(document: Make) -> None:
    spec = spec_of_route(document(**routed(**EVERY_FIELD)))
    gateway = {"group": "gateway.networking.k8s.io", "kind": "Gateway"}
    assert spec["parentRefs"] == [{**gateway, **parent} for parent in EVERY_FIELD["parentRefs"]]
    assert spec["hostnames"] == EVERY_FIELD["hostnames"]
    assert spec["rules"][0]["timeouts"] == EVERY_FIELD["timeouts"]


def test_with_a_header_it_takes_requests_for_the_model_and_its_adapters_alone(document: Make) -> None:
    model = {"source": {"path": "/models/llama"}, "name": "org/llama:1"}
    adapters = [{"name": f"a{number}", "path": f"/adapters/{number}"} for number in range(64)]
    route = routed(modelHeader="X-Gateway-Model-Name", timeouts={"request": "0s"})

    def values(**model: Any) -> list[list[str]]:
        rules = spec_of_route(document(**route, model=model))["rules"]
        assert all(rule["timeouts"] == {"request": "0s"} and len(rule["backendRefs"]) == 1 for rule in rules)
        return [[match["headers"][0]["value"] for match in rule["matches"]] for rule in rules]

    assert spec_of_route(document(**route, model=model))["rules"][0]["matches"] == [
        {
            "path": {"type": "PathPrefix", "value": "/"},
            "headers": [{"type": "Exact", "name": "X-Gateway-Model-Name", "value": "org/llama:1"}],
        }
    ]
    assert values(source=model["source"]) == [["llama"]]
    # A rule has at most 64 matches.
    assert values(**model, lora={"adapters": adapters}) == [
        ["org/llama:1", *(adapter["name"] for adapter in adapters[:63])],
        ["a63"],
    ]


@pytest.mark.parametrize(
    ("router", "port"),
    [
        ({"service": {"port": 8080}}, 8080),
        ({"tls": {"secretName": "certificate"}}, 443),
        ({"tls": {"secretName": "certificate"}, "service": {"port": 8443}}, 8443),
    ],
)
def test_its_backend_has_the_port_of_the_service(document: Make, router: dict[str, Any], port: int) -> None:
    made = document(router={**routed()["router"], **router})
    (backend,) = spec_of_route(made)["rules"][0]["backendRefs"]
    (of_service,) = children(PDInference.model_validate(made))["Service", "llama"]["spec"]["ports"]
    assert backend["port"] == of_service["port"] == port


def test_it_changes_no_pod(document: Make) -> None:
    before = children(PDInference.model_validate(document()))
    after = children(PDInference.model_validate(document(**routed())))
    assert {key for key in after if after[key] != before.get(key)} == {KEY, ("NetworkPolicy", "llama-router")}
    assert before.keys() < after.keys()
