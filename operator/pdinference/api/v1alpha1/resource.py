"""The `PDInference` resource as a whole."""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import ConfigDict, Field

from pdinference.api.names import ENGINE_ROLES, NAME_MAX_LENGTH, Role
from pdinference.api.v1alpha1.base import ApiModel, Matches, QualifiedName, Rule
from pdinference.api.v1alpha1.connector_rules import CONNECTOR_RULES
from pdinference.api.v1alpha1.engine import Engine
from pdinference.api.v1alpha1.model import Model
from pdinference.api.v1alpha1.pair_autoscaling import MetricsSource, PairAutoscaling
from pdinference.api.v1alpha1.roles.parameter import ParameterSpec
from pdinference.api.v1alpha1.roles.pinning import with_products_of
from pdinference.api.v1alpha1.roles.role import RoleSpec
from pdinference.api.v1alpha1.router import Router
from pdinference.api.v1alpha1.scale_to_zero import SLEEP_RULES, ScaleToZero
from pdinference.api.v1alpha1.scaling_rules import SCALING_RULES
from pdinference.api.v1alpha1.transfer import Transfer

FEWER_DECODE_RANKS = (
    "Use a multiple of spec.parameter.parallelism.tensor: NIXL cannot hand the KV cache of a P instance to a D "
    "instance with fewer tensor-parallel ranks, unless the model has MLA (kv_lora_rank) and spec.model.architecture "
    "says so."
)


class Rollout(ApiModel):
    """How a changed P/D pair replaces the running one. Pods of two revisions never work together."""

    strategy: Literal["BlueGreen", "Recreate"] = "BlueGreen"
    """BlueGreen: the new pair starts beside the old one, traffic moves when it is ready, then the old one drains; needs
    devices for both. Recreate: the old pair drains first; needs no spare devices, and requests fail in between."""
    drain_seconds: Annotated[int, Field(ge=40, le=86400)] = 120
    """Longest time that a stopping P or D pod takes to finish its requests. P keeps the KV cache of a prompt for up to
    30 seconds until D has pulled it."""
    progress_deadline_seconds: Annotated[int | None, Field(ge=10, le=604800)] = None
    """Without progress for so long, a roll-out counts as stuck. Default: engine.startupSeconds and 600."""


class Colocation(ApiModel):
    """D pods close to P pods, so that the KV cache has a short way."""

    topology_key: QualifiedName
    """Node label whose value the two share: `kubernetes.io/hostname` for the same node, a label of racks, or
    `topology.kubernetes.io/zone`."""
    required: bool = False
    """Whether D pods stay Pending rather than run elsewhere."""


def _prefix_caching_feeds_tiers(role: Role) -> Rule:
    own = f"self.{role}"
    return Rule(
        cel=f"!has({own}.kvTiers) || (has({own}.enablePrefixCaching) "
        f"? {own}.enablePrefixCaching : !has(self.engine.enablePrefixCaching) || self.engine.enablePrefixCaching)",
        holds=lambda s: s.of(role).kv_tiers is None or s.caches_prefixes(role),
        field=f"{role}.kvTiers",
        message="Tiers need prefix caching, which finds blocks again; remove enablePrefixCaching: false.",
    )


class Spec(ApiModel):
    """What to serve, and with what."""

    model: Model
    """The model to serve."""
    engine: Engine = Field(default_factory=Engine)
    """vLLM, for both roles."""
    parameter: ParameterSpec = Field(default_factory=ParameterSpec)
    """P: holds the weights, prefills prompts, produces the KV cache. A StatefulSet for each node of an instance."""
    decode: RoleSpec = Field(default_factory=RoleSpec)
    """D: takes over the KV cache and generates tokens. A Deployment."""
    autoscaling: PairAutoscaling | None = None
    """What holds for P and D together, besides the `autoscaling` of each."""
    colocation: Colocation | None = None
    """D pods close to P pods. Default: anywhere."""
    transfer: Transfer = Field(default_factory=Transfer)
    """How the KV cache moves from P to D."""
    router: Router = Field(default_factory=Router)
    """The one address that clients use."""
    rollout: Rollout = Field(default_factory=Rollout)
    """How changes reach running pods."""
    memory_policy: Literal["Enforce", "Warn"] = "Enforce"
    """What happens when the memory plan finds that the model does not fit its devices. Enforce: the change is refused,
    and what runs goes on running. Warn: it is tried all the same."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="self.decode.parallelism.pipeline == 1",
            holds=lambda s: s.decode.parallelism.pipeline == 1,
            field="decode.parallelism.pipeline",
            # vllm/distributed/kv_transfer/kv_connector/v1/nixl/base_worker.py refuses it at start.
            message="Use 1: NIXL cannot hand the KV cache to a D instance of several pipeline stages. Use "
            "decode.parallelism.tensor for a model that does not fit one device.",
        ),
        Rule(
            cel="self.decode.parallelism.nodes == 1",
            holds=lambda s: s.decode.parallelism.nodes == 1,
            field="decode.parallelism.nodes",
            message="Use 1: only instances of P can spread over several nodes. For more memory, use a higher "
            "decode.parallelism.tensor on one node, or an fp8 spec.engine.kvCache.dtype.",
        ),
        Rule(
            # Each node makes its own defaults from the memory of its own GPUs (vllm/engine/arg_utils.py,
            # get_batch_defaults), and the first node's scheduler fills what the others have made.
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
            message="Set maxNumBatchedTokens and maxNumSeqs in spec.parameter too: vLLM's defaults differ between GPU "
            "products, and all nodes of an instance need the same.",
        ),
        Rule(
            # With MLA every rank has the whole KV cache; whether the model has it is checked with its facts.
            cel="self.decode.parallelism.tensor % self.parameter.parallelism.tensor == 0 || "
            "(has(self.model.architecture) && self.parameter.parallelism.tensor % self.decode.parallelism.tensor == 0)",
            holds=lambda s: (
                s.decode.parallelism.tensor % s.parameter.parallelism.tensor == 0
                or (
                    s.model.architecture is not None
                    and s.parameter.parallelism.tensor % s.decode.parallelism.tensor == 0
                )
            ),
            field="decode.parallelism.tensor",
            message=FEWER_DECODE_RANKS,
        ),
        *(_prefix_caching_feeds_tiers(role) for role in ENGINE_ROLES),
        *CONNECTOR_RULES,
        *SCALING_RULES,
        *SLEEP_RULES,
    )

    def of(self, role: Role, node_rank: int = 0) -> RoleSpec:
        """The part that describes P or D: P on one node of an instance, D with the products that it takes from P."""
        if role is Role.PARAMETER:
            return self.parameter.on_node(node_rank)
        return with_products_of(self.parameter, self.decode)

    def products(self, role: Role) -> list[str]:
        """Accelerator products that any pod of P or D may run on, whatever its node; empty for any."""
        return self.parameter.products if role is Role.PARAMETER else self.of(role).products

    @property
    def metrics_source(self) -> MetricsSource:
        """From where autoscalers read the load."""
        return (self.autoscaling.source if self.autoscaling is not None else None) or "Builtin"

    @property
    def scale_to_zero(self) -> ScaleToZero | None:
        """When P and D have no pods; None while a role is stopped by `replicas: 0`, which no request changes."""
        if self.autoscaling is None or not (self.parameter.autoscaled and self.decode.autoscaled):
            return None
        return self.autoscaling.scale_to_zero

    def caches_prefixes(self, role: Role) -> bool:
        """Whether a role keeps the KV cache of prompts' beginnings, which vLLM does unless told otherwise."""
        own = self.of(role).enable_prefix_caching
        chosen = self.engine.enable_prefix_caching if own is None else own
        return chosen is not False


_NAME_PATTERN = f"^[a-z]([-a-z0-9]{{0,{NAME_MAX_LENGTH - 2}}}[a-z0-9])?$"
_NAME_MESSAGE = (
    f"Use at most {NAME_MAX_LENGTH} lower-case letters, digits and dashes, a letter first and no dash last: it becomes "
    "the name of a Service, and with a suffix the names of pods."
)


class Metadata(ApiModel):
    """The part of metadata that the operator uses."""

    model_config = ConfigDict(extra="ignore")

    name: Annotated[str, Matches(_NAME_PATTERN, _NAME_MESSAGE)]
    """Name of the resource, and of the Service that clients use."""
    namespace: str = "default"
    """Namespace of the resource and of all that it becomes."""
    uid: str = ""
    """Identity of this very object, for owner references; empty offline."""
    generation: int = 0
    """Number of the spec's version; 0 offline."""


NAME_RULE = Rule(
    cel=f"self.metadata.name.matches('{_NAME_PATTERN}')",
    holds=lambda _: True,  # Metadata says it in Python
    message=f"metadata.name: {_NAME_MESSAGE}",
)


class PDInference(ApiModel):
    """A large language model served by vLLM, prefill (P) and decode (D) apart, behind one address."""

    api_version: Literal["pdinference.io/v1alpha1"] = "pdinference.io/v1alpha1"
    """Version of the schema."""
    kind: Literal["PDInference"] = "PDInference"
    """Kind of resource."""
    metadata: Metadata
    """Name, namespace and identity."""
    spec: Spec
    """What to serve, and with what."""
    status: Annotated[dict[str, Any], Field(exclude=True)] = Field(default_factory=dict)
    """What the operator saw and did; not read from here."""

    rules: ClassVar[tuple[Rule, ...]] = (NAME_RULE,)
