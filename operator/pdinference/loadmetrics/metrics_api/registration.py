"""Checks whether this operator serves the external metrics API. A cluster has only one server for its API group.

Tests: tests/loadmetrics/test_registration.py
"""

import asyncio
from collections.abc import Callable
from http import HTTPStatus
from typing import Final

from pdinference.cluster.client import ApiServer, Json
from pdinference.cluster.errors import ApiError
from pdinference.loadmetrics.metrics_api.group import GROUP, VERSION

API_SERVICE: Final = f"{VERSION}.{GROUP}"
_PATH: Final = f"/apis/apiregistration.k8s.io/v1/apiservices/{API_SERVICE}"
_INTERVAL_S: Final = 30.0
_SOON_S: Final = 3.0
"""Interval while there is a problem, so that the condition clears soon after the problem is solved."""

Problem = tuple[str, str]
"""Reason and message, for the condition."""

_MISSING: Final = "MetricsApiMissing"
_ELSEWHERE: Final = "MetricsApiElsewhere"
OFF: Final = (
    "MetricsApiOff",
    "The operator serves no metrics (chart: metricsApi.enabled, watchNamespaces). Set spec.autoscaling.source.",
)


class Registration:
    """Checks the APIService periodically.

    Args:
        service: Namespace and name of the operator's Service; None if the operator does not serve metrics.
        on_change: Called when the problem changes.
    """

    def __init__(
        self, api: ApiServer, service: tuple[str, str] | None, *, on_change: Callable[[], None] = lambda: None
    ) -> None:
        self._api = api
        self._service = service
        self._on_change = on_change
        self.problem: Problem | None = OFF if service is None else None

    async def keep(self) -> None:
        """Check until cancelled."""
        while self._service is not None:
            await self.refresh()
            await asyncio.sleep(_INTERVAL_S if self.problem is None else _SOON_S)

    async def refresh(self) -> None:
        """Check once. If the APIService cannot be read, the problem does not change."""
        try:
            found: Json | None = await self._api.get(_PATH)
        except ApiError as error:
            if error.status != HTTPStatus.NOT_FOUND:
                return
            found = None
        except ValueError:
            return
        problem = None if self._service is None else problem_of(found, self._service)
        if problem != self.problem:
            self.problem = problem
            self._on_change()


def problem_of(registered: Json | None, service: tuple[str, str]) -> Problem | None:
    """The reason for which HPAs cannot read the operator's metrics; None if there is none."""
    if registered is None:
        return (
            _MISSING,
            f"The APIService {API_SERVICE} does not exist, so HPAs have no metrics. Run helm upgrade to create it.",
        )
    owner = (registered.get("spec") or {}).get("service") or {}
    if (owner.get("namespace"), owner.get("name")) != service:
        other = f"{owner.get('namespace')}/{owner.get('name')}"
        message = (
            f"The APIService {API_SERVICE} belongs to another server ({other}). Set spec.autoscaling.source to KEDA or "
            "PrometheusAdapter to use that server, or point the APIService to this operator."
        )
        return (_ELSEWHERE, message)
    available: Json = next(
        (c for c in (registered.get("status") or {}).get("conditions", ()) if c["type"] == "Available"), {}
    )
    if available.get("status") == "False":
        return ("MetricsApiUnavailable", f"The API server cannot reach the metrics API: {available.get('message', '')}")
    return None
