"""`autoscaling` of a role: between how many pods, and what decides."""

from typing import Annotated, Any, ClassVar

from pydantic import Field, WithJsonSchema

from pdinference.api.v1alpha1.base import ApiModel, AsJson, Rule

Percent = Annotated[int, Field(ge=1, le=1000)]
Amount = Annotated[int, Field(ge=1, le=1_000_000_000)]


def _in_the_apis_form(limit: int) -> WithJsonSchema:
    return WithJsonSchema({"type": "object", "x-kubernetes-preserve-unknown-fields": True, "maxProperties": limit})


HpaMetric = Annotated[dict[str, Any], AsJson, _in_the_apis_form(8)]
"""One entry of `spec.metrics` of an autoscaling/v2 HorizontalPodAutoscaler."""

HpaBehavior = Annotated[dict[str, Any], AsJson, _in_the_apis_form(2)]
"""`spec.behavior` of an autoscaling/v2 HorizontalPodAutoscaler."""


class ScalingTargets(ApiModel):
    """What one pod is to bear; of several, the one that asks for most pods decides (docs/autoscaling.md)."""

    prefill_load: Percent | None = None
    """Percent of a pod that prefill work takes, what waits included."""
    decode_load: Percent | None = None
    """Percent of a pod that decode work takes, what waits included."""
    kv_demand: Percent | None = None
    """Percent of a pod's KV cache that is used, or needed by what waits."""
    kv_usage: Percent | None = None
    """Percent of a pod's KV cache that is used."""
    waiting_requests: Amount | None = None
    """Requests that wait."""
    running_requests: Amount | None = None
    """Requests that are worked on."""
    queued_prompt_tokens: Amount | None = None
    """Prompt tokens that wait."""
    prompt_tokens_per_second: Amount | None = None
    """Prompt tokens a second."""
    generation_tokens_per_second: Amount | None = None
    """Generated tokens a second."""


class Autoscaling(ApiModel):
    """How many pods a role has, as its load decides (a HorizontalPodAutoscaler)."""

    min_replicas: Annotated[int, Field(ge=1, le=1000)] = 1
    """Never fewer pods than this."""
    max_replicas: Annotated[int, Field(ge=1, le=1000)]
    """Never more pods than this."""
    targets: ScalingTargets | None = None
    """What one pod is to bear. Default, without `metrics`: prefillLoad 90 for P, decodeLoad 90 and kvUsage 80 for D."""
    metrics: Annotated[list[HpaMetric], Field(max_length=8)] = Field(default_factory=list)
    """Further metrics, as in a HorizontalPodAutoscaler (autoscaling/v2)."""
    behavior: HpaBehavior = Field(default_factory=dict)
    """How fast pods come and go, as in a HorizontalPodAutoscaler (autoscaling/v2). Default: up at once, down slowly."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="self.minReplicas <= self.maxReplicas",
            holds=lambda a: a.min_replicas <= a.max_replicas,
            field="maxReplicas",
            message="Use at least as many as minReplicas.",
        ),
    )
