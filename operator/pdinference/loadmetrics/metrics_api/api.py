"""Handlers of the aggregated API `external.metrics.k8s.io/v1beta1`.

Tests: tests/loadmetrics/test_metrics_rights.py, tests/integration/test_metrics_api.py
"""

import logging
from collections.abc import Awaitable, Callable
from datetime import UTC
from typing import Any, Final, NoReturn

from aiohttp import web

from pdinference.api import names
from pdinference.api.names import Role
from pdinference.cluster.errors import ApiError
from pdinference.cluster.kinds import Owner
from pdinference.loadmetrics.loads import Loads
from pdinference.loadmetrics.metrics import ScrapeMetrics
from pdinference.loadmetrics.metrics_api.access import AccessChecker, AccessReview
from pdinference.loadmetrics.metrics_api.authentication import RequestHeaderAuthenticator
from pdinference.loadmetrics.metrics_api.group import API_VERSION, GROUP, VERSION
from pdinference.loadmetrics.policies import Policies
from pdinference.loadmetrics.signals import LoadUnavailableError
from pdinference.planning.scaling.gauges import selected_role
from pdinference.planning.scaling.signals import METRICS, WINDOW_SECONDS

_LOG = logging.getLogger(__name__)

_UNAUTHENTICATED: Final = "Only the API server may send requests. Use kubectl get --raw."

_Handler = Callable[[web.Request], Awaitable[web.Response]]


class _StatusError(Exception):
    """An error response in the form of metav1.Status."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.body = {
            "apiVersion": "v1",
            "kind": "Status",
            "metadata": {},
            "status": "Failure",
            "message": message,
            "reason": reason,
            "code": code,
        }
        self.code = code


class MetricsApi:
    """The handlers of the API."""

    def __init__(
        self,
        *,
        loads: Loads,
        policies: Policies,
        authenticator: RequestHeaderAuthenticator,
        access: AccessChecker,
        metrics: ScrapeMetrics,
    ) -> None:
        self._loads = loads
        self._policies = policies
        self._authenticator = authenticator
        self._access = access
        self._metrics = metrics

    def routes(self) -> list[web.RouteDef]:
        """The routes for the HTTPS server."""
        return [
            web.get("/apis", self._handler(self._groups)),
            web.get(f"/apis/{GROUP}", self._handler(self._group)),
            web.get(f"/apis/{API_VERSION}", self._handler(self._resources)),
            web.get(f"/apis/{API_VERSION}/namespaces/{{namespace}}/{{metric}}", self._handler(self._values)),
        ]

    def _handler(self, answer: Callable[[web.Request], Awaitable[dict[str, Any]]]) -> _Handler:
        async def handle(request: web.Request) -> web.Response:
            try:
                return web.json_response(await answer(request))
            except _StatusError as error:
                refusal = web.json_response(error.body, status=error.code)
                if error.code == 401:
                    # The connection may predate the request for client certificates; a new one has a certificate.
                    refusal.force_close()
                return refusal

        return handle

    async def _groups(self, request: web.Request) -> dict[str, Any]:
        return {"apiVersion": "v1", "kind": "APIGroupList", "groups": [await self._group(request)]}

    async def _group(self, request: web.Request) -> dict[str, Any]:
        self._require_authenticated(request)
        version = {"groupVersion": API_VERSION, "version": VERSION}
        return {
            "apiVersion": "v1",
            "kind": "APIGroup",
            "name": GROUP,
            "versions": [version],
            "preferredVersion": version,
        }

    async def _resources(self, request: web.Request) -> dict[str, Any]:
        self._require_authenticated(request)
        resources = [
            {"name": name, "singularName": "", "namespaced": True, "kind": "ExternalMetricValueList", "verbs": ["get"]}
            for name in METRICS
        ]
        return {"apiVersion": "v1", "kind": "APIResourceList", "groupVersion": API_VERSION, "resources": resources}

    async def _values(self, request: web.Request) -> dict[str, Any]:
        namespace, metric = request.match_info["namespace"], request.match_info["metric"]
        await self._require_right(request, namespace, metric)
        owner, role = self._selected(request, namespace)
        try:
            found = self._loads.measured(owner, role, metric)
        except LoadUnavailableError as error:
            self._metrics.queries.labels("blind").inc()
            # An error instead of a value, so that the HPA does not change the replica count.
            raise _StatusError(503, "ServiceUnavailable", f"{role} of {owner}: {error}") from None
        self._metrics.queries.labels("answered").inc()
        item = {
            "metricName": metric,
            "metricLabels": names.role_selector(owner.name, role),
            "timestamp": found.when.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
            "windowSeconds": WINDOW_SECONDS,
            "value": quantity(found.value),
        }
        return {"apiVersion": API_VERSION, "kind": "ExternalMetricValueList", "metadata": {}, "items": [item]}

    def _require_authenticated(self, request: web.Request) -> None:
        if self._authenticator.user(request) is None:
            self._refused(401, "Unauthorized", _UNAUTHENTICATED)

    async def _require_right(self, request: web.Request, namespace: str, metric: str) -> None:
        user = self._authenticator.user(request)
        if user is None:
            self._refused(401, "Unauthorized", _UNAUTHENTICATED)
        try:
            allowed = await self._access.allows(AccessReview(user, GROUP, metric, namespace))
        except ApiError as error:
            _LOG.warning("Cannot check whether %s may read metrics: %s", user.name, error)
            raise _StatusError(500, "InternalError", "The access check (SubjectAccessReview) failed.") from error
        if not allowed:
            message = f"User {user.name} cannot list {metric} in API group {GROUP} in the namespace {namespace}."
            self._refused(403, "Forbidden", message)

    def _refused(self, code: int, reason: str, message: str) -> NoReturn:
        self._metrics.queries.labels("refused").inc()
        raise _StatusError(code, reason, message)

    def _selected(self, request: web.Request, namespace: str) -> tuple[Owner, Role]:
        """The resource and role that the label selector selects."""
        metric, text = request.match_info["metric"], request.query.get("labelSelector", "")
        if metric not in METRICS:
            self._wrong(404, "NotFound", f"Unknown metric {metric}. Known metrics: {', '.join(METRICS)}.")
        labels = dict(part.partition("=")[::2] for part in text.replace("==", "=").split(",") if part)
        selected = selected_role(labels)
        if selected is None:
            example = f"{names.LABEL_NAME}=llama,{names.LABEL_ROLE}={Role.DECODE}"
            self._wrong(400, "BadRequest", f"Select one role of one PDInference by labels, for example {example}.")
        name, role = selected
        if not self._policies.policy(Owner(namespace, name)):
            self._wrong(404, "NotFound", f"No PDInference {namespace}/{name} with autoscaling found.")
        return Owner(namespace, name), role

    def _wrong(self, code: int, reason: str, message: str) -> NoReturn:
        self._metrics.queries.labels("wrong").inc()
        raise _StatusError(code, reason, message)


def quantity(value: float) -> str:
    """A value as a Kubernetes quantity in thousandths."""
    return f"{round(1000 * value)}m"
