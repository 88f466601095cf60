"""Metrics and behavior of a role's autoscaler that the API server would refuse in a HorizontalPodAutoscaler."""

from collections.abc import Iterator, Mapping
from typing import Any

from pdinference.api.hpa_behavior import Behavior
from pdinference.api.hpa_metrics import Metric
from pdinference.api.names import ENGINE_ROLES
from pdinference.api.v1alpha1 import Spec
from pdinference.api.v1alpha1.base import ApiModel
from pdinference.api.validation import InvalidResourceError, Problem, part


def autoscaler_problems(spec: Spec) -> Iterator[Problem]:
    """Members that autoscaling/v2 does not have, and values that it does not accept."""
    for role in ENGINE_ROLES:
        scaling, field = spec.of(role).autoscaling, f"spec.{role}.autoscaling"
        if scaling is None:
            continue
        for index, metric in enumerate(scaling.metrics):
            yield from _problems(Metric, metric, f"{field}.metrics[{index}]")
        yield from _problems(Behavior, scaling.behavior, f"{field}.behavior")


def _problems(model: type[ApiModel], members: Mapping[str, Any], field: str) -> Iterator[Problem]:
    try:
        part(model, members, field)
    except InvalidResourceError as error:
        yield from error.problems
