"""Whether HPAs get their external metrics from this operator: there is one server for that group in a cluster."""

import asyncio
from collections.abc import Callable
from typing import Final

from pdinference.cluster.client import ApiServer, Json
from pdinference.cluster.errors import ApiError
from pdinference.loadmetrics.metrics_api.api import GROUP, VERSION

API_SERVICE: Final = f"{VERSION}.{GROUP}"
_PATH: Final = f"/apis/apiregistration.k8s.io/v1/apiservices/{API_SERVICE}"
_INTERVAL_S: Final = 30.0
_SOON_S: Final = 3.0
"""While there is a problem: nobody should be told of it longer than it lasts."""
_NOT_FOUND: Final = 404

Problem = tuple[str, str]
"""Reason and message, for the condition."""

_MISSING: Final = "MetricsApiMissing"
_ELSEWHERE: Final = "MetricsApiElsewhere"
OFF: Final = (
    "MetricsApiOff",
    "This operator serves HPAs no metrics (chart: metricsApi.enabled, watchNamespaces). Set spec.autoscaling.source.",
)


class Registration:
    """Looks at the APIService now and then.

    Args:
        service: Namespace and name of the Service in front of this operator; None when it does not serve metrics.
        on_change: Called when there is a problem, another one, or none any more.
    """

    def __init__(
        self, api: ApiServer, service: tuple[str, str] | None, *, on_change: Callable[[], None] = lambda: None
    ) -> None:
        self._api = api
        self._service = service
        self._on_change = on_change
        self.problem: Problem | None = OFF if service is None else None

    async def keep(self) -> None:
        """Look for ever."""
        while self._service is not None:
            await self.refresh()
            await asyncio.sleep(_INTERVAL_S if self.problem is None else _SOON_S)

    async def refresh(self) -> None:
        """Look once; an API server that does not answer, or not in JSON, changes nothing."""
        try:
            found: Json | None = await self._api.get(_PATH)
        except ApiError as error:
            if error.status != _NOT_FOUND:
                return
            found = None
        except ValueError:
            return
        problem = None if self._service is None else problem_of(found, self._service)
        if problem != self.problem:
            self.problem = problem
            self._on_change()


def problem_of(registered: Json | None, service: tuple[str, str]) -> Problem | None:
    """What keeps our metrics from HPAs, given the APIService."""
    if registered is None:
        return (
            _MISSING,
            f"APIService {API_SERVICE} does not exist, so HPAs get no metrics; helm upgrade makes it again.",
        )
    owner = (registered.get("spec") or {}).get("service") or {}
    if (owner.get("namespace"), owner.get("name")) != service:
        other = f"{owner.get('namespace')}/{owner.get('name')}"
        message = (
            f"Another server ({other}) has APIService {API_SERVICE}, and there can be one only. Use that server by "
            "spec.autoscaling.source KEDA or PrometheusAdapter, or give the APIService to this operator."
        )
        return (_ELSEWHERE, message)
    available: Json = next(
        (c for c in (registered.get("status") or {}).get("conditions", ()) if c["type"] == "Available"), {}
    )
    if available.get("status") == "False":
        return ("MetricsApiUnavailable", f"The API server does not reach the metrics: {available.get('message', '')}")
    return None
