"""State of an HTTPRoute: what the controllers of its parents say.

Tests: tests/cluster/test_routes.py
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from pdinference.planning.observed import ObservedCondition, RouteParent
from pdinference.planning.reported import plain, reason

Json = Mapping[str, Any]

_LONGEST_MESSAGE: Final = 300
_ORDER: Final = ("False", "Unknown", "True")


def route_parents(body: Json) -> tuple[RouteParent, ...]:
    """The parents in the spec of an HTTPRoute, with the conditions of its latest generation."""
    metadata, namespace = body["metadata"], body["metadata"]["namespace"]
    entries = (body.get("status") or {}).get("parents") or ()
    return tuple(
        _parent(reference, [entry for entry in entries if _key(entry["parentRef"], namespace) == key], metadata)
        for reference in body["spec"].get("parentRefs") or ()
        for key in [_key(reference, namespace)]
    )


def _parent(reference: Json, entries: list[Json], metadata: Json) -> RouteParent:
    generation = metadata.get("generation", 0)
    return RouteParent(
        (reference.get("kind", "Gateway"), reference.get("namespace", metadata["namespace"]), reference["name"]),
        listener=reference.get("sectionName", ""),
        accepted=_worst(entries, "Accepted", generation),
        resolved=_worst(entries, "ResolvedRefs", generation),
    )


def _key(reference: Json, namespace: str) -> tuple[object, ...]:
    """Identity of a parent reference. The API server fills in group and kind."""
    found = {"namespace": namespace, **reference}
    return tuple(found.get(member) for member in ("group", "kind", "namespace", "name", "sectionName", "port"))


def _worst(entries: list[Json], type_: str, generation: int) -> ObservedCondition | None:
    """The worst status that a controller gives; None without any. Several controllers may have an entry of a parent."""
    found = (verdict for entry in entries for verdict in _verdicts(entry, type_, generation))
    return min(found, key=lambda verdict: _ORDER.index(verdict.status), default=None)


def _verdicts(entry: Json, type_: str, generation: int) -> Iterator[ObservedCondition]:
    for condition in entry.get("conditions") or ():
        if condition["type"] == type_ and condition.get("observedGeneration", generation) == generation:
            holds = condition["status"] == "True"
            message = "" if holds else plain(condition.get("message"), _LONGEST_MESSAGE)
            yield ObservedCondition(condition["status"], reason(condition.get("reason"), "NotAccepted"), message)
