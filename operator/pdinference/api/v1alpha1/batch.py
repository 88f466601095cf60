"""The `PDBatch` resource: sends the requests of a file to a `PDInference` and writes the answers to a file.

Tests: tests/api/test_batch.py, tests/admission/test_webhook.py
"""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from pdinference.api.v1alpha1.base import ApiModel, LabelValue, Matches, Moment, ObjectName, QualifiedName, Rule
from pdinference.api.v1alpha1.model import ConfigMapKey
from pdinference.api.v1alpha1.resource import Metadata
from pdinference.api.v1alpha1.roles.role import Resources, Toleration
from pdinference.api.v1alpha1.router import KeyName
from pdinference.api.v1alpha1.source import RelativePath
from pdinference.api.v1alpha1.status import Condition

_NAME_LIMIT = 52
"""Maximum length of a PDBatch's name. With `-batch` and a pod's suffix it fits the 63 characters of a label."""
_NAME_PATTERN = f"^[a-z]([-a-z0-9]{{0,{_NAME_LIMIT - 2}}}[a-z0-9])?$"
_NAME_MESSAGE = (
    f"Use at most {_NAME_LIMIT} lower-case letters, digits and dashes. Start with a letter and do not end with a "
    "dash. The names of the Job and its pods begin with it."
)


class InferenceReference(ApiModel):
    """A PDInference in the namespace of the PDBatch."""

    name: ObjectName
    """Name of the PDInference."""


class ClaimFile(ApiModel):
    """A file on a PersistentVolumeClaim in the namespace of the PDBatch."""

    claim_name: ObjectName
    """Name of the claim."""
    path: RelativePath
    """Path of the file within the volume."""


class ClaimFolder(ApiModel):
    """A folder on a PersistentVolumeClaim in the namespace of the PDBatch."""

    claim_name: ObjectName
    """Name of the claim. Group 65532 must be able to write to it, as it can if the volume supports fsGroup."""
    path: RelativePath | None = None
    """Path of the folder within the volume. It is created if absent. Default: the name of the PDBatch."""


_CLAIM_OR_CONFIG_MAP = Rule(
    cel="has(self.persistentVolumeClaim) != has(self.configMap)",
    holds=lambda place: (place.persistent_volume_claim is None) != (place.config_map is None),
    message="Set exactly one of persistentVolumeClaim and configMap.",
)


class BatchInput(ApiModel):
    """The requests, in the format of OpenAI's and vLLM's batch files. Set exactly one member."""

    persistent_volume_claim: ClaimFile | None = None
    """A file on a PersistentVolumeClaim."""
    config_map: ConfigMapKey | None = None
    """A key of a ConfigMap. ConfigMaps hold at most 1 MiB."""

    rules: ClassVar[tuple[Rule, ...]] = (_CLAIM_OR_CONFIG_MAP,)


class OutputConfigMap(ApiModel):
    """A ConfigMap that the operator creates. The PDBatch owns it, so that both are deleted together."""

    name: ObjectName
    """Name of the ConfigMap. If a ConfigMap of this name already exists, the operator does not change it, and the batch
    waits."""


class BatchOutput(ApiModel):
    """Where to write answers (output.jsonl) and failed requests (errors.jsonl). Set exactly one member."""

    persistent_volume_claim: ClaimFolder | None = None
    """A folder on a PersistentVolumeClaim."""
    config_map: OutputConfigMap | None = None
    """A ConfigMap for up to 1 MB of answers. A batch with more answers fails; the ConfigMap keeps those that fit."""

    rules: ClassVar[tuple[Rule, ...]] = (_CLAIM_OR_CONFIG_MAP,)


class BatchPlacement(ApiModel):
    """Where the runner pod may run. It needs no accelerator."""

    node_selector: Annotated[dict[QualifiedName, LabelValue], Field(max_length=32)] = Field(default_factory=dict)
    """Required node labels."""
    tolerations: Annotated[list[Toleration], Field(max_length=32)] = Field(default_factory=list)
    """Node taints that the runner tolerates."""
    priority_class_name: ObjectName | None = None
    """PriorityClass of the runner. Default: the default of the cluster."""


_FIXED = (
    "inferenceRef",
    "input",
    "output",
    "apiKeyName",
    "concurrency",
    "maxRetries",
    "requestTimeoutSeconds",
    "resources",
    "placement",
)
_MAY_CHANGE = {"suspend", "timeout_seconds", "ttl_seconds_after_finished"}
FIXED_RULE = Rule(
    # All members except model are present through their defaults. `self.?model` exceeds CEL's cost limit.
    cel="has(self.model) == has(oldSelf.model) && (!has(self.model) || self.model == oldSelf.model) && "
    + " && ".join(f"self.{field} == oldSelf.{field}" for field in _FIXED),
    holds=lambda _: True,  # a transition rule; `same_work` checks it where the older object is known
    message="Only suspend, timeoutSeconds and ttlSecondsAfterFinished of an existing batch can be changed. To change "
    "other fields, delete the batch and create a new one. With the same input and output it resumes the old one.",
)


class BatchSpec(ApiModel):
    """Desired state of a PDBatch. Only suspend, timeoutSeconds and ttlSecondsAfterFinished can be changed later."""

    inference_ref: InferenceReference
    """The PDInference that answers. The batch starts when it is Ready."""
    input: BatchInput
    """The requests."""
    output: BatchOutput
    """The answers."""
    api_key_name: KeyName = "batch"
    """Key of the Secret in spec.router.apiKeys of the PDInference. Its value is the API key that the requests have.
    Ignored if the PDInference has no API keys."""
    concurrency: Annotated[int, Field(ge=1, le=1024)] = 16
    """Maximum number of concurrent requests. Requests above vLLM's capacity wait in its queue and delay the requests of
    other clients."""
    model: (
        Annotated[
            str,
            Field(max_length=253),
            Matches(
                "^[A-Za-z0-9][A-Za-z0-9_./:-]*$",
                "Write a model name as clients send it: letters, digits and . _ / : -, starting with a letter or "
                "digit.",
            ),
        ]
        | None
    ) = None
    """Model of all requests, for example a LoRA adapter. It overrides the model in the lines of the input. Default: the
    model of each line, or else the name of the served model."""
    max_retries: Annotated[int, Field(ge=0, le=20)] = 5
    """Number of retries of a request after a transient failure, with increasing back-off."""
    request_timeout_seconds: Annotated[int, Field(ge=1, le=86400)] = 600
    """Timeout, in seconds, of one request."""
    timeout_seconds: Annotated[int, Field(ge=1, le=31536000)] | None = None
    """Timeout, in seconds, of the whole batch. Default: none."""
    ttl_seconds_after_finished: Annotated[int, Field(ge=60, le=31536000)] | None = None
    """Time, in seconds, after which the finished Job and its pod, including its log, are deleted. The PDBatch remains.
    Default: they are deleted together with the PDBatch."""
    suspend: bool = False
    """Suspends the batch: the runner stops. When the batch resumes, it sends the unanswered requests."""
    resources: Resources = Field(default_factory=Resources)
    """CPU and memory of the runner. Default: requests of 100m and 256Mi."""
    placement: BatchPlacement = Field(default_factory=BatchPlacement)
    """Where the runner may run."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="!has(self.input.configMap) || !has(self.output.configMap) || "
            "self.input.configMap.name != self.output.configMap.name",
            holds=lambda s: (
                s.input.config_map is None
                or s.output.config_map is None
                or s.input.config_map.name != s.output.config_map.name
            ),
            field="output.configMap.name",
            message="Use another ConfigMap than that of the input. The operator creates it.",
        ),
        FIXED_RULE,
    )

    def same_work(self, other: "BatchSpec") -> bool:
        """Whether two specs differ only in mutable fields."""
        return self.model_dump(exclude=_MAY_CHANGE) == other.model_dump(exclude=_MAY_CHANGE)


class BatchMetadata(Metadata):
    """The part of metadata that the operator uses."""

    name: Annotated[str, Matches(_NAME_PATTERN, _NAME_MESSAGE)]
    """Name of the resource."""


BATCH_NAME_RULE = Rule(
    cel=f"self.metadata.name.matches('{_NAME_PATTERN}')",
    holds=lambda _: True,  # BatchMetadata says it in Python
    message=f"metadata.name: {_NAME_MESSAGE}",
)


class PDBatch(ApiModel):
    """Sends the requests of a file to a PDInference and writes the answers to a file."""

    api_version: Literal["pdinference.io/v1alpha1"] = "pdinference.io/v1alpha1"
    """Version of the schema."""
    kind: Literal["PDBatch"] = "PDBatch"
    """Kind of resource."""
    metadata: BatchMetadata
    """Name, namespace and identity."""
    spec: BatchSpec
    """Desired state."""
    status: Annotated[dict[str, Any], Field(exclude=True)] = Field(default_factory=dict)
    """Observed state; validation ignores it."""

    rules: ClassVar[tuple[Rule, ...]] = (BATCH_NAME_RULE,)


BatchPhase = Literal["Waiting", "Pending", "Running", "Suspended", "Complete", "Failed"]


class BatchStatus(ApiModel):
    """Observed state of a PDBatch."""

    observed_generation: Annotated[int, Field(ge=0)] = 0
    """metadata.generation of the spec that the operator processed last."""
    phase: BatchPhase = "Waiting"
    """Waiting (for the PDInference), Pending (the runner has not started), Running, Suspended, Complete or Failed."""
    total: Annotated[int, Field(ge=0)] = 0
    """Number of requests in the input; 0 until the runner has read it."""
    completed: Annotated[int, Field(ge=0)] = 0
    """Number of requests with a stored answer."""
    failed: Annotated[int, Field(ge=0)] = 0
    """Number of failed requests. errors.jsonl has the reasons."""
    progress: str = ""
    """`done/total`, for `kubectl get`. done counts completed and failed requests."""
    start_time: Moment | None = None
    """Time at which the Job started."""
    completion_time: Moment | None = None
    """Time at which the Job completed or failed."""
    conditions: Annotated[
        list[Condition],
        Field(json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}),
    ] = Field(default_factory=list)
    """Conditions: Running, Complete, Failed."""

    @property
    def finished(self) -> bool:
        """Whether the batch has completed or failed."""
        return self.phase in {"Complete", "Failed"}
