"""Rules of the path HostLocal, where P and D share pods (`spec.transfer.path`)."""

from typing import Any

from pdinference.api.names import ENGINE_ROLES, Role
from pdinference.api.v1alpha1.base import Rule
from pdinference.api.v1alpha1.mode import of_the_pair
from pdinference.api.v1alpha1.roles.accelerator import MAX_CLAIMED
from pdinference.api.v1alpha1.transfer import HostLocal

HOST_LOCAL = (
    "(self.transfer.path == 'HostLocal' || (self.transfer.path == 'Auto' && has(self.transfer.hostLocal) "
    "&& !has(self.transfer.rdma)))"
)
"""CEL expression: the path is HostLocal, unless the mode is Aggregated."""


def _count(role: Role) -> str:
    return f"(has(self.transfer.hostLocal) ? self.transfer.hostLocal.{role} : 1)"


DEVICES = " + ".join(f"{_count(role)} * self.{role}.parallelism.tensor" for role in ENGINE_ROLES)
"""CEL expression: devices of one pod. An instance has its tensor-parallel ranks only."""


def _rule(cel: str, holds: Any, field: str, message: str) -> Rule:
    """A rule that applies with the path HostLocal only."""
    return Rule(
        cel=f"!{HOST_LOCAL} || ({cel})",
        holds=lambda spec: not spec.transfer.is_host_local or holds(spec),
        field=field,
        message=message,
    )


def _few_devices(spec: Any) -> bool:
    counts = spec.transfer.host_local or HostLocal()
    ranks = {role: getattr(spec, role).parallelism.tensor for role in ENGINE_ROLES}
    return (
        spec.decode.accelerator.devices is None
        or sum(counts.of(role) * ranks[role] for role in ENGINE_ROLES) <= MAX_CLAIMED
    )


def _same_accelerator(spec: Any) -> bool:
    p, d = spec.parameter.accelerator, spec.decode.accelerator
    return (p.type, p.resource_name, p.devices) == (d.type, d.resource_name, d.devices) and (
        not d.products or d.products == p.products
    )


HOST_LOCAL_RULES: tuple[Rule, ...] = of_the_pair(
    (
        _rule(
            "self.transfer.connector == 'Nixl'",
            lambda s: s.transfer.connector == "Nixl",
            "transfer.connector",
            "The path HostLocal needs Nixl, the only connector that uses NVLink.",
        ),
        _rule(
            "self.parameter.parallelism.nodes == 1 && self.parameter.parallelism.pipeline == 1 "
            "&& self.parameter.parallelism.data == 1 && self.decode.parallelism.data == 1",
            lambda s: (
                s.parameter.parallelism.nodes == s.parameter.parallelism.pipeline == 1
                and s.parameter.parallelism.data == s.decode.parallelism.data == 1
            ),
            "transfer.path",
            "With the path HostLocal, nodes, pipeline and data of parallelism must be 1. Raise tensor, or the numbers "
            "in transfer.hostLocal; or use the path Network.",
        ),
        _rule(
            "self.parameter.accelerator.type == self.decode.accelerator.type "
            "&& self.parameter.accelerator.resourceName == self.decode.accelerator.resourceName "
            "&& has(self.parameter.accelerator.devices) == has(self.decode.accelerator.devices) "
            "&& (!has(self.decode.accelerator.devices) "
            "|| self.parameter.accelerator.devices == self.decode.accelerator.devices) "
            "&& (!has(self.decode.accelerator.products) || self.decode.accelerator.products.size() == 0 "
            "|| (has(self.parameter.accelerator.products) "
            "&& self.parameter.accelerator.products == self.decode.accelerator.products))",
            _same_accelerator,
            "decode.accelerator",
            "With the path HostLocal, P and D share pods. Write the same type, resourceName, devices and products in "
            "spec.parameter.accelerator and spec.decode.accelerator.",
        ),
        _rule(
            "!has(self.transfer.rdma)",
            lambda s: s.transfer.rdma is None,
            "transfer.rdma",
            "With the path HostLocal, KV cache stays in the pod. Remove rdma, or use the path Network.",
        ),
        _rule(
            "!has(self.parameter.kvTiers) && !has(self.decode.kvTiers)",
            lambda s: not (s.parameter.kv_tiers or s.decode.kv_tiers),
            "transfer.path",
            "kvTiers cannot be combined with the path HostLocal. Remove them, or use the path Network.",
        ),
        _rule(
            f"!has(self.decode.accelerator.devices) || {DEVICES} <= {MAX_CLAIMED}",
            _few_devices,
            "transfer.hostLocal",
            f"A pod can claim {MAX_CLAIMED} devices at most. Lower the numbers here, or tensor of the roles.",
        ),
    )
)
