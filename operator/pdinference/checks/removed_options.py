"""Options of earlier releases of vLLM, each with the reason and an alternative.

Tests: tests/checks/test_options.py
"""

_V1 = "vLLM now has one engine and one scheduler, and no option for it."
NO_RAY = "The operator starts the ranks and nodes of an instance itself, without Ray."
_SPECULATIVE = "Use args with speculative-config, one JSON object."
_ROPE = (
    "Use args with hf-overrides: {rope_parameters: {rope_type: yarn, factor: 4.0, original_max_position_embeddings: "
    "32768, rope_theta: 1000000}}, with all members, because this replaces those of the model's config."
)

REMOVED: dict[str, str] = {
    "swap-space": "vLLM no longer has swap space. kvTiers.cpu.size of the role keeps KV blocks in CPU memory.",
    "worker-use-ray": NO_RAY,
    "engine-use-ray": NO_RAY,
    "use-v2-block-manager": _V1,
    "num-scheduler-steps": _V1,
    "multi-step-stream-outputs": _V1,
    "num-lookahead-slots": _V1,
    "scheduler-delay-factor": _V1,
    "preemption-mode": "vLLM computes a preempted request again; kvTiers.cpu of D gives its blocks back instead.",
    "max-context-len-to-capture": "vLLM no longer has such a limit; see cudagraph-capture-sizes in args.",
    "max-seq-len-to-capture": "vLLM no longer has such a limit; see cudagraph-capture-sizes in args.",
    "device": "The engine image decides it; accelerator.type is GPU or CPU.",
    "task": "P/D is for generating text; vLLM now has runner and convert for other models.",
    "rope-scaling": _ROPE,
    "rope-theta": _ROPE,
    "guided-decoding-backend": "Use args with structured-outputs-config: {backend: ...}.",
    "enable-reasoning": "A reasoning-parser in args is enough.",
    "speculative-model": _SPECULATIVE,
    "num-speculative-tokens": _SPECULATIVE,
    "tokenizer-pool-size": "vLLM now has renderer-num-workers (in args) for it.",
    "disable-frontend-multiprocessing": _V1,
}
"""By the name of an option, what to say of it."""

REMOVED_SWITCHES = frozenset(
    {
        "worker-use-ray",
        "engine-use-ray",
        "use-v2-block-manager",
        "multi-step-stream-outputs",
        "enable-reasoning",
        "disable-frontend-multiprocessing",
    }
)
"""Options of earlier vLLM versions that take no value."""
