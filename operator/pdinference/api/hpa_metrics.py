"""Metrics of a HorizontalPodAutoscaler, as the API server accepts them.

Source: `validateMetrics` in pkg/apis/autoscaling/validation/validation.go of Kubernetes, and the types of
autoscaling/v2. tests/integration/test_edges.py compares both.

Tests: tests/checks/test_autoscalers.py, tests/integration/test_edges.py
"""

import re
from collections.abc import Callable
from decimal import Decimal
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from pdinference.api.container_resources import is_of_containers
from pdinference.api.quantities import quantity
from pdinference.api.v1alpha1.base import ApiModel, QualifiedName, Rule, quantity_as_text

Text = Annotated[str, Field(max_length=317)]
Percent = Annotated[int, Field(ge=1, le=2**31 - 1)]


def _counts(value: str) -> str:
    amount = quantity(value)
    if amount is None:
        raise ValueError("Write a quantity, for example 500m, 2 or 16Gi. (GB is G, GiB is Gi.)")
    if amount < _LEAST:
        raise ValueError("A target must be at least 1m.")
    return value


_LEAST: Final = Decimal("0.001")
"""Kubernetes stores thousandths, and rejects a target of 0."""
Amount = Annotated[str, BeforeValidator(quantity_as_text), Field(max_length=32), AfterValidator(_counts)]


def _path_segment(value: str) -> str:
    if value in {"", ".", ".."} or "/" in value or "%" in value:
        raise ValueError("Write a name without slashes and percent signs, for example queue_length.")
    return value


Name = Annotated[Text, AfterValidator(_path_segment)]
"""A name that can be a part of a URL's path."""
_LABEL: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")


def _container(value: str) -> str:
    if not _LABEL.fullmatch(value):
        raise ValueError("Write the name of a container, for example vllm.")
    return value


def _one_slash(value: str) -> str:
    if value.count("/") > 1:
        raise ValueError("Write a group and a version, for example apps/v1.")
    return value


_LONGEST_DOMAIN: Final = 253


def _of_containers(value: str) -> str:
    quota = f"requests.{value.partition('/')[0]}"  # the name that quotas have for a device
    if not is_of_containers(value) or value.startswith("requests.") or len(quota) > _LONGEST_DOMAIN:
        raise ValueError("Write cpu, memory, or another resource of containers.")
    return value


def _rule(holds: Callable[[Any], bool], message: str, field: str = "target") -> Rule:
    return Rule(cel="", holds=holds, message=message, field=field)  # not part of a CRD


class Target(ApiModel):
    """Target of a metric. The autoscaler uses the amount that is set; `type` only has to be one of the three."""

    type: Literal["Utilization", "Value", "AverageValue"]
    value: Amount | None = None
    average_value: Amount | None = None
    average_utilization: Percent | None = None


_PER_POD: Final = _rule(
    lambda source: (source.target.average_utilization is None) != (source.target.average_value is None),
    "Set either averageUtilization or averageValue.",
)


class Selector(ApiModel):
    """Labels of a metric."""

    match_labels: Annotated[dict[Text, Text], Field(max_length=16)] = Field(default_factory=dict)
    match_expressions: Annotated[list["Requirement"], Field(max_length=16)] = Field(default_factory=list)


class Requirement(ApiModel):
    """A requirement on a label."""

    key: Text
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    values: Annotated[list[Text], Field(max_length=64)] = Field(default_factory=list)


class Identifier(ApiModel):
    """A metric."""

    name: Name
    selector: Selector = Field(default_factory=Selector)


class Resource(ApiModel):
    """CPU or memory of the pods."""

    name: Annotated[Text, Field(min_length=1)]
    target: Target

    rules: ClassVar[tuple[Rule, ...]] = (_PER_POD,)


class ContainerResource(ApiModel):
    """CPU or memory of one container of the pods."""

    name: Annotated[QualifiedName, AfterValidator(_of_containers)]
    container: Annotated[str, AfterValidator(_container)]
    target: Target

    rules: ClassVar[tuple[Rule, ...]] = (_PER_POD,)


class PodsMetric(ApiModel):
    """A metric of each pod."""

    metric: Identifier
    target: Target

    rules: ClassVar[tuple[Rule, ...]] = (
        _rule(lambda pods: pods.target.average_value is not None, "Set averageValue."),
    )


class Described(ApiModel):
    """An object that has a metric."""

    api_version: Annotated[Text, AfterValidator(_one_slash)] = ""
    kind: Name
    name: Name


class Object(ApiModel):
    """A metric of one object."""

    described_object: Described
    metric: Identifier
    target: Target

    rules: ClassVar[tuple[Rule, ...]] = (
        _rule(
            lambda of: of.target.value is not None or of.target.average_value is not None,
            "Set value or averageValue.",
        ),
    )


class External(ApiModel):
    """A metric that does not belong to pods."""

    metric: Identifier
    target: Target

    rules: ClassVar[tuple[Rule, ...]] = (
        _rule(
            lambda external: (external.target.value is None) != (external.target.average_value is None),
            "Set either value or averageValue.",
        ),
    )


def _source_of(type_: str) -> str:
    return type_[0].lower() + type_[1:]


class Metric(ApiModel):
    """An entry of `spec.metrics`."""

    type: Literal["Resource", "ContainerResource", "Pods", "Object", "External"]
    resource: Resource | None = None
    container_resource: ContainerResource | None = None
    pods: PodsMetric | None = None
    object: Object | None = None
    external: External | None = None

    @property
    def sources(self) -> set[str]:
        """Names of the members that say where the metric is from."""
        return {str(type(self).model_fields[name].alias) for name in self.model_fields_set - {"type"}}

    rules: ClassVar[tuple[Rule, ...]] = (
        _rule(
            lambda metric: metric.sources == {_source_of(metric.type)},
            "Beside type, write exactly the member of that type: resource for Resource, containerResource for "
            "ContainerResource, pods for Pods, object for Object, external for External.",
            field="type",
        ),
    )
