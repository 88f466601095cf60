"""`spec.behavior` of a HorizontalPodAutoscaler, as the API server accepts it.

Source: `validateBehavior` in pkg/apis/autoscaling/validation/validation.go of Kubernetes.
tests/integration/test_edges.py compares both.

Tests: tests/checks/test_autoscalers.py, tests/integration/test_edges.py
"""

from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from pdinference.api.quantities import quantity
from pdinference.api.v1alpha1.base import ApiModel, quantity_as_text


def _not_negative(value: str) -> str:
    amount = quantity(value)
    if amount is None or amount < 0:
        raise ValueError("Write a quantity of 0 or more, for example 0.05.")
    return value


class ScalingPolicy(ApiModel):
    """How many pods may come or go within a period."""

    type: Literal["Pods", "Percent"]
    value: Annotated[int, Field(ge=1, le=2**31 - 1)]
    period_seconds: Annotated[int, Field(ge=1, le=1800)]


class ScalingRules(ApiModel):
    """Pace of one direction."""

    stabilization_window_seconds: Annotated[int, Field(ge=0, le=3600)] | None = None
    select_policy: Literal["Max", "Min", "Disabled"] | None = None
    policies: Annotated[list[ScalingPolicy], Field(min_length=1, max_length=32)] | None = None
    tolerance: (
        Annotated[str, BeforeValidator(quantity_as_text), Field(max_length=32), AfterValidator(_not_negative)] | None
    ) = None


class Behavior(ApiModel):
    """Pace of scaling."""

    scale_up: ScalingRules | None = None
    scale_down: ScalingRules | None = None
