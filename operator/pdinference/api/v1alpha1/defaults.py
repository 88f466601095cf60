"""What the operator chooses where the spec is silent and vLLM's own default is not good for P/D.

Each was measured (docs/tuning.md, "Defaults"); nothing here overrides a user. They are no defaults of the CRD, because
they depend on role and device.
"""

from pdinference.api.names import Role
from pdinference.api.v1alpha1.connectors import LIMITS
from pdinference.api.v1alpha1.resource import Spec

_BLOCK_SIZE = 128
"""Tokens of a block on GPUs: a transfer of 1 GB takes 15 ms instead of 49 with vLLM's 16, and does not stall decode."""
_BATCHED_TOKENS = {Role.PARAMETER: 8192, Role.DECODE: 2048}
"""Most tokens in a step on GPUs. P: one prompt of 8,000 tokens in one step. D: it computes a prompt only after a failed
transfer, and then its other requests wait for 56 ms at a time instead of 220."""
_STARTUP_SECONDS = 3600
"""A 70B model takes many minutes to download and load."""
_STARTUP_MARGIN_SECONDS = 900
"""For what comes after the weights: profiling, compilation, CUDA graphs."""
_SLOW_DISK = 50_000_000
"""Bytes a second of the slowest disk or network that weights are read from with patience."""

_SCHEDULING_SECONDS = 600
"""For a pod to find a node and pull its image."""


def block_size(spec: Spec) -> int | None:
    """Tokens of a block, the same for both roles; None leaves it to vLLM."""
    if spec.engine.kv_cache.block_size is not None:
        return spec.engine.kv_cache.block_size
    on_gpu = any(role.accelerator.type == "GPU" for role in (spec.parameter, spec.decode))
    return _BLOCK_SIZE if on_gpu else None


def max_num_batched_tokens(spec: Spec, role: Role) -> int | None:
    """Most tokens in a step of a role; None leaves it to vLLM.

    vLLM refuses fewer than max-num-seqs, and without chunked prefill fewer than the longest prompt.
    """
    own = spec.of(role)
    chosen = own.max_num_batched_tokens or spec.engine.max_num_batched_tokens
    chunked = spec.engine.enable_chunked_prefill if own.enable_chunked_prefill is None else own.enable_chunked_prefill
    if LIMITS[spec.transfer.connector].one_step or chunked is False:
        return chosen
    if chosen is not None or own.accelerator.type != "GPU":
        return chosen
    return max(_BATCHED_TOKENS[role], own.max_num_seqs or spec.engine.max_num_seqs or 0)


def startup_seconds(spec: Spec) -> int:
    """How long a P or D pod may take to become ready for the first time."""
    architecture = spec.model.architecture
    weights = architecture.weights_bytes if architecture and architecture.weights_bytes else 0
    return spec.engine.startup_seconds or max(_STARTUP_SECONDS, _STARTUP_MARGIN_SECONDS + weights // _SLOW_DISK)


def progress_deadline_seconds(spec: Spec) -> int:
    """How long a roll-out may make no progress before it counts as stuck; a Deployment reports the same of its own."""
    return spec.rollout.progress_deadline_seconds or startup_seconds(spec) + _SCHEDULING_SECONDS
