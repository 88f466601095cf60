"""`spec.router.route`: what is accepted, and the field that is named otherwise. The API server: tests/integration."""

from collections.abc import Callable
from typing import Any

import pytest

from pdinference.api.validation import InvalidResourceError, validated
from tests.api.routes import EVERY_FIELD, RIGHT_ROUTES, WRONG_ROUTES, routed

Make = Callable[..., dict[str, Any]]


@pytest.mark.parametrize("route", RIGHT_ROUTES)
def test_each_form_is_accepted(document: Make, route: dict[str, Any]) -> None:
    assert validated(document(**routed(**route))).spec.router.route is not None


@pytest.mark.parametrize(("route", "field"), WRONG_ROUTES)
def test_what_is_wrong_is_refused_by_the_name_of_its_field(document: Make, route: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidResourceError) as caught:
        validated(document(**routed(**route)))
    assert [problem.field for problem in caught.value.problems] == [f"spec.router.route{field}"]


def test_a_parent_is_a_gateway_unless_it_says_otherwise(document: Make) -> None:
    route = validated(document(**routed(**EVERY_FIELD))).spec.router.route
    assert route is not None
    assert {(parent.group, parent.kind) for parent in route.parent_refs} == {("gateway.networking.k8s.io", "Gateway")}


def test_without_a_route_there_is_none(document: Make) -> None:
    assert validated(document()).spec.router.route is None
