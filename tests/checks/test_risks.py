"""Warnings about clients outside the cluster."""

from collections.abc import Callable
from typing import Any

import pytest

from pdinference.checks.examine import examine
from pdinference.manifests import RenderSettings

Make = Callable[..., dict[str, Any]]
Json = dict[str, Any]

KEYS = {"apiKeys": {"secretName": "clients"}}
TLS = {"tls": {"secretName": "certificate"}}
PINNED = {"accelerator": {"products": ["NVIDIA-H200"]}}
ROUTE = {"route": {"parentRefs": [{"name": "public"}]}}
OPEN = {"clients": [{"cidr": "0.0.0.0/0"}]}


def warnings(document: Make, router: Json) -> dict[str, str]:
    found = examine(document(parameter=PINNED, router=router, transfer={"path": "Network"}), RenderSettings())
    assert not found.problems
    return {warning.field: warning.message for warning in found.warnings}


@pytest.mark.parametrize("kind", ["NodePort", "LoadBalancer"])
def test_a_service_for_everyone_needs_keys_and_keys_need_tls(document: Make, kind: str) -> None:
    service = {"service": {"type": kind}}
    (field,) = without_keys = warnings(document, service)
    assert field == "spec.router.service.type"
    assert "Set spec.router.apiKeys" in without_keys[field]
    (field,) = without_tls = warnings(document, service | KEYS)
    assert field == "spec.router.tls"
    assert f"unencrypted to a Service of type {kind}" in without_tls[field]
    assert not warnings(document, service | KEYS | TLS)


def test_tls_does_not_replace_keys(document: Make) -> None:
    assert warnings(document, {"service": {"type": "LoadBalancer"}} | TLS).keys() == {"spec.router.service.type"}


def test_every_address_as_a_client_needs_keys(document: Make) -> None:
    assert warnings(document, OPEN).keys() == {"spec.router.clients"}
    assert not warnings(document, OPEN | KEYS), "TLS may end at a load balancer of the cluster's owner"


@pytest.mark.parametrize("router", [{}, KEYS, {"clients": []}, {"clients": [{"cidr": "10.0.0.0/8"}]}], ids=str)
def test_clients_in_the_cluster_need_none(document: Make, router: Json) -> None:
    assert not warnings(document, router)


@pytest.mark.parametrize(
    ("role", "parallelism", "remedy"),
    [
        ("parameter", {"tensor": 16}, "16 GPUs of one host, and few hosts have more than 8"),
        ("parameter", {"data": 16, "expert": True}, "Set nodes: 2."),
        ("parameter", {"tensor": 2, "data": 16, "nodes": 2, "expert": True}, "Set nodes: 4."),
        ("parameter", {"data": 16}, "set expert: true and nodes: 2."),
        ("parameter", {"data": 11, "expert": True}, "Set nodes: 11."),
        ("parameter", {"data": 17, "expert": True}, "Lower it."),
        ("decode", {"data": 16, "expert": True}, "Set nodes: 2."),
        ("decode", {"tensor": 16}, "Lower it."),
    ],
)
def test_no_pod_needs_more_gpus_than_a_host_has(document: Make, role: str, parallelism: Json, remedy: str) -> None:
    tensor = parallelism.get("tensor", 1)
    roles: dict[str, Json] = {"parameter": PINNED | {"parallelism": {"tensor": tensor}}}
    roles["decode"] = {"parallelism": {"tensor": tensor}}
    roles[role] |= {"parallelism": parallelism}
    found = examine(document(**roles, transfer={"path": "Network"}), RenderSettings())
    assert not found.problems
    assert remedy in {one.field: one.message for one in found.warnings}[f"spec.{role}.parallelism"]


def test_the_pod_of_both_roles_may_be_too_large(document: Make) -> None:
    transfer = {"hostLocal": {"parameter": 4, "decode": 6}}
    found = examine(document(parameter=PINNED, transfer=transfer), RenderSettings())
    assert "needs 10 GPUs" in {one.field: one.message for one in found.warnings}["spec.transfer.hostLocal"]


def test_slices_of_gpus_may_be_more_than_a_host_has_gpus(document: Make) -> None:
    slices = {"accelerator": {"resourceName": "nvidia.com/mig-1g.10gb"}, "parallelism": {"data": 14}}
    found = examine(document(parameter=slices, decode=slices, transfer={"path": "Network"}), RenderSettings())
    assert not [one for one in found.warnings if "parallelism" in one.field]


@pytest.mark.parametrize("parallelism", [{"tensor": 8}, {"data": 16, "nodes": 2, "expert": True}])
def test_eight_gpus_of_a_host_are_none_too_many(document: Make, parallelism: Json) -> None:
    roles = {"parameter": PINNED | {"parallelism": parallelism}, "decode": {"parallelism": {"tensor": 8}}}
    assert not examine(document(**roles, transfer={"path": "Network"}), RenderSettings()).warnings


def test_a_route_needs_keys_and_with_tls_a_policy(document: Make) -> None:
    assert warnings(document, ROUTE).keys() == {"spec.router.route"}
    assert "apiKeys" in warnings(document, ROUTE)["spec.router.route"]
    assert not warnings(document, ROUTE | KEYS)
    assert "BackendTLSPolicy" in warnings(document, ROUTE | KEYS | TLS)["spec.router.route"]
    assert not warnings(document, KEYS | TLS)


def test_fields_without_effect_are_named(document: Make) -> None:
    spec = {"parameter": {"replicas": 3}, "transfer": {"onFailure": "Fail"}, "router": {"whenNoPrefill": "Wait"}}
    found = examine(document(**spec, mode="Aggregated"), RenderSettings()).warnings
    (warning,) = (one for one in found if one.field == "spec.mode")
    assert ": spec.parameter, spec.transfer, spec.router.whenNoPrefill. " in warning.message
    assert not examine(document(mode="Aggregated"), RenderSettings()).warnings


@pytest.mark.parametrize(
    ("parameter", "decode", "named"),
    [
        (
            {},
            {"tool-call-parser": "hermes", "enable-auto-tool-choice": True},
            "enable-auto-tool-choice, tool-call-parser",
        ),
        ({"tool-call-parser": "mistral"}, {"tool-call-parser": "hermes"}, "tool-call-parser"),
        ({"tool-call-parser": "hermes", "max-log-len": 9}, {"tool-call-parser": "hermes"}, ""),
    ],
)
def test_p_answers_with_its_own_options(document: Make, parameter: Json, decode: Json, named: str) -> None:
    def found(router: Json) -> str:
        made = document(
            parameter={**PINNED, "args": parameter},
            decode={"args": decode},
            router=router,
            transfer={"path": "Network"},
        )
        examined = examine(made, RenderSettings())
        assert not examined.problems
        return "".join(one.message for one in examined.warnings if one.field == "spec.router.disaggregation")

    message = found({"disaggregation": "Adaptive"})
    assert f"missing or different: {named}." in message if named else not message
    assert not found({})


@pytest.mark.parametrize(
    ("eager", "mode", "warned"),
    [
        ({"parameter": True}, "Adaptive", {"parameter"}),
        ({"decode": True}, "Adaptive", {"decode"}),
        ({"engine": True}, "Adaptive", {"engine"}),
        ({"engine": True, "parameter": False, "decode": False}, "Adaptive", set()),
        ({"parameter": True, "decode": True}, "Always", set()),
    ],
)
def test_short_steps_need_cuda_graphs(document: Make, eager: dict[str, bool], mode: str, warned: set[str]) -> None:
    roles = {name: {**PINNED, "enforceEager": eager[name]} for name in ("parameter", "decode") if name in eager}
    engine = {"engine": {"enforceEager": True}} if "engine" in eager else {}
    made = document(**roles, **engine, router={"disaggregation": mode}, transfer={"path": "Network"})
    found = examine(made, RenderSettings())
    assert not found.problems
    fields = {warning.field for warning in found.warnings if warning.field.endswith(".enforceEager")}
    assert fields == {f"spec.{name}.enforceEager" for name in warned}
