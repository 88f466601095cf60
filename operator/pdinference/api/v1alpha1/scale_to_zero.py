"""`spec.autoscaling.scaleToZero`: no pods while nobody asks."""

from typing import Annotated, Any

from pydantic import Field

from pdinference.api.v1alpha1.base import ApiModel, Rule


class ScaleToZero(ApiModel):
    """P and D have no pods while nobody asks. The next request starts them, and waits in the router's pod."""

    after_seconds: Annotated[int, Field(ge=10, le=86400)] = 900
    """How long no request may have come before the pods go."""
    max_queued_requests: Annotated[int, Field(ge=1, le=1000)] = 100
    """How many requests may wait in each router pod; those beyond are told to come back (503)."""
    max_wait_seconds: Annotated[int, Field(ge=1, le=86400)] = 600
    """How long a request may wait; then it is given up (504). Longer than P and D take to start."""


def _asks(spec: Any) -> bool:
    return spec.autoscaling is not None and spec.autoscaling.scale_to_zero is not None


SLEEP_RULES: tuple[Rule, ...] = (
    Rule(
        cel="!(has(self.autoscaling) && has(self.autoscaling.scaleToZero)) "
        "|| (has(self.parameter.autoscaling) && has(self.decode.autoscaling))",
        holds=lambda s: not _asks(s) or (s.parameter.autoscaling is not None and s.decode.autoscaling is not None),
        field="autoscaling.scaleToZero",
        message="It needs autoscaling in spec.parameter and in spec.decode, whose minReplicas a request starts.",
    ),
    Rule(
        cel="!(has(self.autoscaling) && has(self.autoscaling.scaleToZero)) || self.router.replicas > 0",
        holds=lambda s: not _asks(s) or s.router.replicas > 0,
        field="autoscaling.scaleToZero",
        message="Requests wait in the router's pods; use a spec.router.replicas of 1 or more.",
    ),
)
