"""`spec.autoscaling.scaleToZero`: P and D have no pods while there are no requests.

Tests: tests/api/test_mode.py, tests/api/test_host_local.py
"""

from typing import Annotated, Any

from pydantic import Field

from pdinference.api.v1alpha1.base import ApiModel, Rule
from pdinference.api.v1alpha1.host_local_rules import HOST_LOCAL


class ScaleToZero(ApiModel):
    """Scales P and D to zero pods without requests. The next request starts them and waits in the router pod."""

    after_seconds: Annotated[int, Field(ge=10, le=86400)] = 900
    """Time without requests, in seconds, after which P and D are scaled to zero."""
    max_queued_requests: Annotated[int, Field(ge=1, le=1000)] = 100
    """Maximum number of requests that wait in each router pod. Further requests are rejected with status 503."""
    max_wait_seconds: Annotated[int, Field(ge=1, le=86400)] = 600
    """Maximum time, in seconds, that a request waits before it fails with status 504. Use more than P and D take to
    start."""


def _is_set(spec: Any) -> bool:
    return spec.autoscaling is not None and spec.autoscaling.scale_to_zero is not None


SLEEP_RULES: tuple[Rule, ...] = (
    Rule(
        cel="!(has(self.autoscaling) && has(self.autoscaling.scaleToZero)) "
        f"|| ((self.mode == 'Aggregated' || {HOST_LOCAL} || has(self.parameter.autoscaling)) "
        "&& has(self.decode.autoscaling))",
        holds=lambda s: not _is_set(s) or all(s.of(role).autoscaling is not None for role in s.workload_roles),
        field="autoscaling.scaleToZero",
        message="scaleToZero needs autoscaling in spec.parameter and spec.decode: a request starts their minReplicas.",
    ),
    Rule(
        cel="!(has(self.autoscaling) && has(self.autoscaling.scaleToZero)) || self.router.replicas > 0",
        holds=lambda s: not _is_set(s) or s.router.replicas > 0,
        field="autoscaling.scaleToZero",
        message="scaleToZero needs a router pod, in which requests wait. Set spec.router.replicas to 1 or more.",
    ),
)
