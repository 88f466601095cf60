"""Rules of the path HostLocal, where P and D share pods (`spec.transfer.path`).

Tests: tests/api/test_host_local.py
"""

from typing import Any

from pdinference.api.names import ENGINE_ROLES, Role
from pdinference.api.v1alpha1.base import Rule
from pdinference.api.v1alpha1.mode import of_the_pair
from pdinference.api.v1alpha1.transfer import host_local_cel

HOST_LOCAL = host_local_cel("self.transfer")
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


def _same_accelerator(spec: Any) -> bool:
    p, d = spec.parameter.accelerator, spec.decode.accelerator
    alike = (p.type, p.resource_name, p.devices is None) == (d.type, d.resource_name, d.devices is None)
    return alike and (not d.products or d.products == p.products)


HOST_LOCAL_RULES: tuple[Rule, ...] = of_the_pair(
    (
        _rule(
            "self.parameter.parallelism.nodes == 1 && self.parameter.parallelism.pipeline == 1 "
            "&& self.parameter.parallelism.data == 1 && self.decode.parallelism.data == 1 "
            "&& !has(self.parameter.kvTiers) && !has(self.decode.kvTiers)",
            lambda s: (
                s.parameter.parallelism.nodes == s.parameter.parallelism.pipeline == 1
                and s.parameter.parallelism.data == s.decode.parallelism.data == 1
                and not (s.parameter.kv_tiers or s.decode.kv_tiers)
            ),
            "transfer.path",
            "HostLocal needs nodes, pipeline and data of parallelism to be 1, and no kvTiers. Change these, or use the "
            "path Network.",
        ),
        _rule(
            "self.parameter.accelerator.type == self.decode.accelerator.type "
            "&& self.parameter.accelerator.resourceName == self.decode.accelerator.resourceName "
            "&& has(self.parameter.accelerator.devices) == has(self.decode.accelerator.devices) "
            "&& (!has(self.decode.accelerator.products) || self.decode.accelerator.products.size() == 0 "
            "|| (has(self.parameter.accelerator.products) "
            "&& self.parameter.accelerator.products == self.decode.accelerator.products))",
            _same_accelerator,
            "decode.accelerator",
            "With the path HostLocal, P and D share pods. Write the same type, resourceName, products and devices as "
            "in spec.parameter.accelerator.",
        ),
    )
)
