"""Metrics of a HorizontalPodAutoscaler (autoscaling/v2) for which KEDA has triggers."""

from collections.abc import Callable
from decimal import Decimal
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import AfterValidator, Field

from pdinference.api.quantities import quantity
from pdinference.api.v1alpha1.base import ApiModel, Quantity, Rule

Text = Annotated[str, Field(max_length=253)]


def _counts(value: str) -> str:
    amount = quantity(value)
    if amount is None or amount < _LEAST:
        raise ValueError("A target must be at least 1m.")
    return value


_LEAST: Final = Decimal("0.001")
"""Kubernetes stores thousandths, and rejects a target of 0."""
Amount = Annotated[Quantity, AfterValidator(_counts)]


def _needs(type_: str, member: str, given: Callable[[Any], object]) -> Rule:
    return Rule(
        cel="",  # not part of a CRD
        holds=lambda target: target.type != type_ or given(target) is not None,
        message=f"A target of type {type_} needs {member}.",
    )


class ResourceTarget(ApiModel):
    """Target of a CPU or memory metric."""

    type: Literal["Utilization", "AverageValue"]
    average_utilization: Annotated[int, Field(ge=1, le=10_000)] | None = None
    average_value: Amount | None = None

    @property
    def amount(self) -> str:
        """Percent of the request, or a quantity."""
        return str(self.average_utilization if self.type == "Utilization" else self.average_value)

    rules: ClassVar[tuple[Rule, ...]] = (
        _needs("Utilization", "averageUtilization", lambda t: t.average_utilization),
        _needs("AverageValue", "averageValue", lambda t: t.average_value),
    )


class ExternalTarget(ApiModel):
    """Target of an external metric, per pod or in total."""

    type: Literal["AverageValue", "Value"]
    average_value: Amount | None = None
    value: Amount | None = None

    @property
    def amount(self) -> str:
        """A quantity."""
        return str(self.average_value if self.type == "AverageValue" else self.value)

    rules: ClassVar[tuple[Rule, ...]] = (
        _needs("AverageValue", "averageValue", lambda t: t.average_value),
        _needs("Value", "value", lambda t: t.value),
    )


class Resource(ApiModel):
    """CPU or memory of the pods."""

    name: Literal["cpu", "memory"]
    target: ResourceTarget


class ContainerResource(Resource):
    """CPU or memory of one container of the pods."""

    container: Text


class Selector(ApiModel):
    """Labels of a metric."""

    match_labels: Annotated[dict[Text, Text], Field(max_length=16)] = Field(default_factory=dict)


class Identifier(ApiModel):
    """A metric."""

    name: Text
    selector: Selector = Field(default_factory=Selector)


class External(ApiModel):
    """A metric that does not belong to pods."""

    metric: Identifier
    target: ExternalTarget


class ResourceMetric(ApiModel):
    """An entry of type Resource."""

    type: Literal["Resource"]
    resource: Resource


class ContainerResourceMetric(ApiModel):
    """An entry of type ContainerResource."""

    type: Literal["ContainerResource"]
    container_resource: ContainerResource


class ExternalMetric(ApiModel):
    """An entry of type External."""

    type: Literal["External"]
    external: External


Metric = ResourceMetric | ContainerResourceMetric | ExternalMetric
METRICS: dict[str, type[Metric]] = {
    "Resource": ResourceMetric,
    "ContainerResource": ContainerResourceMetric,
    "External": ExternalMetric,
}
"""Models of the metrics by their type."""
