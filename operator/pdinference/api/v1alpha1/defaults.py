"""Defaults of the operator where vLLM's own defaults do not suit P/D. Without P, vLLM's own apply.

benchmarks/results/tuning.md ("Defaults") has the measurements. Fields of the spec override them. They are not defaults
of the CRD, because they depend on the role and the device.

Tests: tests/api/test_defaults.py, tests/engine/test_vllm.py
"""

from collections.abc import Mapping
from typing import Any, Final

from pdinference.api.names import Role
from pdinference.api.v1alpha1.connectors import LIMITS
from pdinference.api.v1alpha1.expert_transport import SMALL_STEP, SMALL_STEPS, expert_transport
from pdinference.api.v1alpha1.resource import Spec

API_SERVERS: Final = "api-server-count"
"""The option of vLLM with the number of API server processes."""
_BLOCK_SIZE = 128
"""Tokens per block on GPUs. A transfer of 1 GB takes 15 ms instead of 49 ms with vLLM's 16, and does not stall
decode."""
_BATCHED_TOKENS = {Role.PARAMETER: 8192, Role.DECODE: 2048}
"""Maximum tokens per step on GPUs. P prefills a prompt of 8,000 tokens in one step. D prefills only after a failed
transfer; its other requests then wait for 56 ms at a time instead of 220 ms."""
BATCHED_TOKENS_OF_BOTH: Final = 512
"""Those of a role that has prompts beside answers, whose tokens wait for each step with a prompt. vLLM records CUDA
graphs for steps of up to 512 tokens. With 384, whole requests of long prompts take a tenth longer, and gaps at p99 are
shorter on some loads only (two H200s, benchmarks/results/adaptive.md)."""
_STARTUP_SECONDS = 3600
"""A 70B model takes many minutes to download and load."""
_STARTUP_MARGIN_SECONDS = 900
"""Time for the steps after loading the weights: profiling, compilation, CUDA graphs."""
_SLOW_DISK = 50_000_000
"""Bytes per second of the slowest disk or network that the default start-up time allows for."""

_SCHEDULING_SECONDS = 600
"""Time to schedule a pod and pull its image."""


def block_size(spec: Spec) -> int | None:
    """Tokens per block, the same for both roles; None for vLLM's default."""
    if spec.engine.kv_cache.block_size is not None:
        return spec.engine.kv_cache.block_size
    on_gpu = any(role.accelerator.type == "GPU" for role in (spec.parameter, spec.decode))
    return _BLOCK_SIZE if spec.transfers_kv and on_gpu else None


def max_num_batched_tokens(spec: Spec, role: Role) -> int | None:
    """Maximum tokens per step of a role; None for vLLM's default.

    vLLM requires at least max-num-seqs, and without chunked prefill at least the longest prompt.
    """
    own = spec.of(role)
    chosen = own.max_num_batched_tokens or spec.engine.max_num_batched_tokens
    if chosen is not None or prefills_in_one_step(spec, role) or not spec.transfers_kv:
        return chosen
    seqs = own.max_num_seqs or spec.engine.max_num_seqs or 0
    if expert_transport(spec, role) in SMALL_STEPS:
        return seqs if seqs > SMALL_STEP else None  # vLLM's default: buffers grow with the tokens of a step
    if spec.router.is_adaptive:
        tokens = BATCHED_TOKENS_OF_BOTH
    elif own.accelerator.type == "GPU":
        tokens = _BATCHED_TOKENS[role]
    else:
        return None
    return max(tokens, seqs)


def chunked_prefill(spec: Spec, role: Role) -> bool | None:
    """Whether a role's prompts may be prefilled in parts; None for vLLM's default."""
    own = spec.of(role).enable_chunked_prefill
    return spec.engine.enable_chunked_prefill if own is None else own


def enforces_eager(spec: Spec, role: Role) -> bool:
    """Whether a role has no CUDA graphs and no compiled steps."""
    own = spec.of(role).enforce_eager
    return bool(spec.engine.enforce_eager if own is None else own)


def prefills_in_one_step(spec: Spec, role: Role) -> bool:
    """Whether a role has to prefill each prompt in one step."""
    return LIMITS[spec.transfer.connector].one_step or chunked_prefill(spec, role) is False


def api_servers(spec: Spec, role: Role) -> int | None:
    """API server processes of an instance; None for vLLM's default of one.

    With data parallelism, vLLM's default is one for each rank. But several do not complete their requests after SIGTERM
    (benchmarks/results/tuning.md, "API servers").
    """
    return 1 if spec.of(role).parallelism.data > 1 else None


def stated_api_servers(arguments: Mapping[str, Any]) -> int | None:
    """The number of API server processes in `args`; None without a valid one."""
    value = arguments.get(API_SERVERS)
    if isinstance(value, bool) or not isinstance(value, int | str):
        return None
    try:
        return int(value)
    except ValueError:
        return None


def api_server_processes(spec: Spec, role: Role) -> int:
    """API server processes of an instance, as vLLM starts them."""
    stated = stated_api_servers({**spec.engine.args, **spec.of(role).args})
    return max(1, stated or api_servers(spec, role) or 1)


def startup_seconds(spec: Spec) -> int:
    """Maximum time, in seconds, for a P or D pod to become ready for the first time."""
    architecture = spec.model.architecture
    weights = architecture.weights_bytes if architecture and architecture.weights_bytes else 0
    return spec.engine.startup_seconds or max(_STARTUP_SECONDS, _STARTUP_MARGIN_SECONDS + weights // _SLOW_DISK)


def progress_deadline_seconds(spec: Spec) -> int:
    """Time without progress, in seconds, after which a roll-out is stalled; also the deadline of Deployments."""
    return spec.rollout.progress_deadline_seconds or startup_seconds(spec) + _SCHEDULING_SECONDS
