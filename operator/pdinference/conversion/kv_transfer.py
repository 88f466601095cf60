"""Converts `--kv-transfer-config` and KV offloading: the role, the connector, and the tiers."""

from collections.abc import Iterator, Mapping
from typing import Any

from pdinference.api.names import Role
from pdinference.api.v1alpha1.transfer import Transfer
from pdinference.conversion.launch import Finding, Launch, Remark
from pdinference.conversion.options import Options
from pdinference.conversion.values import gib, json_object
from pdinference.engine.connectors.configuration import KV_ROLES
from pdinference.engine.connectors.registry import CONNECTORS

_BY_CLASS = {class_name: name for name, connector in CONNECTORS.items() for class_name in connector.vllm_names}
_DEFAULT = Transfer().connector
_POLICIES = {"recompute": "Recompute", "fail": "Fail"}
_OWN = frozenset({"kv_connector", "kv_role", "kv_load_failure_policy", "kv_buffer_device", "engine_id"})
_OTHER = (
    "The operator chooses the connector by spec.transfer: Nixl here, which needs nothing else. LMCache and "
    "SharedStorage need fields of their own (docs/resource.md)."
)


def role_of(options: Options) -> Role | None:
    """The role that a command line starts, from `kv_role`; None without one."""
    config = options.values.get("kv-transfer-config")
    kv_role = config.get("kv_role") if isinstance(config, dict) else None
    return next((role for role, name in KV_ROLES.items() if name == kv_role), None)


def transfer(value: Any, _options: Options, launch: Launch) -> Iterator[Finding]:
    """The connector, if the operator supports it, and the policy for failed transfers."""
    value = json_object(value)
    name = value.get("kv_connector")
    connector = _BY_CLASS.get(name) if isinstance(name, str) else None
    settings = CONNECTORS[connector].converted(launch.environment) if connector else None
    if connector is None or settings is None:
        yield Remark(f"kv_connector {name}", _OTHER)
    else:
        yield from ((f"transfer.{field}", value) for field, value in settings.items())
        if connector != _DEFAULT:
            yield "transfer.connector", connector
    policy = value.get("kv_load_failure_policy")
    if isinstance(policy, str) and _POLICIES.get(policy) == "Fail":
        yield "transfer.onFailure", "Fail"
    yield from _others(value)


def _others(config: Mapping[str, Any]) -> Iterator[Remark]:
    others = ", ".join(str(member) for member in config if member not in _OWN)
    if others:
        yield Remark(
            f"--kv-transfer-config: {others}",
            "The operator writes the rest of this option itself, for each role (`pdinference render` shows it).",
        )


def kv_tiers(value: Any, options: Options, _launch: Launch) -> Iterator[Finding]:
    """KV offloading of vLLM, as a CPU tier of both roles."""
    if options.values.get("kv-offloading-backend", "native") != "native":
        raise ValueError("The operator has vLLM's own tiers only: kvTiers of the role.")
    yield "role.kvTiers.cpu.size", gib(value)
