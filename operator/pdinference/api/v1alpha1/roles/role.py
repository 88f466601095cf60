"""`spec.parameter` and `spec.decode`: how many pods, on which devices and nodes, with which resources."""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, WithJsonSchema

from pdinference.api.quantities import quantity
from pdinference.api.v1alpha1.autoscaling import Autoscaling
from pdinference.api.v1alpha1.base import (
    ApiModel,
    AsJson,
    LabelValue,
    ObjectName,
    QualifiedName,
    Quantity,
    Rule,
)
from pdinference.api.v1alpha1.engine import EngineOptions
from pdinference.api.v1alpha1.roles.accelerator import MAX_CLAIMED, Accelerator
from pdinference.api.v1alpha1.roles.kv_tiers import KVTiers


class Parallelism(ApiModel):
    """How one instance of the model is split over devices."""

    tensor: Annotated[int, Field(ge=1, le=64)] = 1
    """Tensor-parallel size: over how many devices each layer is sharded."""
    pipeline: Annotated[int, Field(ge=1, le=64)] = 1
    """Pipeline-parallel size: into how many stages of consecutive layers the model is cut, each on devices of its
    own. Only P can have several."""
    layer_partition: Annotated[list[Annotated[int, Field(ge=1, le=1024)]], Field(max_length=64)] = Field(
        default_factory=list
    )
    """Number of layers in each pipeline stage, for example [24, 8] to give the first stage more. Default: even."""
    data: Annotated[int, Field(ge=1, le=64)] = 1
    """Data-parallel size: how many copies of the model one instance runs behind one address, each on devices of its
    own. For mixture-of-experts models together with expert; else prefer more replicas."""
    nodes: Annotated[int, Field(ge=1, le=16)] = 1
    """Over how many nodes an instance of P spreads, with a pod and an equal share of the devices on each."""
    expert: bool = False
    """Whether the experts of a mixture-of-experts model are spread over all devices of the instance instead of each
    being sharded like other layers."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="!has(self.layerPartition) || self.layerPartition.size() in [0, self.pipeline]",
            holds=lambda p: len(p.layer_partition) in {0, p.pipeline},
            field="layerPartition",
            message="Give one number of layers for each pipeline stage (parallelism.pipeline).",
        ),
        Rule(
            cel="self.tensor * self.pipeline * self.data % self.nodes == 0",
            holds=lambda p: p.devices % p.nodes == 0,
            field="nodes",
            message="Use a divisor of tensor x pipeline, so that each node has the same number of devices.",
        ),
        Rule(
            cel="self.nodes == 1 || self.data == 1",
            holds=lambda p: p.nodes == 1 or p.data == 1,
            field="data",
            message="Use 1 for an instance of several nodes, and more replicas instead.",
        ),
    )

    @property
    def devices(self) -> int:
        """Devices of one instance."""
        return self.tensor * self.pipeline * self.data

    @property
    def devices_per_pod(self) -> int:
        """Devices of each of the instance's pods."""
        return self.devices // self.nodes


class SelectorRequirement(ApiModel):
    """A condition on one node label, as in the Kubernetes API."""

    key: QualifiedName
    """Label key."""
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]
    """How the label relates to the values."""
    values: Annotated[list[LabelValue], Field(max_length=32)] | None = None
    """None for Exists and DoesNotExist, one integer for Gt and Lt."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="(self.operator in ['Exists', 'DoesNotExist']) == (!has(self.values) || self.values.size() == 0)",
            holds=lambda r: (r.operator in {"Exists", "DoesNotExist"}) == (not r.values),
            field="values",
            message="Exists and DoesNotExist take none, the others at least one.",
        ),
        Rule(
            cel="!(self.operator in ['Gt', 'Lt']) || (has(self.values) && self.values.size() == 1 "
            "&& self.values[0].matches('^-?[0-9]+$'))",
            holds=lambda r: (
                r.operator not in {"Gt", "Lt"}
                or (r.values is not None and len(r.values) == 1 and r.values[0].lstrip("-").isdigit())
            ),
            field="values",
            message="Gt and Lt take exactly one integer.",
        ),
    )


class NodeSelectorTerm(ApiModel):
    """Conditions that a node must meet together."""

    match_expressions: Annotated[list[SelectorRequirement], Field(min_length=1, max_length=16)]
    """Conditions on the node's labels, all of which must hold."""


class RequiredNodes(ApiModel):
    """Node conditions that must be met."""

    node_selector_terms: Annotated[list[NodeSelectorTerm], Field(min_length=1, max_length=8)]
    """Alternatives, of which one must hold."""


class PreferredNodes(ApiModel):
    """Node conditions that are preferred."""

    weight: Annotated[int, Field(ge=1, le=100)]
    """How much this preference counts."""
    preference: NodeSelectorTerm
    """The preferred nodes."""


class NodeAffinity(ApiModel):
    """On which nodes pods must, or had better, run; the Kubernetes API's own shape."""

    required_during_scheduling_ignored_during_execution: RequiredNodes | None = None
    """Nodes that pods must run on."""
    preferred_during_scheduling_ignored_during_execution: (
        Annotated[list[PreferredNodes], Field(max_length=8)] | None
    ) = None
    """Nodes that pods had better run on."""


class Toleration(ApiModel):
    """A node taint that pods accept, as in the Kubernetes API."""

    key: QualifiedName | None = None
    """Taint key; none, with operator Exists, means every taint."""
    operator: Literal["Exists", "Equal"] = "Equal"
    """Whether the taint's value counts."""
    value: LabelValue | None = None
    """Taint value, for Equal."""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    """Taint effect; none means every effect."""
    toleration_seconds: Annotated[int, Field(ge=0)] | None = None
    """How long pods stay after a NoExecute taint appears; none means for ever."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="has(self.key) || self.operator == 'Exists'",
            holds=lambda t: t.key is not None or t.operator == "Exists",
            field="operator",
            message="Only operator Exists goes without a key; add the key of the taint.",
        ),
        Rule(
            cel="self.operator != 'Exists' || !has(self.value) || self.value == ''",
            holds=lambda t: t.operator != "Exists" or not t.value,
            field="value",
            message="Operator Exists takes no value.",
        ),
        Rule(
            cel="!has(self.tolerationSeconds) || (has(self.effect) && self.effect == 'NoExecute')",
            holds=lambda t: t.toleration_seconds is None or t.effect == "NoExecute",
            field="tolerationSeconds",
            message="Only effect NoExecute takes it.",
        ),
    )


class TopologySpread(ApiModel):
    """How evenly the pods of the role spread over nodes, racks or zones. The pods are selected for you."""

    topology_key: QualifiedName
    """Node label whose values are the domains, for example `topology.kubernetes.io/zone`."""
    max_skew: Annotated[int, Field(ge=1)] = 1
    """By how many pods two domains may differ."""
    when_unsatisfiable: Literal["DoNotSchedule", "ScheduleAnyway"] = "ScheduleAnyway"
    """What the scheduler does when no placement keeps to maxSkew."""


class Placement(ApiModel):
    """Where the pods of a role may run."""

    node_selector: Annotated[dict[QualifiedName, LabelValue], Field(max_length=32)] = Field(default_factory=dict)
    """Node labels that must all match."""
    node_affinity: NodeAffinity | None = None
    """Richer conditions on nodes."""
    tolerations: Annotated[list[Toleration], Field(max_length=32)] = Field(default_factory=list)
    """Node taints that the pods accept."""
    topology_spread: Annotated[list[TopologySpread], Field(max_length=8)] = Field(default_factory=list)
    """How the pods spread over topology domains."""
    priority_class_name: ObjectName | None = None
    """PriorityClass of the pods. Default: the cluster's."""
    runtime_class_name: ObjectName | None = None
    """RuntimeClass of the pods, for example one of an accelerator's vendor. Default: the node's."""
    scheduler_name: ObjectName | None = None
    """Scheduler that places the pods. Default: the cluster's."""
    queue_name: LabelValue | None = None
    """Kueue LocalQueue that admits the pods (label kueue.x-k8s.io/queue-name)."""


class Resources(ApiModel):
    """CPU, memory and other resources of a container. Accelerators are added by the operator."""

    requests: Annotated[dict[QualifiedName, Quantity], Field(max_length=16)] = Field(default_factory=dict)
    """What the scheduler reserves."""
    limits: Annotated[dict[QualifiedName, Quantity], Field(max_length=16)] = Field(default_factory=dict)
    """What the container may use at most."""


PodTemplate = Annotated[
    dict[str, Any],
    AsJson,
    WithJsonSchema({"type": "object", "x-kubernetes-preserve-unknown-fields": True, "maxProperties": 2}),
]
"""An overlay on a pod template: `metadata` (labels, annotations) and `spec`, in the API's own form."""


class RoleSpec(EngineOptions):
    """One side of the pair."""

    replicas: Annotated[int, Field(ge=0, le=1000)] = 1
    """Number of instances, each a pod with all of the model's weights. With autoscaling: how many at first; then only 0
    still counts, which stops the role."""
    autoscaling: Autoscaling | None = None
    """Lets the load decide how many instances there are."""
    parallelism: Parallelism = Field(default_factory=Parallelism)
    """How each instance is split over devices."""
    accelerator: Accelerator = Field(default_factory=Accelerator)
    """The devices of each instance."""
    placement: Placement = Field(default_factory=Placement)
    """Where the pods may run."""
    resources: Resources = Field(default_factory=Resources)
    """CPU and memory of the vLLM container."""
    kv_tiers: KVTiers | None = None
    """Where the KV cache overflows to. D keeps what requests have generated when they make room for others; P keeps
    prompts, so that the same beginning is not computed twice. Default: nowhere."""
    pod_template: PodTemplate = Field(default_factory=dict)
    """What has no field: `metadata` and `spec` of a pod, merged into the pods of the role (strategic merge), for
    example imagePullSecrets, volumes, or a side-car. docs/resource.md lists what is allowed."""

    @property
    def products(self) -> list[str]:
        """Accelerator products that any of the pods may run on; empty for any."""
        return self.accelerator.products

    @property
    def autoscaled(self) -> bool:
        """Whether the load decides how many instances there are."""
        return self.autoscaling is not None and self.replicas > 0

    @property
    def gpus(self) -> int:
        """GPUs of one instance, over all its nodes."""
        return 0 if self.accelerator.type == "CPU" else self.parallelism.devices

    @property
    def least_replicas(self) -> int:
        """As few instances as there may be."""
        return self.autoscaling.min_replicas if self.autoscaling is not None and self.autoscaled else self.replicas

    rules: ClassVar[tuple[Rule, ...]] = (
        *EngineOptions.rules,
        Rule(
            cel="[has(self.resources.requests) && self.accelerator.resourceName in self.resources.requests, "
            "has(self.resources.limits) && self.accelerator.resourceName in self.resources.limits].all(x, !x)",
            holds=lambda r: r.accelerator.resource_name not in {**r.resources.requests, **r.resources.limits},
            field="resources",
            message="Leave the accelerator out; the operator requests one for each rank (parallelism: tensor x "
            "pipeline x data).",
        ),
        Rule(
            cel="!has(self.accelerator.devices) || self.parallelism.tensor * self.parallelism.pipeline * "
            f"self.parallelism.data <= {MAX_CLAIMED}",
            holds=lambda r: r.accelerator.devices is None or r.parallelism.devices <= MAX_CLAIMED,
            field="parallelism",
            message=f"A pod can claim {MAX_CLAIMED} devices at most (accelerator.devices).",
        ),
        Rule(
            cel="!has(self.kvTiers) || !has(self.resources.limits) || !('memory' in self.resources.limits) || "
            "quantity(string(self.resources.limits['memory'])).compareTo(quantity(string(self.kvTiers.cpu.size))) > 0",
            holds=lambda r: r.kv_tiers is None or _more(r.resources.limits.get("memory"), r.kv_tiers.cpu.size),
            field="resources.limits",
            message="Raise memory: it has to hold the CPU tier (kvTiers.cpu.size) besides what vLLM itself needs.",
        ),
    )


def _more(limit: str | None, size: str) -> bool:
    """Whether a limit, if there is one, is above a size."""
    return limit is None or (quantity(limit) or 0) > (quantity(size) or 0)
