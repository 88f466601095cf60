"""Options of vLLM that resources do not support, each with the reason and an alternative."""

from pdinference.api.v1alpha1.engine import OWNED_ARGUMENTS
from pdinference.engine.refused import REFUSED_ARGUMENTS

_V1 = "vLLM now has one engine and one scheduler, and no option for it."
_NO_RAY = "The operator starts the ranks and nodes of an instance itself, without Ray."
_SPECULATIVE = "Use args with speculative-config, one JSON object."

REMOVED: dict[str, str] = {
    "swap-space": "vLLM no longer has swap space. kvTiers.cpu.size of the role keeps KV blocks in CPU memory.",
    "worker-use-ray": _NO_RAY,
    "engine-use-ray": _NO_RAY,
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
    "rope-scaling": "Use args with hf-overrides: {rope_scaling: {...}}.",
    "rope-theta": "Use args with hf-overrides: {rope_theta: ...}.",
    "guided-decoding-backend": "Use args with structured-outputs-config: {backend: ...}.",
    "enable-reasoning": "A reasoning-parser in args is enough.",
    "speculative-model": _SPECULATIVE,
    "num-speculative-tokens": _SPECULATIVE,
    "tokenizer-pool-size": "vLLM now has renderer-num-workers (in args) for it.",
    "disable-frontend-multiprocessing": _V1,
}
"""Options of earlier vLLM versions."""

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

_OWN_REASONS = {
    "distributed-executor-backend": _NO_RAY,
    "download-dir": "Each pod has its own cache. spec.model.cache stores the model on a claim or on each node.",
    "config": "This file is not read here. Give its options on the command line, or write them into spec.engine.args.",
    "host": "Pods listen on every address, and a NetworkPolicy limits who reaches them.",
}


def reason_to_leave_out(name: str) -> str | None:
    """Why resources do not support an option of vLLM; None if they do."""
    if name in _OWN_REASONS:
        return _OWN_REASONS[name]
    if why := REFUSED_ARGUMENTS.get(name.removeprefix("no-")):
        return as_sentence(why)
    why = OWNED_ARGUMENTS.get(name.removeprefix("no-"))
    return as_sentence(why) if why else None


def as_sentence(clause: str) -> str:
    """A reason of the admission checks, which is a clause, as a sentence."""
    return f"{clause[0].upper()}{clause[1:]}."
