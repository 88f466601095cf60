"""The `PDBatch` resource: many requests from a file, answered by a `PDInference`, into a file."""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from pdinference.api.v1alpha1.base import ApiModel, LabelValue, Matches, Moment, ObjectName, QualifiedName, Rule
from pdinference.api.v1alpha1.model import ConfigMapKey
from pdinference.api.v1alpha1.resource import Metadata
from pdinference.api.v1alpha1.roles.role import Resources, Toleration
from pdinference.api.v1alpha1.source import RelativePath
from pdinference.api.v1alpha1.status import Condition

_NAME_LIMIT = 52
"""Longest name of a PDBatch: with `-batch` and the suffix of a pod it stays within the 63 characters of a label."""
_NAME_PATTERN = f"^[a-z]([-a-z0-9]{{0,{_NAME_LIMIT - 2}}}[a-z0-9])?$"
_NAME_MESSAGE = (
    f"Use at most {_NAME_LIMIT} lower-case letters, digits and dashes, a letter first and no dash last: with a suffix "
    "it becomes the name of a Job and of its pods."
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
    """File within the volume, relative to its root."""


class ClaimFolder(ApiModel):
    """A folder on a PersistentVolumeClaim in the namespace of the PDBatch."""

    claim_name: ObjectName
    """Name of the claim. Group 65532 must be able to write; volumes that Kubernetes can hand over to a group are."""
    path: RelativePath | None = None
    """Folder within the volume, relative to its root; made when it is not there. Default: the name of the PDBatch."""


class BatchInput(ApiModel):
    """The requests, in the format of OpenAI's and vLLM's batch files: exactly one of the members."""

    persistent_volume_claim: ClaimFile | None = None
    """A file on a PersistentVolumeClaim."""
    config_map: ConfigMapKey | None = None
    """A key of a ConfigMap, which holds at most 1 MiB."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="has(self.persistentVolumeClaim) != has(self.configMap)",
            holds=lambda i: (i.persistent_volume_claim is None) != (i.config_map is None),
            message="Set exactly one of persistentVolumeClaim and configMap.",
        ),
    )


class OutputConfigMap(ApiModel):
    """A ConfigMap that the operator creates; it belongs to the PDBatch, and is deleted with it."""

    name: ObjectName
    """Name of the ConfigMap. One of this name that exists already is left alone, and the batch waits."""


class BatchOutput(ApiModel):
    """Where the answers go: output.jsonl and, for requests that failed, errors.jsonl; exactly one of the members."""

    persistent_volume_claim: ClaimFolder | None = None
    """A folder on a PersistentVolumeClaim."""
    config_map: OutputConfigMap | None = None
    """A ConfigMap, for up to 1 MB of answers; a batch that has more fails, with those that fit kept."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="has(self.persistentVolumeClaim) != has(self.configMap)",
            holds=lambda o: (o.persistent_volume_claim is None) != (o.config_map is None),
            message="Set exactly one of persistentVolumeClaim and configMap.",
        ),
    )


class BatchPlacement(ApiModel):
    """Where the runner may run. It needs no accelerator."""

    node_selector: Annotated[dict[QualifiedName, LabelValue], Field(max_length=32)] = Field(default_factory=dict)
    """Node labels that must all match."""
    tolerations: Annotated[list[Toleration], Field(max_length=32)] = Field(default_factory=list)
    """Node taints that the runner accepts."""
    priority_class_name: ObjectName | None = None
    """PriorityClass of the runner. Default: the cluster's."""


_FIXED = (
    "inferenceRef",
    "input",
    "output",
    "concurrency",
    "maxRetries",
    "requestTimeoutSeconds",
    "resources",
    "placement",
)
_MAY_CHANGE = {"suspend", "timeout_seconds", "ttl_seconds_after_finished"}
FIXED_RULE = Rule(
    # All but model are always there, by their defaults. `self.?model` is shorter, but costs CEL too much.
    cel="has(self.model) == has(oldSelf.model) && (!has(self.model) || self.model == oldSelf.model) && "
    + " && ".join(f"self.{field} == oldSelf.{field}" for field in _FIXED),
    holds=lambda _: True,  # a transition: `asks_the_same` says it where there is an older object
    message="A batch that exists cannot be changed, apart from suspend, timeoutSeconds and ttlSecondsAfterFinished. "
    "Delete it and create another; with the same input and output it goes on where this one stopped.",
)


class BatchSpec(ApiModel):
    """What to ask whom. Only suspend, timeoutSeconds and ttlSecondsAfterFinished can be changed later."""

    inference_ref: InferenceReference
    """Who answers. The batch starts when this PDInference is Ready."""
    input: BatchInput
    """The requests."""
    output: BatchOutput
    """The answers."""
    concurrency: Annotated[int, Field(ge=1, le=1024)] = 16
    """Requests under way at a time. More than vLLM can take at once wait in its queue, and in front of other clients'
    requests."""
    model: (
        Annotated[
            str,
            Field(max_length=253),
            Matches(
                "^[A-Za-z0-9][A-Za-z0-9_./:-]*$",
                "Write a model name as clients send it: letters, digits and . _ / : -, a letter or digit first.",
            ),
        ]
        | None
    ) = None
    """Model of every request, whatever its line says, for example a LoRA adapter. Default: what the line says, and for
    a line that says nothing the name that the PDInference serves."""
    max_retries: Annotated[int, Field(ge=0, le=20)] = 5
    """How often a request that failed for a passing reason is sent again, with growing pauses."""
    request_timeout_seconds: Annotated[int, Field(ge=1, le=86400)] = 600
    """How long one answer may take."""
    timeout_seconds: Annotated[int, Field(ge=1, le=31536000)] | None = None
    """How long the whole batch may take. Default: as long as it needs."""
    ttl_seconds_after_finished: Annotated[int, Field(ge=60, le=31536000)] | None = None
    """When the Job and its pod, with its log, are removed after the end. Default: with the PDBatch, which stays."""
    suspend: bool = False
    """Whether to pause. The runner stops; later it goes on with what is not answered yet."""
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
            message="Name another ConfigMap than that of the input; the operator creates it.",
        ),
        FIXED_RULE,
    )

    def asks_the_same(self, other: "BatchSpec") -> bool:
        """Whether they differ in nothing but what may be changed."""
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
    """Many requests from a file, answered by a PDInference, into a file."""

    api_version: Literal["pdinference.io/v1alpha1"] = "pdinference.io/v1alpha1"
    """Version of the schema."""
    kind: Literal["PDBatch"] = "PDBatch"
    """Kind of resource."""
    metadata: BatchMetadata
    """Name, namespace and identity."""
    spec: BatchSpec
    """What to ask whom."""
    status: Annotated[dict[str, Any], Field(exclude=True)] = Field(default_factory=dict)
    """What the operator saw and did; not read from here."""

    rules: ClassVar[tuple[Rule, ...]] = (BATCH_NAME_RULE,)


BatchPhase = Literal["Waiting", "Pending", "Running", "Suspended", "Complete", "Failed"]


class BatchStatus(ApiModel):
    """How far the batch is."""

    observed_generation: Annotated[int, Field(ge=0)] = 0
    """metadata.generation that the operator acted on last."""
    phase: BatchPhase = "Waiting"
    """Waiting for the PDInference, Pending (the runner does not run yet), Running, Suspended, Complete or Failed."""
    total: Annotated[int, Field(ge=0)] = 0
    """Requests in the input; 0 until the runner has read it."""
    completed: Annotated[int, Field(ge=0)] = 0
    """Requests that were answered and whose answer is on disk."""
    failed: Annotated[int, Field(ge=0)] = 0
    """Requests that were given up; errors.jsonl says why."""
    progress: str = ""
    """`done/total`, for printing; done are those that were answered or given up."""
    start_time: Moment | None = None
    """When the Job started."""
    completion_time: Moment | None = None
    """When the Job ended, well or not."""
    conditions: Annotated[
        list[Condition],
        Field(json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}),
    ] = Field(default_factory=list)
    """Conditions: Running, Complete, Failed."""

    @property
    def finished(self) -> bool:
        """Whether nothing more will happen."""
        return self.phase in {"Complete", "Failed"}
