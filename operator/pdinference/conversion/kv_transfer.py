"""Converts `--kv-transfer-config` and KV offloading: the role, the connector, and the tiers.

Tests: tests/conversion/test_field_points.py, tests/conversion/test_resource.py, tests/conversion/test_every_option.py
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from pdinference.api.names import Role
from pdinference.api.v1alpha1.connectors import ConnectorName
from pdinference.api.v1alpha1.transfer import Transfer
from pdinference.conversion.launch import Finding, Launch, Remark
from pdinference.conversion.options import ParsedOptions
from pdinference.conversion.values import bytes_quantity, gib, json_object
from pdinference.engine.connectors.configuration import KV_ROLES
from pdinference.engine.connectors.registry import CONNECTORS

_BY_CLASS: dict[str, ConnectorName] = {
    class_name: name for name, connector in CONNECTORS.items() for class_name in connector.vllm_names
}
_SEVERAL, _OFFLOADING = "MultiConnector", "OffloadingConnector"
_DEFAULT = Transfer().connector
_EXTRA = "kv_connector_extra_config"
_SIZE = "cpu_bytes_to_use"
_POLICIES = {"recompute": "Recompute", "fail": "Fail"}
_TAKEN = frozenset({"kv_connector", "kv_role", "kv_load_failure_policy", _EXTRA})
_OTHER = (
    "The operator chooses the connector by spec.transfer: Nixl here, which needs nothing else. LMCache and "
    "SharedStorage need fields of their own (docs/kv-transfer.md)."
)
_NO_TIER = (
    "This connector keeps KV cache outside of the GPUs. kvTiers of the role do so here, with vLLM's own connector."
)
_WRITES = "The operator writes the rest of this option itself, for each role (`pdinference render` shows it)."
_REASONS = {
    "kv_buffer_device": (
        "The operator leaves it to vLLM: the KV cache moves from device to device. With accelerator.type CPU it is cpu."
    ),
    "engine_id": "The operator gives each engine an ID of its own.",
    **dict.fromkeys(("kv_ip", "kv_port", "kv_rank", "kv_parallel_size"), "The router tells D where the KV cache is."),
    "kv_connector_module_path": "Only connectors of vLLM are supported (spec.transfer.connector).",
}
_TIER_REASONS = {
    "num_cpu_blocks": "Use kvTiers.cpu.size, which is in bytes.",
    "secondary_tiers": "Use kvTiers.disk, with a size and a volume.",
    "spec_name": "The operator sets it by kvTiers.",
}


def role_of(options: ParsedOptions) -> Role | None:
    """The role that a command line starts, from `kv_role` of the option or of its connectors; None without one."""
    config = options.values.get("kv-transfer-config")
    if not isinstance(config, dict):
        return None
    roles = {str(each.get("kv_role")) for each in (config, *_connectors(config))}
    found = [role for role, name in KV_ROLES.items() if name in roles]
    return found[0] if len(found) == 1 else None


def transfer(value: Any, options: ParsedOptions, launch: Launch) -> Iterator[Finding]:
    """The connector, if the operator supports it, the tiers, and the policy for failed transfers."""
    config = json_object(value)
    inner = list(_connectors(config))
    yield from _connector_settings(inner, launch)
    for each in inner:
        if each.get("kv_connector") == _OFFLOADING:
            yield from _tier(_extra(each), options)
        else:
            yield from _left_out(_extra(each), f"{each.get('kv_connector')}.{_EXTRA}", {})
        if each is not config:
            yield from _left_out(each, str(each.get("kv_connector")), _REASONS)
    policy = config.get("kv_load_failure_policy")
    if isinstance(policy, str) and _POLICIES.get(policy) == "Fail":
        yield "transfer.onFailure", "Fail"
    yield from _left_out(config, "", _REASONS)
    if inner != [config]:
        outer = {name: member for name, member in _extra(config).items() if name != "connectors"}
        yield from _left_out(outer, _EXTRA, {})


def _connectors(config: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The connectors of a MultiConnector, or the only one."""
    if config.get("kv_connector") != _SEVERAL:
        yield config
        return
    connectors = _extra(config).get("connectors")
    for each in connectors if isinstance(connectors, list) else []:
        if isinstance(each, Mapping):
            yield each


def _extra(config: Mapping[str, Any]) -> Mapping[str, Any]:
    extra = config.get(_EXTRA)
    return extra if isinstance(extra, Mapping) else {}


def _connector_settings(inner: list[Mapping[str, Any]], launch: Launch) -> Iterator[Finding]:
    """The first connector that moves KV cache between P and D. Further ones keep it elsewhere."""
    names = [str(each.get("kv_connector")) for each in inner]
    known = [name for name in names if name in _BY_CLASS]
    moving = next(iter(known), None)
    connector = _BY_CLASS[moving] if moving else None
    settings = CONNECTORS[connector].converted(launch.environment) if connector else None
    if connector is not None and settings is not None:
        yield from ((f"transfer.{field}", value) for field, value in settings.items())
        if connector != _DEFAULT:
            yield "transfer.connector", connector
    for name in names:
        if name == _OFFLOADING or (name == moving and settings is not None):
            continue
        yield Remark(f"kv_connector {name}", _NO_TIER if known and name != moving else _OTHER)


def _tier(extra: Mapping[str, Any], options: ParsedOptions) -> Iterator[Finding]:
    """A tier in CPU memory. The connector counts for each data-parallel rank, the resource for each pod."""
    size, ranks = extra.get(_SIZE), options.values.get("data-parallel-size", 1)
    number = int(size) if isinstance(size, int | float | str) and str(size).isdecimal() else None
    if number and isinstance(ranks, int):
        yield "role.kvTiers.cpu.size", bytes_quantity(number * ranks)
    else:
        yield Remark(f"kv_connector {_OFFLOADING}", "Set kvTiers.cpu.size of the role: the size of the tier.")
    rest = {name: value for name, value in extra.items() if name != _SIZE or not number}
    yield from _left_out(rest, f"{_OFFLOADING}.{_EXTRA}", _TIER_REASONS)


def _left_out(members: Mapping[str, Any], path: str, reasons: Mapping[str, str]) -> Iterator[Remark]:
    """A remark for each member that the resource does not keep."""
    for name, value in members.items():
        if name not in _TAKEN:
            subject = ".".join(filter(None, (path, str(name))))
            yield Remark(f"--kv-transfer-config {subject}: {json.dumps(value)}", reasons.get(str(name), _WRITES))


def kv_tiers(value: Any, options: ParsedOptions, _launch: Launch) -> Iterator[Finding]:
    """KV offloading of vLLM, as a CPU tier of both roles."""
    if options.values.get("kv-offloading-backend", "native") != "native":
        raise ValueError("The operator has vLLM's own tiers only: kvTiers of the role.")
    yield "role.kvTiers.cpu.size", gib(value)
