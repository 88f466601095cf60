"""The settings of a role that determine its memory, with vLLM's defaults.

Tests: tests/memory/test_plan.py
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from pdinference.api.names import Role
from pdinference.api.quantities import quantity
from pdinference.api.v1alpha1 import RoleSpec, Spec, defaults
from pdinference.api.v1alpha1.expert_transport import (
    HIGH_THROUGHPUT,
    OPTION,
    SMALL_STEP,
    SMALL_STEPS,
    expert_transport,
)
from pdinference.api.v1alpha1.roles.kv_tiers import CPUTier, DiskTier
from pdinference.memory.expert_padding import NO_PADDING, ExpertPadding, expert_padding
from pdinference.memory.figures import GIB, Figure
from pdinference.memory.model.drafts import WITHOUT, Draft, draft_of
from pdinference.memory.model.quantization import Quantization, stated_quantization
from pdinference.memory.model.shape import ModelFacts
from pdinference.memory.options import MTP, Options, options_of

DTYPE_BYTES = {"half": 2, "float16": 2, "bfloat16": 2, "float": 4, "float32": 4}
_UTILIZATION = 0.92  # vllm/config/cache.py, CacheConfig.gpu_memory_utilization
_EXCHANGE_MIB = 1024
_WITHOUT_GRAPHS = (HIGH_THROUGHPUT,)  # `set_splitting_ops_for_v1` in vllm/config/compilation.py
_IN_FP8 = "glm_moe_dsa"
_SMALL_BATCHES = ("A100", "GB10")  # in names of products with much memory that have the defaults of small ones
_BLACKWELL = re.compile("nvidia-g?b[23]00", re.IGNORECASE)
KV_SPACE = "VLLM_CPU_KVCACHE_SPACE"
"""Variable of vLLM with the size of the KV cache on CPU, in GiB."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How one role runs a model.

    Attributes:
        layer_partition: Layers of each pipeline stage.
        expert_ranks: Over how many devices whole experts are spread; 1 without expert parallelism.
        dtype_bytes: Bytes of an activation and of an unquantised weight.
        kv_bytes: Bytes of an element of the KV cache.
        batch_assumed: Whether max_num_batched_tokens is vLLM's default for a device that is not known.
        max_length: Tokens of the longest request; None if neither spec nor model set it.
        kv_budget: Bytes for the KV cache, if set explicitly; None: the remaining memory of the device.
        prefix_caching: Whether prefixes are cached.
        state_bytes: Bytes of an element of what recurrences accumulate, if set explicitly; 0: as the model says.
        expert_padding: What kernels for experts in MXFP4 round sizes up to.
        lora_slots: Adapters in a batch; 0 without LoRA.
        offload: Bytes of weights that stay in CPU memory.
        cpu_tier: Bytes of the KV cache's tier in CPU memory, for all devices together; None without one.
        disk_tier: The same on disk.
        encodes: Whether the model takes images; false with language-model-only, or where the limit of each is 0.
        redundant_experts: Copies of experts that EPLB adds in each layer.
        nodes: Nodes of an instance.
        expert_transport: vLLM's all2all backend; None for its default, or without other ranks.
        exchange_mib: MiB of each of DeepEP's buffers of a fixed size.
        graphs: CUDA graphs of steps that mix prompts and answers, and of steps with answers alone.
        speculated: Tokens that speculative decoding proposes at once.
        mtp_layers: Layers of the model's own that propose them (MTP).
        draft: What proposes them beside the model; None without.
    """

    cpu: bool
    tensor: int
    layer_partition: tuple[int, ...]
    data: int
    expert_ranks: int
    dtype_bytes: int
    quantization: Quantization | None
    kv_bytes: int
    block_size: int
    max_length: int | None
    max_num_seqs: int
    max_num_batched_tokens: int
    utilization: float
    batch_assumed: bool
    eager: bool
    kv_budget: int | None
    lora_slots: int
    lora_rank: int
    offload: int
    cpu_tier: int | None = None
    disk_tier: int | None = None
    prefix_caching: bool = True
    state_bytes: int = 0
    expert_padding: ExpertPadding = NO_PADDING
    encodes: bool = True
    redundant_experts: int = 0
    nodes: int = 1
    expert_transport: str | None = None
    exchange_mib: int = _EXCHANGE_MIB
    graphs: tuple[int, int] = (0, 0)
    speculated: int = 0
    mtp_layers: int = 0
    draft: Draft | None = None

    @property
    def proposing_layers(self) -> int:
        """Layers that propose tokens and have a KV cache, after those of the last stage."""
        return self.draft.layers if self.draft else self.mtp_layers

    @property
    def captured(self) -> int:
        """CUDA graphs that are captured."""
        return 0 if self.eager else sum(self.graphs)

    @property
    def stages(self) -> int:
        """Pipeline stages."""
        return len(self.layer_partition)

    @property
    def in_flight_tokens(self) -> int:
        """Tokens of steps that may be under way together.

        Source: `max_in_flight_tokens` and `max_concurrent_batches` in vllm/config/vllm.py; scheduling is asynchronous
        except on CPU (vllm/platforms/cpu.py).
        """
        return (self.stages + (0 if self.cpu else 1)) * self.max_num_batched_tokens

    def with_tensor(self, tensor: int) -> "Settings":
        """The same with another tensor-parallel size."""
        spread = self.expert_ranks > 1
        return replace(self, tensor=tensor, expert_ranks=tensor * self.data if spread else 1)


def settings_of(
    spec: Spec, role: Role, facts: ModelFacts, memory: Figure, draft: Mapping[str, Any] | None = None
) -> Settings:
    """Resolve the settings of a role.

    Args:
        spec: The spec.
        role: P or D.
        facts: The model, for the defaults that depend on it.
        memory: Bytes of the device; vLLM's defaults for batches depend on it.
        draft: config.json of the draft of speculative decoding, if it is known.
    """
    own = spec.of(role)
    engine, parallel = spec.engine, own.parallelism
    cpu = own.accelerator.type == "CPU"
    dtype_bytes = _dtype_bytes(spec)
    quantization = facts.quantization or stated_quantization(spec.model.quantization)
    environment, arguments = _environment(spec, role), _arguments(spec, role)
    transport = _expert_transport(spec, role, arguments)
    tokens, seqs = _batch_defaults(cpu, parallel.tensor * parallel.pipeline, memory, own)
    tokens = SMALL_STEP if transport in SMALL_STEPS else tokens
    if defaults.chunked_prefill(spec, role) is False:  # `_set_default_max_num_seqs_and_batched_tokens_args`
        tokens = max(tokens, spec.model.max_model_length or facts.max_length or 0)
    max_length = spec.model.max_model_length or facts.max_length
    seqs_set = own.max_num_seqs or engine.max_num_seqs
    tokens_set = defaults.max_num_batched_tokens(spec, role)
    tokens = tokens_set or (min(tokens, (seqs_set or seqs) * max_length) if max_length else tokens)
    lora, tiers = spec.model.lora, own.kv_tiers
    options = options_of(arguments)
    method, apart = options.speculative, _proposes_apart(spec, options)
    seqs = seqs_set or min(seqs, tokens)
    return Settings(
        cpu=cpu,
        tensor=parallel.tensor,
        layer_partition=tuple(parallel.layer_partition) or even_partition(facts.layers, parallel.pipeline),
        data=parallel.data,
        expert_ranks=parallel.expert_devices if parallel.expert else 1,
        dtype_bytes=dtype_bytes,
        quantization=quantization,
        kv_bytes=_kv_bytes(spec, role, facts, dtype_bytes),
        block_size=_block_size(spec, cpu=cpu),
        max_length=max_length,
        max_num_seqs=seqs,
        max_num_batched_tokens=tokens,
        utilization=own.gpu_memory_utilization or engine.gpu_memory_utilization or _UTILIZATION,
        batch_assumed=not (tokens_set or cpu or memory.known or transport in SMALL_STEPS),
        eager=defaults.enforces_eager(spec, role),
        kv_budget=_kv_budget(environment, arguments, cpu=cpu),
        prefix_caching=spec.caches_prefixes(role),
        state_bytes=_state_bytes(arguments, cpu=cpu),
        expert_padding=expert_padding(spec.products(role), cpu=cpu),
        lora_slots=lora.max_active if lora else 0,
        lora_rank=lora.max_rank if lora else 0,
        offload=int(quantity(own.cpu_offload or engine.cpu_offload or "0") or 0),
        cpu_tier=_size(tiers.cpu) if tiers else None,
        disk_tier=_size(tiers.disk) if tiers and tiers.disk else None,
        encodes=options.encodes,
        redundant_experts=engine.expert_balance.redundant
        if engine.expert_balance and parallel.spreads_experts
        else options.redundant_experts,
        nodes=parallel.nodes,
        expert_transport=transport,
        exchange_mib=_exchange_mib(environment),
        graphs=(0, 0) if cpu or transport in _WITHOUT_GRAPHS else options.graphs(seqs, tokens, facts),
        speculated=options.speculated,
        mtp_layers=facts.mtp_layers if method == MTP and not apart else 0,
        draft=draft_of(method, draft, facts, options.speculated) if apart else None,
    )


def draft_model(spec: Spec, role: Role) -> str:
    """Folder or repository of the draft of speculative decoding; empty without one of its own."""
    options = options_of(_arguments(spec, role))
    return options.draft_model if _proposes_apart(spec, options) else ""


def _proposes_apart(spec: Spec, options: Options) -> bool:
    """Whether a model of its own proposes tokens; layers of MTP are mostly in the model's own files."""
    if options.speculative == MTP:
        source = spec.model.source
        return options.draft_model not in {"", source.path, source.hub.repository if source.hub else ""}
    return bool(options.speculative) and options.speculative not in WITHOUT


def even_partition(layers: int, stages: int) -> tuple[int, ...]:
    """Default layers of each pipeline stage.

    Source: `get_pp_indices` in vllm/distributed/utils.py. Remaining layers go to the stages before the last.
    """
    partition = [layers // stages] * stages
    for index in range(2, layers % stages + 2):
        partition[-index] += 1
    return tuple(partition)


def _expert_transport(spec: Spec, role: Role, arguments: Mapping[str, object]) -> str | None:
    """vLLM's all2all backend, from the field or from `args`."""
    stated = arguments.get(OPTION) if spec.of(role).parallelism.exchanges_tokens else None
    return expert_transport(spec, role) or (stated if isinstance(stated, str) else None)


def _exchange_mib(environment: Mapping[str, str]) -> int:
    """Source: VLLM_DEEPEP_BUFFER_SIZE_MB in vllm/envs.py."""
    stated = environment.get("VLLM_DEEPEP_BUFFER_SIZE_MB", "")
    return int(stated) if re.fullmatch("[0-9]{1,6}", stated) else _EXCHANGE_MIB


def _size(tier: CPUTier | DiskTier) -> int:
    return int(quantity(tier.size) or 0)


def _dtype_bytes(spec: Spec) -> int:
    """Bytes of the model's dtype.

    Source: `_resolve_auto_dtype` in vllm/config/model.py: `auto` takes the checkpoint's type, and a 16-bit one where
    that is float32; so it always has two bytes.
    """
    return DTYPE_BYTES.get(spec.model.dtype, 2)


def _kv_bytes(spec: Spec, role: Role, facts: ModelFacts, dtype_bytes: int) -> int:
    """Bytes of an element of the KV cache.

    Source: `GlmMoeDsaForCausalLM` in vllm/model_executor/models/config.py, for GLM-5 on Blackwell.
    """
    chosen = spec.engine.kv_cache.dtype
    if chosen == "auto":
        if facts.model_type == _IN_FP8 and any(_BLACKWELL.match(product) for product in spec.products(role)):
            return 1
        return facts.quantization.kv_bits // 8 if facts.quantization and facts.quantization.kv_bits else dtype_bytes
    return 1 if chosen.startswith("fp8") else 2


def _block_size(spec: Spec, *, cpu: bool) -> int:
    """Tokens of a block.

    Source: CacheConfig.DEFAULT_BLOCK_SIZE in vllm/config/cache.py, and `check_and_update_config` in
    vllm/platforms/cpu.py. On processors without AMX that makes it 16 for MLA, which changes the capacity by less than
    128 tokens.
    """
    return defaults.block_size(spec) or (128 if cpu else 16)


def _state_bytes(arguments: dict[str, object], *, cpu: bool) -> int:
    """Bytes of an element of the recurrent state, for models whose config does not state it.

    Source: `mamba_ssm_cache_dtype` in vllm/config/cache.py; vllm/platforms/cpu.py makes it float32 on processors with
    AVX-512 for bfloat16, which is assumed.
    """
    stated = DTYPE_BYTES.get(str(arguments.get("mamba-ssm-cache-dtype", "")), 0)
    return 4 if cpu else stated


def _batch_defaults(cpu: bool, world: int, memory: Figure, own: RoleSpec) -> tuple[int, int]:
    """Default tokens and requests of a step.

    Source: `get_batch_defaults` in vllm/engine/arg_utils.py, for the API server.
    """
    if cpu:
        return 2048 * world, 128 * world
    size = memory.value or 0
    if size >= 160 * GIB:
        return 16384, 1024
    if size >= 70 * GIB and not any(name in product for product in own.products for name in _SMALL_BATCHES):
        return 8192, 1024
    return 2048, 256


def stated_kv_cache(spec: Spec, role: Role) -> int | None:
    """Bytes of a role's KV cache, if the spec states them."""
    return _kv_budget(_environment(spec, role), _arguments(spec, role), cpu=spec.of(role).accelerator.type == "CPU")


def _environment(spec: Spec, role: Role) -> dict[str, str]:
    return {**spec.engine.env, **spec.of(role).env}


def _arguments(spec: Spec, role: Role) -> dict[str, object]:
    return {**spec.engine.args, **spec.of(role).args}


def _kv_budget(environment: dict[str, str], arguments: dict[str, object], *, cpu: bool) -> int | None:
    """The KV cache's bytes, if they are set explicitly.

    Source: VLLM_CPU_KVCACHE_SPACE, GiB, in vllm/platforms/cpu.py; `kv_cache_memory_bytes` in vllm/config/cache.py.
    """
    if cpu and re.fullmatch("[0-9]{1,9}", environment.get(KV_SPACE, "")):
        return int(environment[KV_SPACE]) * GIB
    size = quantity(arguments.get("kv-cache-memory-bytes"))
    return int(size) if size else None
