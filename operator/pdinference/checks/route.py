"""Warnings about the route from a Gateway to the router.

Tests: tests/checks/test_risks.py
"""

from collections.abc import Iterator

from pdinference.api.v1alpha1.router import Router
from pdinference.api.validation import Problem


def route_warnings(router: Router) -> Iterator[Problem]:
    """What a route needs that the operator does not create."""
    if router.route is not None and router.tls is not None:
        yield Problem(
            "spec.router.route",
            "With spec.router.tls the Gateway has to connect to the router by TLS. Create a BackendTLSPolicy for the "
            "Service of this PDInference; the operator does not.",
        )
