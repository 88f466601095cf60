"""The condition ClientsAuthenticated: whether clients outside the cluster need an API key."""

from typing import Final

from pdinference.api.v1alpha1 import Spec
from pdinference.planning.condition_changes import ConditionResult

NO_API_KEYS: Final = (
    "Clients outside the cluster can send requests without an API key. Set spec.router.apiKeys, or use a Service of "
    "type ClusterIP without a route and admit only clients in the cluster."
)


def clients_authenticated(spec: Spec) -> ConditionResult | None:
    """Whether clients outside the cluster need an API key; None while the router is not exposed to them."""
    field = exposed_by(spec)
    if field is None:
        return None
    if spec.router.api_keys is None:
        return ConditionResult("False", "NoApiKeys", f"{field}: {NO_API_KEYS}")
    return ConditionResult("True", "ApiKeys", f"Clients outside the cluster ({field}) need an API key.")


def exposed_by(spec: Spec) -> str | None:
    """The field that exposes the router to clients outside the cluster; None if none does."""
    if spec.router.service.type != "ClusterIP":
        return "spec.router.service.type"
    if spec.router.admits_every_address:
        return "spec.router.clients"
    return "spec.router.route" if spec.router.route is not None else None
