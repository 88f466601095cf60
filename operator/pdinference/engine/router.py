"""The command of the router container (`pdinference router run`)."""

from typing import Any, Final

from pdinference.api.names import ENGINE_ROLES
from pdinference.api.v1alpha1 import PDInference, Spec, defaults
from pdinference.api.v1alpha1.objectives import Objectives
from pdinference.api.v1alpha1.router import ApiKeyLimit, ApiKeys
from pdinference.engine import lifecycle
from pdinference.engine.arguments import to_argv
from pdinference.engine.command import Command, literal
from pdinference.engine.connectors.handover import WHOLE_REQUESTS
from pdinference.engine.connectors.registry import connector_of
from pdinference.engine.vllm import model_names

API_KEYS_MOUNT: Final = "/etc/pdinference/api-keys"
TLS_MOUNT: Final = "/etc/pdinference/tls"
_MAX_WAIT_SECONDS: Final = 600
"""Pods with large weights take minutes to start again."""
_MAX_QUEUED_REQUESTS: Final = 1000


def router_command(resource: PDInference, revision: str, *, otlp_endpoint: str = "") -> Command:
    """The command of the router container, which watches the P and D pods of one revision.

    Args:
        resource: The resource.
        revision: Revision of the pods.
        otlp_endpoint: Where spans go if the resource does not say; empty for none.
    """
    spans = resource.spec.traces.endpoint if resource.spec.traces else otlp_endpoint
    router, zero = resource.spec.router, resource.spec.scale_to_zero
    handover = connector_of(resource.spec).handover
    options: dict[str, Any] = {
        "namespace": resource.metadata.namespace,
        "name": resource.metadata.name,
        "revision": revision,
        "handover": handover.name if handover else WHOLE_REQUESTS,
        "verification": resource.spec.transfer.verification if handover else "Off",
        "policy": router.policy,
        "when-no-prefill": router.when_no_prefill,
        "max-wait-seconds": zero.max_wait_seconds if zero else _MAX_WAIT_SECONDS,
        "max-queued-requests": zero.max_queued_requests if zero else _MAX_QUEUED_REQUESTS,
        "migration": router.migration,
        "drain-seconds": lifecycle.ROUTER_DRAIN_SECONDS,
        **({"custom-arguments": True} if _has_custom_arguments(resource) else {}),
        **({} if router.disaggregation == "Always" else {"disaggregation": router.disaggregation}),
        **_ranks(resource.spec),
        **(_objectives(resource.spec.objectives) | _step_tokens(resource.spec) if router.is_adaptive else {}),
        **({"api-keys-folder": API_KEYS_MOUNT} if router.api_keys else {}),
        **({"fair-shares": True} if router.api_keys and router.api_keys.shares_fairly else {}),
        **({"tls-folder": TLS_MOUNT} if router.tls else {}),
        **({"otlp-endpoint": spans} if spans else {}),
    }
    arguments = (*to_argv(options), *_models(resource), *_limits(router.api_keys), *_standings(router.api_keys))
    return Command(program=("pdinference", "router", "run"), arguments=tuple(map(literal, arguments)))


def _has_custom_arguments(resource: PDInference) -> bool:
    """Whether vLLM runs logits processors of the user's, which read `vllm_xargs`."""
    spec = resource.spec
    return any(
        "logits-processors" in args for args in (spec.engine.args, *(spec.of(role).args for role in ENGINE_ROLES))
    )


def _objectives(stated: Objectives | None) -> dict[str, float]:
    """In seconds."""
    return {} if stated is None else {f"{name}-objective": limit for name, limit in stated.seconds.items()}


def _step_tokens(spec: Spec) -> dict[str, int]:
    """Of each role, where they are not vLLM's default."""
    found = {role: defaults.max_num_batched_tokens(spec, role) for role in ENGINE_ROLES}
    return {f"{role}-step-tokens": tokens for role, tokens in found.items() if tokens is not None}


def _ranks(spec: Spec) -> dict[str, int]:
    """The data-parallel ranks of an instance of each role, where it has several."""
    found = {role: spec.of(role).parallelism.data for role in spec.engine_roles}
    return {f"{role}-ranks": ranks for role, ranks in found.items() if ranks > 1}


def _models(resource: PDInference) -> list[str]:
    """What clients can list while the model sleeps."""
    model = resource.spec.model
    longest = [] if model.max_model_length is None else [f"--max-model-length={model.max_model_length}"]
    return [*(f"--served-model={name}" for name in model_names(resource)), *longest]


def _limits(keys: ApiKeys | None) -> list[str]:
    return [f"--api-key-limit={limit.name}={_limit(limit)}" for limit in (keys.limits if keys else ())]


def _standings(keys: ApiKeys | None) -> list[str]:
    """What clients get when requests wait, where it is not the default."""
    stated = [limit for limit in (keys.limits if keys else ()) if limit.priority or limit.share]
    return [f"--standing={limit.name}={limit.priority or ''}:{limit.share or ''}" for limit in stated]


def _limit(limit: ApiKeyLimit) -> str:
    """An empty number is no limit."""
    numbers = [limit.requests_per_minute, limit.concurrent_requests]
    if limit.tokens_per_minute is not None:  # an earlier router knows the first two alone
        numbers.append(limit.tokens_per_minute)
    return ":".join(str(number or "") for number in numbers)
