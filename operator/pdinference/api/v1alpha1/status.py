"""`status`: what the operator saw and did."""

from typing import Annotated, Any, Literal

from pydantic import Field, WithJsonSchema

from pdinference.api.v1alpha1.base import ApiModel, Moment
from pdinference.api.v1alpha1.conditions import Truth, description

Count = Annotated[int, Field(ge=0, le=2**53), WithJsonSchema({"type": "integer"})]
"""Of elements or bytes of a model's files, which anybody may have written; only the operator writes it."""

Suffix = Annotated[Literal["", ".safetensors", ".bin", ".pt"], WithJsonSchema({"type": "string"})]


class Condition(ApiModel):
    """One aspect of the state, in the form of metav1.Condition."""

    type: Annotated[str, Field(max_length=316)]
    """Name of the aspect."""
    status: Truth
    """Whether it holds."""
    reason: Annotated[str, Field(max_length=1024)]
    """Why, in one CamelCase word."""
    message: Annotated[str, Field(max_length=32768)]
    """Why, in plain English, and what to do."""
    last_transition_time: Moment
    """When status last changed."""
    observed_generation: Annotated[int, Field(ge=0)]
    """metadata.generation that this was seen at."""


class RoleStatus(ApiModel):
    """Counts of one role."""

    replicas: int = 0
    """Pods that exist, of the current revision."""
    ready: int = 0
    """Pods that are ready, of the current revision."""
    desired: int = 0
    """Pods that are wanted."""
    summary: str = ""
    """`ready/desired`, for printing."""
    selector: str = ""
    """Label selector of the pods, for the scale subresource."""
    scaling: str = ""
    """With autoscaling: load of a pod/target, and the range of pods."""


class RolesStatus(ApiModel):
    """Counts per role."""

    parameter: RoleStatus = Field(default_factory=RoleStatus)
    """P pods."""
    decode: RoleStatus = Field(default_factory=RoleStatus)
    """D pods."""
    router: RoleStatus = Field(default_factory=RoleStatus)
    """Router pods."""


class CheckpointStatus(ApiModel):
    """Size of the model's weights."""

    elements: Count = 0
    """Elements that become the model's dtype."""
    scale_elements: Count = 0
    """Elements of scales."""
    scale_bytes: Count = 0
    """Bytes of scales."""
    other_bytes: Count = 0
    """Bytes of other tensors."""
    suffix: Suffix = ""
    """Of files without known headers."""
    files: Count = 0
    """Their number."""
    file_bytes: Count = 0
    """Their bytes."""


class KnownAdapter(ApiModel):
    """A LoRA adapter, from its adapter_config.json."""

    path: str = ""
    """As in spec.model.lora.adapters."""
    rank: int = 0
    """The largest of its modules."""
    modules: list[str] = Field(default_factory=list)
    """Modules that it changes."""
    base: str = ""
    """Its base model, as it says."""
    unsupported: list[str] = Field(default_factory=list)
    """Members of the config that vLLM refuses."""


class KnownModel(ApiModel):
    """What is known of a model, for the memory plan."""

    source: str = ""
    """Identity of its spec.model.source."""
    config: Annotated[
        dict[str, Any], WithJsonSchema({"type": "object", "x-kubernetes-preserve-unknown-fields": True})
    ] = Field(default_factory=dict)
    """Members of config.json that matter."""
    checkpoint: CheckpointStatus | None = None
    """Its weights; absent when unknown."""
    adapters: list[KnownAdapter] = Field(default_factory=list)
    """LoRA adapters that could be read."""


class ModelStatus(ApiModel):
    """The model, as far as the operator looked."""

    revision: str = ""
    """Commit that the hub gave for spec.model.source."""
    downloaded_bytes: int = 0
    """How much of it is in spec.model.cache."""
    total_bytes: int = 0
    """Size of all its files."""
    facts: KnownModel | None = None
    """What is known of it."""


class RoleMemory(ApiModel):
    """The memory plan of one device; what is not known is left out. `pdinference plan` says where each came from."""

    device_bytes: int | None = None
    """Memory of the device."""
    weights_bytes: int | None = None
    """Weights, LoRA slots included."""
    activation_bytes: int | None = None
    """Intermediate results of the largest step; an estimate."""
    overhead_bytes: int | None = None
    """CUDA, communication and graphs; an estimate."""
    kv_bytes_per_token: int | None = None
    """KV cache of one token."""
    kv_capacity_tokens: int | None = None
    """Tokens that the KV cache holds."""
    kv_blocks: int | None = None
    """Blocks that they are kept in."""
    observed_kv_capacity_tokens: int | None = None
    """Tokens that vLLM measured at start; of several pods, the smallest."""
    kv_capacity_error_percent: float | None = None
    """By how much the plan is above what vLLM measured; negative when below."""
    max_concurrency: float | None = None
    """Requests of the longest length at once."""


class PlanStatus(ApiModel):
    """What one device of each role will hold, as computed from model and spec, and what vLLM measured."""

    parameter: RoleMemory | None = None
    """A device of P."""
    decode: RoleMemory | None = None
    """A device of D."""


class Status(ApiModel):
    """What the operator saw and did."""

    observed_generation: Annotated[int, Field(ge=0)] = 0
    """metadata.generation that the operator acted on last."""
    url: str = ""
    """Where clients inside the cluster send requests, less `/v1/...`."""
    revision: str = ""
    """Revision of the P/D pair that the spec asks for."""
    serving_revision: str = ""
    """Revision of the P/D pair that requests go to."""
    roles: RolesStatus = Field(default_factory=RolesStatus)
    """Counts per role."""
    model: ModelStatus | None = None
    """The model, when a Job downloads or inspects it."""
    plan: PlanStatus | None = None
    """The memory plan, when the model's facts are known."""
    last_progress_time: Moment | None = None
    """When a roll-out that is not done last made progress."""
    conditions: Annotated[
        list[Condition],
        Field(
            description=description(),
            json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
        ),
    ] = Field(default_factory=list)
