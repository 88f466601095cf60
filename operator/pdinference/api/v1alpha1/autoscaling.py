"""`autoscaling` of a role: the range of its replica count, and its targets.

Tests: tests/manifests/test_autoscaler.py
"""

from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, Field, WithJsonSchema

from pdinference.api.v1alpha1.base import ApiModel, AsJson, Rule

Percent = Annotated[int, Field(ge=1, le=1000)]
Amount = Annotated[int, Field(ge=1, le=1_000_000_000)]


def _not_zero(value: object) -> object:
    """Lead from the zero of other autoscalers to the field for both roles."""
    if value == 0 and not isinstance(value, bool):
        raise ValueError("Use 1 or more. For no pods while no request comes, set spec.autoscaling.scaleToZero: {}.")
    return value


def _in_the_apis_form(limit: int) -> WithJsonSchema:
    return WithJsonSchema({"type": "object", "x-kubernetes-preserve-unknown-fields": True, "maxProperties": limit})


HpaMetric = Annotated[dict[str, Any], AsJson, _in_the_apis_form(8)]
"""One entry of `spec.metrics` of an autoscaling/v2 HorizontalPodAutoscaler."""

HpaBehavior = Annotated[dict[str, Any], AsJson, _in_the_apis_form(2)]
"""`spec.behavior` of an autoscaling/v2 HorizontalPodAutoscaler."""


class ScalingTargets(ApiModel):
    """Target values per pod. If several are set, the one that needs the most pods decides (docs/autoscaling.md)."""

    prefill_load: Percent | None = None
    """Prefill work, running and waiting, in percent of the capacity of a pod."""
    decode_load: Percent | None = None
    """Decode work, running and waiting, in percent of the capacity of a pod."""
    kv_demand: Percent | None = None
    """KV cache in use or needed by waiting requests, in percent of a pod's KV cache."""
    kv_usage: Percent | None = None
    """KV cache in use, in percent of a pod's KV cache."""
    waiting_requests: Amount | None = None
    """Number of waiting requests."""
    running_requests: Amount | None = None
    """Number of running requests."""
    queued_prompt_tokens: Amount | None = None
    """Prompt tokens of waiting requests."""
    prompt_tokens_per_second: Amount | None = None
    """Prompt tokens per second."""
    generation_tokens_per_second: Amount | None = None
    """Generated tokens per second."""


class Autoscaling(ApiModel):
    """Autoscaling of a role by its load, with a HorizontalPodAutoscaler."""

    min_replicas: Annotated[int, Field(ge=1, le=1000), BeforeValidator(_not_zero)] = 1
    """Minimum replica count."""
    max_replicas: Annotated[int, Field(ge=1, le=1000)]
    """Maximum replica count."""
    targets: ScalingTargets | None = None
    """Target values per pod. Default if `metrics` is empty: prefillLoad 90 for P, decodeLoad 90 and kvUsage 80 for
    D."""
    metrics: Annotated[list[HpaMetric], Field(max_length=8)] = Field(default_factory=list)
    """Additional metrics, in the form of HorizontalPodAutoscaler autoscaling/v2."""
    look_ahead: bool = True
    """Whether prefillLoad and decodeLoad are those expected when a pod that is created now is ready, while they rise
    steadily."""
    behavior: HpaBehavior = Field(default_factory=dict)
    """Scaling rates, as in HorizontalPodAutoscaler autoscaling/v2. Default: up at once, down slowly."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="self.minReplicas <= self.maxReplicas",
            holds=lambda a: a.min_replicas <= a.max_replicas,
            field="maxReplicas",
            message="maxReplicas must not be less than minReplicas.",
        ),
    )
