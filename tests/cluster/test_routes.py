"""What the record of an HTTPRoute has of its status."""

from typing import Any

from pdinference.cluster.cache import Cache
from pdinference.cluster.kinds import HTTP_ROUTE, ChildKey
from pdinference.cluster.state.routes import route_parents
from pdinference.planning.observed import ObservedCondition, RouteParent
from tests.cluster.objects import OWNER, Json, live, manifest

PUBLIC: Json = {"group": "gateway.networking.k8s.io", "kind": "Gateway", "namespace": "infra", "name": "public"}
OWN: Json = {"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "public"}
ACCEPTED = ObservedCondition("True", "Accepted")
RESOLVED = ObservedCondition("True", "ResolvedRefs")


def route(*parents: Json, status: list[Json] | None = None, generation: int = 2, version: int = 1) -> Json:
    """An HTTPRoute with these parents."""
    body = live(manifest("HTTPRoute", parentRefs=list(parents)), version=version, parents=status or [])
    return {**body, "metadata": {**body["metadata"], "generation": generation}}


def entry(parent: Json, *conditions: Json, controller: str = "example.com/a") -> Json:
    return {"parentRef": parent, "controllerName": controller, "conditions": list(conditions)}


def condition(type_: str, status: str = "True", reason: str = "", message: str = "m", **more: Any) -> Json:
    return {
        "type": type_,
        "status": status,
        "reason": reason or type_,
        "message": message,
        "observedGeneration": 2,
        **more,
    }


def test_a_route_without_a_status_has_parents_without_verdicts() -> None:
    assert route_parents(route(PUBLIC)) == (RouteParent(("Gateway", "infra", "public")),)


def test_the_namespace_of_a_parent_is_that_of_the_route_by_default() -> None:
    found = route_parents(route(OWN, status=[entry({**OWN, "namespace": "ns"}, condition("Accepted"))]))
    assert found == (RouteParent(("Gateway", "ns", "public"), accepted=ACCEPTED),)


def test_each_parent_has_the_conditions_of_its_own_entry() -> None:
    https, http = ({**PUBLIC, "sectionName": name} for name in ("https", "http"))
    status = [
        entry(http, condition("Accepted", "False", "NotAllowedByListeners", "not here"), condition("ResolvedRefs")),
        entry(https, condition("Accepted"), condition("ResolvedRefs"), condition("Programmed", "False")),
        entry({**PUBLIC, "sectionName": "other"}, condition("Accepted", "False")),
    ]
    assert route_parents(route(https, http, status=status)) == (
        RouteParent(("Gateway", "infra", "public"), "https", ACCEPTED, RESOLVED),
        RouteParent(
            ("Gateway", "infra", "public"),
            "http",
            ObservedCondition("False", "NotAllowedByListeners", "not here"),
            RESOLVED,
        ),
    )


def test_what_was_said_of_an_earlier_spec_does_not_count() -> None:
    status = [entry(PUBLIC, condition("Accepted", observedGeneration=1), condition("ResolvedRefs"))]
    (parent,) = route_parents(route(PUBLIC, status=status))
    assert (parent.accepted, parent.resolved) == (None, RESOLVED)


def test_of_several_controllers_the_worst_verdict_counts() -> None:
    status = [
        entry(PUBLIC, condition("Accepted")),
        entry(PUBLIC, condition("Accepted", "False", "NoMatchingParent"), controller="example.com/b"),
        entry(PUBLIC, condition("Accepted", "Unknown", "Pending"), controller="example.com/c"),
    ]
    (parent,) = route_parents(route(PUBLIC, status=status))
    assert parent.accepted == ObservedCondition("False", "NoMatchingParent", "m")


def test_words_of_controllers_are_bounded() -> None:
    text = "a\u202e\n" * 10_000
    status = [entry(PUBLIC, condition("Accepted", "False", "not camel case", text))]
    (parent,) = route_parents(route(PUBLIC, status=status))
    assert parent.accepted is not None
    assert parent.accepted.reason == "NotAccepted"
    assert len(parent.accepted.message) <= 300
    assert parent.accepted.message.isprintable()


def test_a_new_verdict_starts_a_reconcile_and_the_same_one_again_does_not() -> None:
    cache = Cache()
    assert cache.observe(HTTP_ROUTE, route(PUBLIC), deleted=False) == {OWNER}
    status = [entry(PUBLIC, condition("Accepted"))]
    assert cache.observe(HTTP_ROUTE, route(PUBLIC, status=status, version=2), deleted=False) == {OWNER}
    again = [entry(PUBLIC, condition("Accepted", lastTransitionTime="2026-11-22T12:00:00Z"))]
    assert cache.observe(HTTP_ROUTE, route(PUBLIC, status=again, version=3), deleted=False) == set()
    record = cache.children.get(ChildKey("HTTPRoute", "ns", "llama"))
    assert record is not None
    assert [parent.accepted for parent in record.route] == [ACCEPTED]
