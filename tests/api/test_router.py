"""`spec.router`: what follows from its fields."""

from typing import Any

import pytest

from pdinference.api.v1alpha1.router import Router


@pytest.mark.parametrize(
    ("spec", "url"),
    [
        ({}, "http://x.ns.svc"),
        ({"service": {"port": 80}}, "http://x.ns.svc"),
        ({"service": {"port": 443}}, "http://x.ns.svc:443"),
        ({"tls": {"secretName": "a"}}, "https://x.ns.svc"),
        ({"tls": {"secretName": "a"}, "service": {"port": 443}}, "https://x.ns.svc"),
        ({"tls": {"secretName": "a"}, "service": {"port": 80}}, "https://x.ns.svc:80"),
    ],
)
def test_the_url_has_the_port_unless_it_is_that_of_the_scheme(spec: dict[str, Any], url: str) -> None:
    assert Router.model_validate(spec).url("ns", "x") == url
