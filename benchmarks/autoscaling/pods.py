"""The pods of the benchmark: Llama-3.1-8B in bf16, one H200 each, NVLink between P and D, the operator's defaults."""

from functools import cache

from benchmarks.llama import CONFIG, KV_TOKENS, engine_kind
from pdinference.api.names import ENGINE_ROLES, Role
from pdinference.api.v1alpha1 import Spec
from pdinference.memory import Inputs, model_facts, plan_role
from pdinference.memory.settings import settings_of
from pdinference.performance.calibration import H200
from pdinference.performance.links import NVLINK
from pdinference_advise.simulation.arrangement import Arrangement, EngineKind, Split

_ON_H200 = {"accelerator": {"products": [H200.product]}}


@cache
def kind(role: Role, cache_tokens: int = KV_TOKENS) -> EngineKind:
    """The engines of a role."""
    spec = Spec.model_validate({"model": {"source": {"path": "/llama"}}, "parameter": _ON_H200, "decode": _ON_H200})
    facts = model_facts(CONFIG)
    return engine_kind(settings_of(spec, role, facts, plan_role(Inputs(spec, facts), role).memory), cache_tokens)


def arrangement(replicas: dict[Role, int], *, routing: str, cache_tokens: int = KV_TOKENS) -> Arrangement:
    """P and D.

    Args:
        replicas: Pods at the beginning.
        routing: `spec.router.policy`.
        cache_tokens: What the KV cache of a D pod holds.
    """
    parameter, decode = kind(Role.PARAMETER), kind(Role.DECODE, cache_tokens)
    p, d = (replicas[role] for role in ENGINE_ROLES)
    return Arrangement(decode, d, Split(parameter, p, NVLINK, parameter.steps.work.kv_bytes), policy=routing)


def prefill_seconds(tokens: float) -> float:
    """How long a P pod computes one prompt."""
    of = kind(Role.PARAMETER)
    return of.steps.prompt(tokens, of.limits.step_tokens)


def token_seconds(cache_tokens: float, context: float) -> float:
    """How long a D pod takes for one token of each running request, when they fill its cache.

    Args:
        cache_tokens: What the cache holds.
        context: KV tokens of a request, as a mean.
    """
    of = kind(Role.DECODE)
    running = max(1, min(of.limits.requests, round(cache_tokens / context)))
    return of.steps.decode(running) + cache_tokens * of.steps.kv_token
