"""The `PDInference` resource as a whole.

Tests: tests/api/test_validation.py, tests/api/test_host_local.py, tests/api/test_mode.py
"""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import ConfigDict, Field

from pdinference.api.names import ENGINE_ROLES, NAME_MAX_LENGTH, Role
from pdinference.api.v1alpha1.base import ApiModel, Matches, NamespaceName, QualifiedName, Rule
from pdinference.api.v1alpha1.compile_cache import COMPILE_CACHE_RULES
from pdinference.api.v1alpha1.connector_rules import CONNECTOR_RULES
from pdinference.api.v1alpha1.engine import Engine
from pdinference.api.v1alpha1.host_local_rules import HOST_LOCAL_RULES
from pdinference.api.v1alpha1.mode import Mode, of_the_pair
from pdinference.api.v1alpha1.model import Model
from pdinference.api.v1alpha1.objectives import Objectives
from pdinference.api.v1alpha1.pair_autoscaling import MetricsSource, PairAutoscaling
from pdinference.api.v1alpha1.roles.parameter import ParameterSpec
from pdinference.api.v1alpha1.roles.pinning import with_products_of
from pdinference.api.v1alpha1.roles.role import RoleSpec
from pdinference.api.v1alpha1.router import Router
from pdinference.api.v1alpha1.scale_to_zero import SLEEP_RULES, ScaleToZero
from pdinference.api.v1alpha1.scaling_rules import SCALING_RULES
from pdinference.api.v1alpha1.traces import Traces
from pdinference.api.v1alpha1.transfer import RDMA, HostLocal, Transfer

FEWER_DECODE_RANKS = (
    "Use a multiple of spec.parameter.parallelism.tensor: NIXL cannot hand the KV cache of a P instance to a D "
    "instance with fewer tensor-parallel ranks, unless the model has MLA (kv_lora_rank) and spec.model.architecture "
    "says so."
)


class Rollout(ApiModel):
    """How a new revision of P and D replaces the running one. Pods of different revisions never work together."""

    strategy: Literal["BlueGreen", "Recreate"] = "BlueGreen"
    """BlueGreen starts the new revision beside the old one, moves traffic when it is ready, and then drains the old
    one. It needs devices for both revisions. Recreate drains the old revision first. It needs no spare devices, but
    requests fail until the new revision is ready."""
    drain_seconds: Annotated[int, Field(ge=40, le=86400)] = 120
    """Maximum time, in seconds, for a terminating P or D pod to finish its requests. P keeps the KV cache of a prompt
    for up to 30 seconds until D has pulled it."""
    progress_deadline_seconds: Annotated[int | None, Field(ge=10, le=604800)] = None
    """Time without progress, in seconds, after which a roll-out is reported as stalled. Default: engine.startupSeconds
    plus 600."""


class Colocation(ApiModel):
    """Places D pods near P pods, which makes KV transfers faster."""

    topology_key: QualifiedName
    """Node label that defines the topology domain, for example `kubernetes.io/hostname`, a rack label, or
    `topology.kubernetes.io/zone`. D pods run in a domain that has P pods."""
    required: bool = False
    """If true, D pods stay Pending when no node of such a domain has room. If false, they may run elsewhere."""


_D_HAS_THE_RANKS_OF_P = Rule(
    # With MLA every rank holds the whole KV cache. checks/pair.py verifies that the model uses MLA.
    cel="self.decode.parallelism.tensor % self.parameter.parallelism.tensor == 0 || "
    "(has(self.model.architecture) && self.parameter.parallelism.tensor % self.decode.parallelism.tensor == 0)",
    holds=lambda s: (
        s.decode.parallelism.tensor % s.parameter.parallelism.tensor == 0
        or (s.model.architecture is not None and s.parameter.parallelism.tensor % s.decode.parallelism.tensor == 0)
    ),
    field="decode.parallelism.tensor",
    message=FEWER_DECODE_RANKS,
)


def _prefix_caching_feeds_tiers(role: Role) -> Rule:
    own = f"self.{role}"
    return Rule(
        cel=f"!has({own}.kvTiers) || (has({own}.enablePrefixCaching) "
        f"? {own}.enablePrefixCaching : !has(self.engine.enablePrefixCaching) || self.engine.enablePrefixCaching)",
        holds=lambda s: s.of(role).kv_tiers is None or s.caches_prefixes(role),
        field=f"{role}.kvTiers",
        message="kvTiers need prefix caching, which looks up stored blocks. Remove enablePrefixCaching: false.",
    )


class Spec(ApiModel):
    """Desired state of a PDInference."""

    model: Model
    """The model to serve."""
    engine: Engine = Field(default_factory=Engine)
    """Settings of vLLM for both roles."""
    mode: Mode = "Disaggregated"
    """Disaggregated: P computes the prompts, D generates the tokens. Aggregated: D does both, there are no P pods, and
    fields of P and of the KV transfer have no effect. They may stay, so that one line changes the mode."""
    parameter: ParameterSpec = Field(default_factory=ParameterSpec)
    """The parameter role (P): it holds the sharded weights, prefills prompts and produces the KV cache. It runs as one
    StatefulSet for each node of an instance."""
    decode: RoleSpec = Field(default_factory=RoleSpec)
    """The decode role (D): it receives the KV cache and generates tokens. It runs as a Deployment; on several nodes, as
    P does."""
    autoscaling: PairAutoscaling | None = None
    """Autoscaling settings that apply to P and D together, in addition to `autoscaling` of each role."""
    colocation: Colocation | None = None
    """Places D pods near P pods. Default: no constraint."""
    transfer: Transfer = Field(default_factory=Transfer)
    """How the KV cache moves from P to D."""
    router: Router = Field(default_factory=Router)
    """The router, which gives clients a single address."""
    objectives: Objectives | None = None
    """Latencies that streamed answers should keep. Reported, and used by `router.disaggregation`."""
    rollout: Rollout = Field(default_factory=Rollout)
    """How spec changes reach running pods."""
    traces: Traces | None = None
    """Spans of each request in the router, P and D. Default: none, or those of the router that the chart sets up."""
    memory_policy: Literal["Enforce", "Warn"] = "Enforce"
    """What to do if the memory plan shows that the model does not fit its devices. Enforce rejects the spec, and the
    previous revision keeps running. Warn rolls the spec out anyway."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="self.decode.parallelism.pipeline == 1",
            holds=lambda s: s.decode.parallelism.pipeline == 1,
            field="decode.parallelism.pipeline",
            # vllm/distributed/kv_transfer/kv_connector/v1/nixl/base_worker.py refuses it at start.
            message="Use 1: NIXL cannot transfer the KV cache to a D instance with several pipeline stages. If the "
            "model does not fit one device, raise decode.parallelism.tensor.",
        ),
        Rule(
            cel="self.decode.parallelism.nodes == 1 || self.decode.parallelism.data > 1",
            holds=lambda s: s.decode.parallelism.nodes == 1 or s.decode.parallelism.data > 1,
            field="decode.parallelism.nodes",
            message="Use 1, or data-parallel ranks (data) with it. For more memory, raise decode.parallelism.tensor, "
            "or use an fp8 spec.engine.kvCache.dtype.",
        ),
        Rule(
            # Each node derives its defaults from the memory of its own GPUs (vllm/engine/arg_utils.py,
            # get_batch_defaults), but the scheduler of the first node sizes the batches of all.
            cel="!has(self.parameter.nodePools) "
            "|| self.parameter.nodePools.all(p, !has(p.products) || p.products.size() == 0) "
            "|| (has(self.engine.maxNumBatchedTokens) || has(self.parameter.maxNumBatchedTokens)) "
            "&& (has(self.engine.maxNumSeqs) || has(self.parameter.maxNumSeqs))",
            holds=lambda s: (
                not any(pool.products for pool in s.parameter.node_pools)
                or bool(
                    (s.engine.max_num_batched_tokens or s.parameter.max_num_batched_tokens)
                    and (s.engine.max_num_seqs or s.parameter.max_num_seqs)
                )
            ),
            field="parameter.nodePools",
            message="Set maxNumBatchedTokens and maxNumSeqs in spec.parameter too. vLLM's defaults differ between GPU "
            "products, and all nodes of an instance need equal values.",
        ),
        *of_the_pair([_D_HAS_THE_RANKS_OF_P]),
        *COMPILE_CACHE_RULES,
        *(_prefix_caching_feeds_tiers(role) for role in ENGINE_ROLES),
        *of_the_pair(CONNECTOR_RULES),
        *HOST_LOCAL_RULES,
        *SCALING_RULES,
        *SLEEP_RULES,
    )

    def of(self, role: Role, node_rank: int = 0) -> RoleSpec:
        """The spec of one role: P as it applies to one node of an instance, D with the products inherited from P."""
        if role is Role.PARAMETER:
            return self.parameter.on_node(node_rank)
        return with_products_of(self.parameter, self.decode, share_pods=self.host_local is not None)

    def products(self, role: Role) -> list[str]:
        """Accelerator products that the pods of a role may run on, over all nodes of an instance; empty for any."""
        return self.parameter.products if role is Role.PARAMETER else self.of(role).products

    @property
    def engine_roles(self) -> tuple[Role, ...]:
        """The roles that have engines."""
        return (Role.DECODE,) if self.mode == "Aggregated" else ENGINE_ROLES

    @property
    def workload_roles(self) -> tuple[Role, ...]:
        """The roles with pods of their own. With the path HostLocal, P runs in the pods of D."""
        return self.engine_roles if self.host_local is None else (Role.DECODE,)

    @property
    def prefill_pods(self) -> Role:
        """The role whose pods compute the prompts."""
        return self.workload_roles[0]

    def gpus(self, role: Role) -> int:
        """GPUs of one replica of a role: of an instance, or of all instances in a pod with the path HostLocal."""
        return self.devices_per_pod(role) * self.of(role).parallelism.nodes if self.of(role).gpus else 0

    def instances(self, role: Role) -> int:
        """Instances of a role that `replicas` makes."""
        shared = self.host_local
        return self.of(role).replicas if shared is None else self.decode.replicas * shared.of(role)

    def devices_per_pod(self, role: Role) -> int:
        """Devices of one pod of a role."""
        if (shared := self.host_local) is None:
            return self.of(role).parallelism.devices_per_pod
        return sum(shared.of(each) * self.of(each).parallelism.devices for each in ENGINE_ROLES)

    @property
    def transfers_kv(self) -> bool:
        """Whether KV cache moves from P to D."""
        return Role.PARAMETER in self.engine_roles

    @property
    def host_local(self) -> HostLocal | None:
        """The engines of one pod if P and D share pods; None if each instance has its own."""
        if not self.transfers_kv or not self.transfer.is_host_local:
            return None
        return self.transfer.host_local or HostLocal()

    @property
    def rdma(self) -> RDMA | None:
        """RDMA devices for the KV transfer; None without them, or without a transfer."""
        return self.transfer.rdma if self.transfers_kv else None

    @property
    def metrics_source(self) -> MetricsSource:
        """Where autoscalers read load signals."""
        return (self.autoscaling.source if self.autoscaling is not None else None) or "Builtin"

    @property
    def scale_to_zero(self) -> ScaleToZero | None:
        """Settings of scale to zero; None if unset, or if `replicas: 0` stops a role, which no request may restart."""
        if self.autoscaling is None or not all(self.of(role).autoscaled for role in self.workload_roles):
            return None
        return self.autoscaling.scale_to_zero

    def caches_prefixes(self, role: Role) -> bool:
        """Whether a role uses prefix caching, which is vLLM's default."""
        own = self.of(role).enable_prefix_caching
        chosen = self.engine.enable_prefix_caching if own is None else own
        return chosen is not False


_NAME_PATTERN = f"^[a-z]([-a-z0-9]{{0,{NAME_MAX_LENGTH - 2}}}[a-z0-9])?$"
_NAME_MESSAGE = (
    f"Use at most {NAME_MAX_LENGTH} lower-case letters, digits and dashes. Start with a letter and do not end with a "
    "dash. The Service has this name, and pod names begin with it."
)


class Metadata(ApiModel):
    """The part of metadata that the operator uses."""

    model_config = ConfigDict(extra="ignore")

    name: Annotated[str, Matches(_NAME_PATTERN, _NAME_MESSAGE)]
    """Name of the resource and of the Service that clients use."""
    namespace: NamespaceName = "default"
    """Namespace of the resource and of its children."""
    uid: str = ""
    """UID for owner references; empty offline."""
    generation: int = 0
    """Generation of the spec; 0 offline."""


NAME_RULE = Rule(
    cel=f"self.metadata.name.matches('{_NAME_PATTERN}')",
    holds=lambda _: True,  # Metadata says it in Python
    message=f"metadata.name: {_NAME_MESSAGE}",
)


class PDInference(ApiModel):
    """A large language model served by vLLM with separate prefill (P) and decode (D) pods behind one address."""

    api_version: Literal["pdinference.io/v1alpha1"] = "pdinference.io/v1alpha1"
    """Version of the schema."""
    kind: Literal["PDInference"] = "PDInference"
    """Kind of resource."""
    metadata: Metadata
    """Name, namespace and identity."""
    spec: Spec
    """Desired state."""
    status: Annotated[dict[str, Any], Field(exclude=True)] = Field(default_factory=dict)
    """Observed state; validation ignores it."""

    rules: ClassVar[tuple[Rule, ...]] = (NAME_RULE,)
