"""The condition ClientsAuthenticated: present while clients outside the cluster reach the router."""

from collections.abc import Callable
from typing import Any

import pytest

from pdinference.api.v1alpha1 import PDInference
from pdinference.planning.exposure import clients_authenticated, exposed_by

Make = Callable[..., PDInference]
Json = dict[str, Any]

KEYS = {"apiKeys": {"secretName": "clients"}}
SERVICE, CLIENTS = "spec.router.service.type", "spec.router.clients"


def ranges(*cidrs: str) -> Json:
    return {"clients": [{"cidr": cidr} for cidr in cidrs]}


EXPOSED = [
    ({"service": {"type": "LoadBalancer"}}, SERVICE),
    ({"service": {"type": "NodePort"}}, SERVICE),
    ({"service": {"type": "LoadBalancer"}, "clients": []}, SERVICE),
    ({"route": {"parentRefs": [{"name": "public"}]}, "clients": [{"namespace": "gateway"}]}, "spec.router.route"),
    (ranges("0.0.0.0/0"), CLIENTS),
    (ranges("::/0"), CLIENTS),
    (ranges("10.0.0.0/8", "0.0.0.0/0"), CLIENTS),
    (ranges("0.0.0.0/1", "128.0.0.0/1"), CLIENTS),
    (ranges("::/1", "8000::/2", "c000::/2"), CLIENTS),
]
INSIDE = [
    {},
    {"clients": []},
    {"clients": [{"namespace": "gateway"}]},
    ranges("10.0.0.0/8", "fd00::/8"),
    ranges("0.0.0.0/1", "8000::/1"),
]


@pytest.mark.parametrize(("router", "field"), EXPOSED, ids=str)
def test_clients_outside_without_keys_make_it_false(resource: Make, router: Json, field: str) -> None:
    spec = resource(router=router).spec
    found = clients_authenticated(spec)
    assert exposed_by(spec) == field
    assert found is not None
    assert found[:2] == ("False", "NoApiKeys")
    assert found.message.startswith(f"{field}: ")
    assert "Set spec.router.apiKeys" in found.message


@pytest.mark.parametrize(("router", "field"), EXPOSED, ids=str)
def test_keys_make_it_true(resource: Make, router: Json, field: str) -> None:
    found = clients_authenticated(resource(router=router | KEYS).spec)
    assert found is not None
    assert found[:2] == ("True", "ApiKeys")
    assert field in found.message


@pytest.mark.parametrize("router", INSIDE, ids=str)
@pytest.mark.parametrize("keys", [{}, KEYS], ids=["no keys", "keys"])
def test_it_is_absent_while_only_the_cluster_reaches_the_router(resource: Make, router: Json, keys: Json) -> None:
    assert clients_authenticated(resource(router=router | keys).spec) is None
