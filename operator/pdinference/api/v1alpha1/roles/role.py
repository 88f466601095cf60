"""Settings that P and D share: replica count, devices, nodes, resources.

Tests: tests/api/test_validation.py, tests/checks/test_scaling.py, tests/integration/test_crd.py
"""

from typing import Annotated, Any, ClassVar, Final, Literal

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

MOST_NODES: Final = 16
"""Nodes of an instance."""
MOST_RANKS: Final = 64
"""Data-parallel ranks of an instance."""


class Parallelism(ApiModel):
    """How an instance of the model is split over devices."""

    tensor: Annotated[int, Field(ge=1, le=64)] = 1
    """Tensor-parallel size: the number of devices that each layer is sharded over."""
    pipeline: Annotated[int, Field(ge=1, le=64)] = 1
    """Pipeline-parallel size: the number of stages of layers. Only P can have more than one."""
    layer_partition: Annotated[list[Annotated[int, Field(ge=1, le=1024)]], Field(max_length=64)] = Field(
        default_factory=list
    )
    """Number of layers in each pipeline stage, for example [24, 8]. Default: an even partition."""
    data: Annotated[int, Field(ge=1, le=MOST_RANKS)] = 1
    """Data-parallel size: copies of the model behind one address. Use it with expert for mixture-of-experts models; for
    others, use more replicas."""
    nodes: Annotated[int, Field(ge=1, le=MOST_NODES)] = 1
    """Number of nodes of an instance. Each node runs one pod with an equal share of the devices."""
    expert: bool = False
    """Enables expert parallelism: whole experts are distributed over the devices of the instance."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="!has(self.layerPartition) || self.layerPartition.size() in [0, self.pipeline]",
            holds=lambda p: len(p.layer_partition) in {0, p.pipeline},
            field="layerPartition",
            message="Set one number of layers for each pipeline stage (parallelism.pipeline).",
        ),
        Rule(
            cel="self.data > 1 || self.tensor * self.pipeline % self.nodes == 0",
            holds=lambda p: p.data > 1 or p.devices % p.nodes == 0,
            field="nodes",
            message="Use a divisor of tensor x pipeline: each node needs the same number of devices.",
        ),
        Rule(
            cel="self.nodes == 1 || self.data == 1 || !self.expert || self.data % self.nodes == 0",
            holds=lambda p: p.nodes == 1 or p.data == 1 or not p.expert or p.data % p.nodes == 0,
            field="data",
            message="Use a multiple of nodes: no rank is on two nodes.",
        ),
        Rule(
            cel="self.nodes == 1 || self.data == 1 || self.expert",
            holds=lambda p: p.nodes == 1 or p.data == 1 or p.expert,
            field="data",
            message="Use 1 with nodes above 1, and more replicas instead. For a mixture of experts, set expert: true.",
        ),
    )

    @property
    def expert_devices(self) -> int:
        """Devices of an instance that share the experts of a layer."""
        return self.tensor * self.data

    @property
    def exchanges_tokens(self) -> bool:
        """Whether tokens go to experts of other data-parallel ranks (`use_all2all_kernels` of vLLM's fused_moe)."""
        return self.expert and self.data > 1

    @property
    def spreads_experts(self) -> bool:
        """Whether there are several devices over which experts are spread."""
        return self.expert and self.expert_devices > 1

    @property
    def devices(self) -> int:
        """Devices of one instance."""
        return self.tensor * self.pipeline * self.data

    @property
    def devices_per_pod(self) -> int:
        """Devices of each of the instance's pods."""
        return self.devices // self.nodes


class SelectorRequirement(ApiModel):
    """A requirement on a node label."""

    key: QualifiedName
    """Label key."""
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]
    """Relation of label and values."""
    values: Annotated[list[LabelValue], Field(max_length=32)] | None = None
    """Values; none for Exists, DoesNotExist; one for Gt, Lt."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="(self.operator in ['Exists', 'DoesNotExist']) == (!has(self.values) || self.values.size() == 0)",
            holds=lambda r: (r.operator in {"Exists", "DoesNotExist"}) == (not r.values),
            field="values",
            message="Exists and DoesNotExist take no values. All other operators need at least one.",
        ),
        Rule(
            cel="!(self.operator in ['Gt', 'Lt']) || (has(self.values) && self.values.size() == 1 "
            "&& self.values[0].matches('^-?[0-9]+$'))",
            holds=lambda r: (
                r.operator not in {"Gt", "Lt"}
                or (r.values is not None and len(r.values) == 1 and r.values[0].lstrip("-").isdigit())
            ),
            field="values",
            message="Gt and Lt need exactly one integer.",
        ),
    )


class NodeSelectorTerm(ApiModel):
    """Requirements on a node. All must be met."""

    match_expressions: Annotated[list[SelectorRequirement], Field(min_length=1, max_length=16)]
    """Requirements, all to be met."""


class RequiredNodes(ApiModel):
    """Nodes that pods must run on."""

    node_selector_terms: Annotated[list[NodeSelectorTerm], Field(min_length=1, max_length=8)]
    """Alternative terms. A node must meet at least one."""


class PreferredNodes(ApiModel):
    """Nodes that the scheduler prefers."""

    weight: Annotated[int, Field(ge=1, le=100)]
    """Weight of this preference."""
    preference: NodeSelectorTerm
    """The preferred nodes."""


class NodeAffinity(ApiModel):
    """Node affinity, in the form of the Kubernetes API."""

    required_during_scheduling_ignored_during_execution: RequiredNodes | None = None
    """Nodes that pods must run on."""
    preferred_during_scheduling_ignored_during_execution: (
        Annotated[list[PreferredNodes], Field(max_length=8)] | None
    ) = None
    """Nodes that the scheduler prefers."""


class Toleration(ApiModel):
    """A node taint that pods tolerate, as in the Kubernetes API."""

    key: QualifiedName | None = None
    """Taint key. Empty with operator Exists: all taints."""
    operator: Literal["Exists", "Equal"] = "Equal"
    """Exists ignores the taint's value; Equal compares it."""
    value: LabelValue | None = None
    """Taint value for Equal."""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    """Taint effect. Empty: all effects."""
    toleration_seconds: Annotated[int, Field(ge=0)] | None = None
    """Seconds that pods stay after a NoExecute taint. Empty: forever."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="has(self.key) || self.operator == 'Exists'",
            holds=lambda t: t.key is not None or t.operator == "Exists",
            field="operator",
            message="Operator Equal needs a key. Set the key of the taint, or use operator Exists.",
        ),
        Rule(
            cel="self.operator != 'Exists' || !has(self.value) || self.value == ''",
            holds=lambda t: t.operator != "Exists" or not t.value,
            field="value",
            message="Operator Exists takes no value. Remove value.",
        ),
        Rule(
            cel="!has(self.tolerationSeconds) || (has(self.effect) && self.effect == 'NoExecute')",
            holds=lambda t: t.toleration_seconds is None or t.effect == "NoExecute",
            field="tolerationSeconds",
            message="Set tolerationSeconds only with effect NoExecute.",
        ),
    )


class TopologySpread(ApiModel):
    """A topology spread constraint. The operator sets the label selector."""

    topology_key: QualifiedName
    """Node label of the topology domains, for example `topology.kubernetes.io/zone`."""
    max_skew: Annotated[int, Field(ge=1)] = 1
    """Maximum difference in the number of pods between two domains."""
    when_unsatisfiable: Literal["DoNotSchedule", "ScheduleAnyway"] = "ScheduleAnyway"
    """What the scheduler does if no placement satisfies maxSkew."""


class Placement(ApiModel):
    """Where the pods of a role may run."""

    node_selector: Annotated[dict[QualifiedName, LabelValue], Field(max_length=32)] = Field(default_factory=dict)
    """Required node labels."""
    node_affinity: NodeAffinity | None = None
    """Node affinity of the pods."""
    tolerations: Annotated[list[Toleration], Field(max_length=32)] = Field(default_factory=list)
    """Node taints that the pods tolerate."""
    topology_spread: Annotated[list[TopologySpread], Field(max_length=8)] = Field(default_factory=list)
    """Topology spread constraints of the pods."""
    priority_class_name: ObjectName | None = None
    """PriorityClass of the pods. Default: the default of the cluster."""
    runtime_class_name: ObjectName | None = None
    """RuntimeClass of the pods. Default: the default of the node."""
    scheduler_name: ObjectName | None = None
    """Scheduler of the pods. Default: the default of the cluster."""
    queue_name: LabelValue | None = None
    """Kueue LocalQueue that admits the pods."""


class EnginePlacement(Placement):
    """Where the pods of P or D may run."""

    domain: QualifiedName | None = None
    """Node label of NVLink domains or racks: all nodes of an instance are in one. Default: anywhere."""


class Resources(ApiModel):
    """CPU, memory and other resources of a container. The operator adds the accelerators."""

    requests: Annotated[dict[QualifiedName, Quantity], Field(max_length=16)] = Field(default_factory=dict)
    """Resources that the scheduler reserves."""
    limits: Annotated[dict[QualifiedName, Quantity], Field(max_length=16)] = Field(default_factory=dict)
    """Maximum resources of the container."""


PodTemplate = Annotated[
    dict[str, Any],
    AsJson,
    WithJsonSchema({"type": "object", "x-kubernetes-preserve-unknown-fields": True, "maxProperties": 2}),
]
"""An overlay on a pod template: `metadata` (labels, annotations) and `spec`, in the form of the Kubernetes API."""


class RoleSpec(EngineOptions):
    """Settings of one role."""

    replicas: Annotated[int, Field(ge=0, le=1000)] = 1
    """Number of instances. With autoscaling, it is the initial number; later only 0 has an effect, which stops the
    role."""
    autoscaling: Autoscaling | None = None
    """Autoscaling of the role by its load. Default: off."""
    parallelism: Parallelism = Field(default_factory=Parallelism)
    """How each instance is split over devices."""
    accelerator: Accelerator = Field(default_factory=Accelerator)
    """The devices of each instance."""
    placement: EnginePlacement = Field(default_factory=EnginePlacement)
    """Where the pods may run."""
    resources: Resources = Field(default_factory=Resources)
    """CPU and memory of the vLLM container."""
    kv_tiers: KVTiers | None = None
    """Storage for KV blocks outside the device's memory: in D of preempted requests, in P of prompts for common
    prefixes. Default: none."""
    pod_template: PodTemplate = Field(default_factory=dict)
    """Overlay with `metadata` and `spec` of a pod, for settings without a field, for example volumes or a
    sidecar. It is merged into the pods of the role. docs/pods.md lists the permitted fields."""

    @property
    def products(self) -> list[str]:
        """Accelerator products that the pods may run on; empty for any."""
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
            cel="!has(self.placement.domain) || self.parallelism.nodes > 1",
            holds=lambda r: r.placement.domain is None or r.parallelism.nodes > 1,
            field="placement.domain",
            message="Remove it: an instance on one node needs none.",
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
