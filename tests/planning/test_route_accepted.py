"""The condition RouteAccepted."""

from dataclasses import replace

import pytest

from pdinference.api.v1alpha1 import Condition
from pdinference.planning.observed import Failure, ObservedCondition, RouteParent
from tests.planning.statuses import SERVING, built, conditions

ACCEPTED, RESOLVED = ObservedCondition("True", "Accepted"), ObservedCondition("True", "ResolvedRefs")
PUBLIC = RouteParent(("Gateway", "infra", "public"), "https", ACCEPTED, RESOLVED)
OTHER = RouteParent(("Gateway", "ns", "other"), "", ACCEPTED, RESOLVED)
REFUSED = replace(
    OTHER, accepted=ObservedCondition("False", "NoMatchingListenerHostname", "No listener has this host name.")
)
UNRESOLVED = replace(OTHER, resolved=ObservedCondition("False", "BackendNotFound"))


def judged(*parents: RouteParent, failures: tuple[Failure, ...] = ()) -> Condition:
    return conditions(built(replace(SERVING, route=parents, failures=failures)))["RouteAccepted"]


def said(condition: Condition) -> tuple[str, str]:
    return condition.status, condition.reason


def test_it_is_absent_without_a_route() -> None:
    assert "RouteAccepted" not in conditions(built(SERVING))


def test_it_is_true_when_every_parent_accepts_and_resolves() -> None:
    found = judged(PUBLIC, OTHER)
    assert said(found) == ("True", "Accepted")
    assert found.message == "The HTTPRoute is accepted by Gateway infra/public (listener https), Gateway ns/other."


@pytest.mark.parametrize(
    ("parent", "reason", "message"),
    [
        (REFUSED, "NoMatchingListenerHostname", "Gateway ns/other: No listener has this host name."),
        (UNRESOLVED, "BackendNotFound", "Gateway ns/other: BackendNotFound."),
    ],
)
def test_it_is_false_in_the_words_of_the_parent_that_refuses(parent: RouteParent, reason: str, message: str) -> None:
    for parents in ((PUBLIC, parent), (replace(PUBLIC, accepted=None), parent)):
        found = judged(*parents)
        assert (said(found), found.message) == (("False", reason), message)


def test_every_parent_that_refuses_is_named() -> None:
    found = judged(REFUSED, replace(UNRESOLVED, reference=("Gateway", "infra", "b")))
    assert "Gateway ns/other: " in found.message
    assert "Gateway infra/b: " in found.message


@pytest.mark.parametrize(
    "parent",
    [
        RouteParent(OTHER.reference),
        replace(OTHER, accepted=None),
        replace(OTHER, resolved=None),
        replace(OTHER, accepted=ObservedCondition("Unknown", "Pending", "Waiting for controller")),
    ],
)
def test_it_is_unknown_while_a_parent_has_not_reported(parent: RouteParent) -> None:
    found = judged(PUBLIC, parent)
    assert said(found) == ("Unknown", "Pending")
    assert "`kubectl get -n ns gateway other`" in found.message
    assert "infra/public" not in found.message


def test_it_is_unknown_before_the_route_exists() -> None:
    assert said(judged()) == ("Unknown", "Pending")


def test_a_route_that_cannot_be_written_says_why() -> None:
    missing = Failure("HTTPRoute", "x", "NotServed", "this cluster does not serve gateway.networking.k8s.io/v1")
    found = judged(failures=(missing,))
    assert said(found) == ("False", "NotServed")
    assert "gateway.networking.k8s.io/v1" in found.message
    assert conditions(built(replace(SERVING, route=(), failures=(missing,))))["Ready"].status == "True"


def test_failures_of_other_children_and_passing_ones_do_not_concern_it() -> None:
    others = (
        Failure("Service", "x", "Forbidden", "no"),
        Failure("HTTPRoute", "x", "Timeout", "later", transient=True),
    )
    assert said(judged(PUBLIC, failures=others)) == ("True", "Accepted")


def test_long_words_are_cut() -> None:
    refusals = (replace(REFUSED, accepted=ObservedCondition("False", "Refused", "x" * 300)) for _ in range(8))
    assert len(judged(*refusals).message) <= 2000
