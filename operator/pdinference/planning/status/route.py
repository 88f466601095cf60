"""The condition RouteAccepted: whether the Gateways accept the HTTPRoute.

Tests: tests/planning/test_route_accepted.py
"""

from pdinference.planning.condition_changes import ConditionResult
from pdinference.planning.observed import ObservedCondition, RouteParent
from pdinference.planning.status.inputs import StatusInputs

_KIND = "HTTPRoute"


def route_accepted(inputs: StatusInputs) -> ConditionResult | None:
    """Whether all parents accept the HTTPRoute and find its Service; None without `router.route`."""
    if inputs.route is None:
        return None
    failed = [failure for failure in inputs.failures if failure.kind == _KIND and not failure.transient]
    if failed:
        return ConditionResult("False", failed[0].reason, str(failed[0]))
    if not inputs.route:
        return ConditionResult("Unknown", "Pending", "The HTTPRoute does not exist yet.")
    refused = [(parent, verdict) for parent in inputs.route if (verdict := _refusal(parent)) is not None]
    if refused:
        message = " ".join(
            f"{_name(parent)}: {verdict.message.removesuffix('.') or verdict.reason}." for parent, verdict in refused
        )
        return ConditionResult("False", refused[0][1].reason, message)
    pending = [parent for parent in inputs.route if not _accepts(parent)]
    if pending:
        return ConditionResult("Unknown", "Pending", " ".join(map(_waits, pending)))
    names = ", ".join(map(_name, inputs.route))
    return ConditionResult("True", "Accepted", f"The HTTPRoute is accepted by {names}.")


def _refusal(parent: RouteParent) -> ObservedCondition | None:
    verdicts = (parent.accepted, parent.resolved)
    return next((verdict for verdict in verdicts if verdict is not None and verdict.status == "False"), None)


def _accepts(parent: RouteParent) -> bool:
    return all(verdict is not None and verdict.status == "True" for verdict in (parent.accepted, parent.resolved))


def _name(parent: RouteParent) -> str:
    kind, namespace, name = parent.reference
    listener = f" (listener {parent.listener})" if parent.listener else ""
    return f"{kind} {namespace}/{name}{listener}"


def _waits(parent: RouteParent) -> str:
    kind, namespace, name = parent.reference
    return (
        f"{_name(parent)} has not reported on the HTTPRoute. If this takes long, check that it exists and has a "
        f"controller: `kubectl get -n {namespace} {kind.lower()} {name}`."
    )
