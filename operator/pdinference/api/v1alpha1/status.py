"""`status`: the observed state of a PDInference.

Tests: tests/api/test_crd.py, tests/cli/test_top.py, tests/memory/test_known_facts.py
"""

from typing import Annotated, Any, Literal

from pydantic import Field, WithJsonSchema

from pdinference.api.v1alpha1.base import ApiModel, Moment
from pdinference.api.v1alpha1.conditions import Truth, description

Count = Annotated[int, Field(ge=0, le=2**53), WithJsonSchema({"type": "integer"})]
"""Elements or bytes of a model's files. Files are untrusted, so the number is bounded when it is read back."""

Suffix = Annotated[Literal["", ".safetensors", ".bin", ".pt"], WithJsonSchema({"type": "string"})]


class Condition(ApiModel):
    """One condition, in the form of metav1.Condition."""

    type: Annotated[str, Field(max_length=316)]
    """Type of the condition."""
    status: Truth
    """Status of the condition."""
    reason: Annotated[str, Field(max_length=1024)]
    """Reason for the status, as one CamelCase word."""
    message: Annotated[str, Field(max_length=32768)]
    """Details of the status, and what to do."""
    last_transition_time: Moment
    """Time of the last change of status."""
    observed_generation: Annotated[int, Field(ge=0)]
    """metadata.generation that the condition refers to."""


class StartPhases(ApiModel):
    """Seconds of the phases of a start, as Kubernetes notes them."""

    scheduling: Count
    """From the creation of the pod until it has a node."""
    preparation: Count
    """From then on until vLLM's container starts: images, volumes, the model."""
    engine: Count
    """From then on until the pod is ready."""


class StartStatus(ApiModel):
    """How long pods took from their creation until they were ready."""

    pod_creation_time: Moment
    """Creation of the pod that was counted last."""
    last_seconds: Count
    """Of that pod."""
    typical_seconds: Count
    """Mean, in which later pods count more."""
    last_phases: StartPhases | None = None
    """Of that pod."""
    typical_phases: StartPhases | None = None
    """Means, in which later pods count more."""


class RoleStatus(ApiModel):
    """Replica counts of one role."""

    replicas: int = 0
    """Number of pods of the current revision."""
    ready: int = 0
    """Number of ready pods of the current revision."""
    desired: int = 0
    """Desired number of pods."""
    summary: str = ""
    """`ready/desired`, for `kubectl get`."""
    selector: str = ""
    """Label selector of the pods, for the scale subresource."""
    scaling: str = ""
    """With autoscaling: load per pod/target, and the range of the replica count."""
    start: StartStatus | None = None
    """How long its pods took to start. Containers that were started again do not count."""


class RolesStatus(ApiModel):
    """Replica counts per role."""

    parameter: RoleStatus = Field(default_factory=RoleStatus)
    """P pods."""
    decode: RoleStatus = Field(default_factory=RoleStatus)
    """D pods."""
    router: RoleStatus = Field(default_factory=RoleStatus)
    """Router pods."""


class CheckpointStatus(ApiModel):
    """Size of the model's weights."""

    elements: Count = 0
    """Number of elements that vLLM stores in the model's dtype."""
    scale_elements: Count = 0
    """Number of elements of quantization scales."""
    scale_bytes: Count = 0
    """Size of quantization scales in bytes."""
    other_bytes: Count = 0
    """Size of other tensors in bytes."""
    suffix: Suffix = ""
    """Suffix of the weight files, if their headers are not known."""
    files: Count = 0
    """Number of these files."""
    file_bytes: Count = 0
    """Size of these files in bytes."""


class KnownAdapter(ApiModel):
    """Facts about a LoRA adapter, from its adapter_config.json."""

    path: str = ""
    """Path as in spec.model.lora.adapters."""
    rank: int = 0
    """Largest rank of its modules."""
    modules: list[str] = Field(default_factory=list)
    """Target modules of the adapter."""
    base: str = ""
    """Base model according to the adapter."""
    unsupported: list[str] = Field(default_factory=list)
    """Members of the config that vLLM does not support."""


class KnownModel(ApiModel):
    """Facts about the model for the memory plan."""

    source: str = ""
    """Digest of the spec.model.source that the facts belong to."""
    config: Annotated[
        dict[str, Any], WithJsonSchema({"type": "object", "x-kubernetes-preserve-unknown-fields": True})
    ] = Field(default_factory=dict)
    """Members of config.json that the memory plan uses."""
    checkpoint: CheckpointStatus | None = None
    """Size of the weights; absent if unknown."""
    adapters: list[KnownAdapter] = Field(default_factory=list)
    """Facts about the LoRA adapters that could be read."""


class ModelStatus(ApiModel):
    """Observed state of the model."""

    revision: str = ""
    """Commit of spec.model.source on the hub."""
    downloaded_bytes: int = 0
    """Bytes that are in spec.model.cache."""
    total_bytes: int = 0
    """Size of all files in bytes."""
    facts: KnownModel | None = None
    """Facts about the model for the memory plan."""


class RoleMemory(ApiModel):
    """Memory plan of one device. Unknown values are absent. `pdinference plan` shows the origin of each value."""

    device_bytes: int | None = None
    """Memory of the device."""
    weights_bytes: int | None = None
    """Weights, including LoRA slots."""
    activation_bytes: int | None = None
    """Estimated peak memory of activations."""
    overhead_bytes: int | None = None
    """Estimated memory of CUDA, communication and CUDA graphs."""
    kv_bytes_per_token: int | None = None
    """KV cache per token."""
    kv_capacity_tokens: int | None = None
    """Capacity of a rank's KV cache in tokens."""
    kv_blocks: int | None = None
    """Capacity of a rank's KV cache in blocks."""
    observed_kv_capacity_tokens: int | None = None
    """Capacity in tokens that vLLM measured at start; the smallest over all pods."""
    kv_capacity_error_percent: float | None = None
    """Difference between the planned and the observed capacity; positive if the plan is too high."""
    max_concurrency: float | None = None
    """Number of requests of the maximum length that fit the KV cache at a time."""

    @property
    def kv_bytes(self) -> int | None:
        """Size of the KV cache, as vLLM measured it or else as planned."""
        tokens = self.observed_kv_capacity_tokens or self.kv_capacity_tokens
        if tokens is None or self.kv_bytes_per_token is None:
            return None
        return tokens * self.kv_bytes_per_token


class PlanStatus(ApiModel):
    """Memory plan of one device of each role, with the capacity that vLLM measured."""

    parameter: RoleMemory | None = None
    """A device of P."""
    decode: RoleMemory | None = None
    """A device of D."""


Percent = Annotated[int, Field(ge=0, le=100), WithJsonSchema({"type": "integer"})]
Share = Annotated[float, Field(ge=0, le=100), WithJsonSchema({"type": "number"})]
"""A share in percent, with decimals."""
Rate = Annotated[float, Field(ge=0, le=1e15), WithJsonSchema({"type": "number"})]


class VerificationStatus(ApiModel):
    """A canary of a router: through P and D, and through P alone."""

    state: str = ""
    """State of the verification."""
    revision: str = ""
    """Revision that it went through."""
    decode_pod: str = ""
    """D pod in which it found a fault; in pods that P and D share, with its instance."""
    parameter_pod: str = ""
    """P pod that gave it an error or no answer; then nothing is known of D."""
    completion_time: Moment | None = None
    """When it ended, as of observedTime. Later ones with the same state update nothing."""
    prompt_tokens: Count | None = None
    """Tokens of its prompt."""
    distance: Rate | None = None
    """Distance between the two answers."""
    limit: Rate | None = None
    """From this distance on, the answer is wrong."""


class RepairStatus(ApiModel):
    """Pods restarted because their KV transfer was proven broken."""

    pods: list[str] = Field(default_factory=list)
    """In a row, the last one last."""
    restart_time: Moment | None = None
    """Time of the last restart."""
    proof: str = ""
    """What proved it broken."""
    outcome: Literal["", "Pending", "Repaired", "GaveUp"] = ""
    """What came of it. GaveUp: the fault lasts, and no other pod is restarted."""
    withheld: str = ""
    """Why a pod is not restarted now."""


class TransferStatus(ApiModel):
    """Measurements of the KV transfer in the last five minutes with requests. Numbers that are not known are absent."""

    revision: str = ""
    """Revision of P and D that they are of."""
    path: Literal["", "HostLocal", "Network"] = ""
    """Whether P and D of that revision share pods."""
    path_reason: str = ""
    """Fields of spec.transfer that decided."""
    observed_time: Moment | None = None
    """Time of the last update. Small changes cause none."""
    from_parameter_percent: Percent | None = None
    """Share of D's prompt tokens whose KV cache came from P."""
    by_decode_percent: Percent | None = None
    """Share that D computed. The rest was in D's cache."""
    failed_percent: Share | None = None
    """Share of transfers that failed."""
    expired_percent: Share | None = None
    """Share whose KV cache P released before D had read it."""
    gigabytes_per_second: Rate | None = None
    """Speed of one way in use, at least."""
    carried_gigabytes_per_second: Rate | None = None
    """Mean over all ways."""
    asked_gigabytes_per_second: Rate | None = None
    """The same, with what waits."""
    gigabytes_per_transfer: Rate | None = None
    """Mean size of a transfer."""
    concurrent_transfers: Rate | None = None
    """Mean number under way on one way."""
    busy_percent: Percent | None = None
    """Share of time that one way is in use, at most."""
    first_token_percent: Percent | None = None
    """Share of the time to the first token that is transfer."""
    inferred_transport: str = ""
    """TCP or NVLinkOrRDMA, inferred from the speed; empty if unknown."""
    verification: VerificationStatus = Field(default_factory=VerificationStatus)
    """The last canary, or the one with the worst fault among the D pods."""
    repair: RepairStatus | None = None
    """Restarts of pods, if there were any."""


class AttainmentStatus(ApiModel):
    """How far requests kept one objective."""

    kept_percent: Share = 0
    """Share of the requests that kept it."""
    milliseconds: Rate | None = None
    """Its percentile, as measured."""


class RoleUseStatus(ApiModel):
    """How much of a role was in use."""

    busy_percent: Percent | None = None
    """Share of its capacity that was in use."""
    tokens_per_second_per_gpu: Rate | None = None
    """P: prompt tokens. D: generated tokens."""


class ObjectivesStatus(ApiModel):
    """How far streamed answers kept spec.objectives in the last minutes with requests."""

    stated: str = ""
    """The objectives."""
    since: Moment | None = None
    """Begin of the measurement."""
    observed_time: Moment | None = None
    """End of the measurement. Small changes cause no update."""
    requests: Count = 0
    """Requests."""
    ttft: AttainmentStatus | None = None
    """Time to first token."""
    tpot: AttainmentStatus | None = None
    """Time per output token."""
    limit: Literal["", "NoPods", "Parameter", "ParameterSpeed", "Transfer", "KVCache", "Decode", "DecodeSpeed"] = ""
    """What limits, if an objective is missed for 10 minutes."""
    parameter: RoleUseStatus | None = None
    """Use of P."""
    decode: RoleUseStatus | None = None
    """Use of D."""
    cost_per_million_tokens: Rate | None = None
    """Cost of a million tokens of prompts and answers in the last hour."""


class Status(ApiModel):
    """Observed state of a PDInference."""

    observed_generation: Annotated[int, Field(ge=0)] = 0
    """metadata.generation of the spec that the operator processed last."""
    url: str = ""
    """Base URL for clients inside the cluster, without `/v1/...`."""
    revision: str = ""
    """Target revision of P and D, as the spec defines it."""
    serving_revision: str = ""
    """Revision of P and D that receives requests."""
    roles: RolesStatus = Field(default_factory=RolesStatus)
    """Replica counts per role."""
    model: ModelStatus | None = None
    """State of the model, if a Job downloads or inspects it."""
    plan: PlanStatus | None = None
    """Memory plan, if the facts about the model are known."""
    transfer: TransferStatus | None = None
    """Measurements of the KV transfer, if the routers report them."""
    objectives: ObjectivesStatus | None = None
    """Attainment of spec.objectives."""
    last_progress_time: Moment | None = None
    """Time of the last progress of an unfinished roll-out."""
    conditions: Annotated[
        list[Condition],
        Field(
            description=description(),
            json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
        ),
    ] = Field(default_factory=list)
