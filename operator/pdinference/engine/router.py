"""The command of the router container (vllm-router 0.1.17; `vllm-router --help`)."""

from pdinference.api.names import (
    ACTIVATOR_STATE_PORT,
    ENGINE_PORT,
    ROUTER_BEHIND_PORT,
    ROUTER_METRICS_PORT,
    ROUTER_PORT,
    Role,
    role_selector,
)
from pdinference.api.v1alpha1 import PDInference
from pdinference.api.v1alpha1.scale_to_zero import ScaleToZero
from pdinference.engine import lifecycle
from pdinference.engine.arguments import to_argv
from pdinference.engine.command import Command, literal
from pdinference.engine.connectors.registry import connector_of

# Policies of vllm-router by our names. `kv_aware` counts the requests in progress on each D pod. On P it would count
# prompt tokens, but every P pod would have to tokenize every prompt, so P uses round robin. D always gets KV cache from
# P, so D is selected by load for `cache_aware`, too.
_POLICIES: dict[str, dict[str, str]] = {
    "least_loaded": {"policy": "round_robin", "decode-policy": "kv_aware"},
    "cache_aware": {"policy": "cache_aware", "decode-policy": "kv_aware"},
}
_ANY_ADDRESS = "0.0.0.0"  # noqa: S104 - the Service and the kubelet's probes use the pod's address


def router_command(resource: PDInference, revision: str) -> Command:
    """The command of the router container, which discovers the P and D pods of one revision by their labels."""
    name, policy = resource.metadata.name, resource.spec.router.policy
    options = {
        "host": _ANY_ADDRESS,
        "port": router_port(resource),
        "prometheus-host": _ANY_ADDRESS,
        "prometheus-port": ROUTER_METRICS_PORT,
        **_POLICIES.get(policy, {"policy": policy}),
        "vllm-pd-disaggregation": True,
        "kv-connector": connector_of(resource.spec.transfer).handover,
        # The router adds pods one at a time, and polls each until it responds. Short intervals keep a Ready pod that
        # does not respond from blocking the others (the defaults are 30 and 600).
        "worker-startup-check-interval": 1,
        "worker-startup-timeout-secs": 30,
        # vllm-router does not retry in this mode, so pods that crash must be detected quickly (the default is three
        # checks a minute apart). The watch reports terminating pods at once.
        "health-check-interval-secs": 2,
        "health-check-timeout-secs": 3,
        "health-failure-threshold": 2,
        "health-success-threshold": 1,
        "service-discovery": True,
        "service-discovery-namespace": resource.metadata.namespace,
        "service-discovery-port": ENGINE_PORT,
        "prefill-selector": _selector(name, Role.PARAMETER, revision),
        "decode-selector": _selector(name, Role.DECODE, revision),
    }
    return Command(program=("vllm-router",), arguments=tuple(literal(argument) for argument in to_argv(options)))


def router_port(resource: PDInference) -> int:
    """Port of vllm-router, which differs from the Service's target port if there is an activator."""
    return ROUTER_PORT if resource.spec.scale_to_zero is None else ROUTER_BEHIND_PORT


def activator_command(rule: ScaleToZero) -> Command:
    """The command of the activator container."""
    options = {
        "port": ROUTER_PORT,
        "state-port": ACTIVATOR_STATE_PORT,
        "router-port": ROUTER_BEHIND_PORT,
        "max-queued-requests": rule.max_queued_requests,
        "max-wait-seconds": rule.max_wait_seconds,
        "drain-seconds": lifecycle.ROUTER_DRAIN_SECONDS,
    }
    arguments = tuple(literal(argument) for argument in to_argv(options))
    return Command(program=("pdinference", "activator", "run"), arguments=arguments)


def _selector(name: str, role: Role, revision: str) -> list[str]:
    return [f"{key}={value}" for key, value in role_selector(name, role, revision).items()]
