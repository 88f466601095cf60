"""The GPUs of P and D, grouped by kind.

Tests: tests/memory/comparison/test_unsplit.py
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from pdinference.api.names import ENGINE_ROLES, Role
from pdinference.memory.figures import Figure
from pdinference.memory.plan import Inputs, RolePlan, device_memory

Plans = Mapping[Role, RolePlan]


@dataclass(frozen=True, slots=True)
class GpuPool:
    """GPUs of one kind.

    Attributes:
        products: Values of the nodes' label; empty where none is named.
        offered_as: Extended resource, or DeviceClass and selectors.
        memory: Bytes of one device.
        instances: How many of them an instance of each role has, where it has any.
    """

    products: tuple[str, ...]
    offered_as: tuple[str, ...]
    memory: Figure
    instances: Mapping[Role, int]

    def gpus(self, instances: Mapping[Role, int]) -> int:
        """Number of GPUs for these instances of the roles."""
        return sum(count * instances[role] for role, count in self.instances.items())

    def is_like(self, other: "GpuPool") -> bool:
        """Whether the GPUs are of the same kind; where a role names no product, its memory decides."""
        products = self.products == other.products or not (self.products and other.products)
        return products and self.offered_as == other.offered_as and self.memory.value == other.memory.value


def pools_of(inputs: Inputs, plans: Plans) -> list[GpuPool]:
    """The GPUs of P and D by kind; on CPU a role has none.

    Args:
        inputs: Inputs of the plans.
        plans: Of P and of D.
    """
    pools: list[GpuPool] = []
    for new in (pool for role in ENGINE_ROLES for pool in _pools_of_role(inputs, role, plans[role])):
        like = next((pool for pool in pools if pool.is_like(new)), None)
        if like is None:
            pools.append(new)
            continue
        roles = {role: like.instances.get(role, 0) + new.instances.get(role, 0) for role in ENGINE_ROLES}
        counts = {role: count for role, count in roles.items() if count}
        pools[pools.index(like)] = replace(like, products=like.products or new.products, instances=counts)
    return pools


def _pools_of_role(inputs: Inputs, role: Role, plan: RolePlan) -> Iterable[GpuPool]:
    """Those of each node of an instance."""
    own = inputs.spec.of(role)
    if plan.settings.cpu:
        return
    accelerator = own.accelerator
    claimed = accelerator.devices
    offered_as = (claimed.device_class_name, *claimed.selectors) if claimed else (accelerator.resource_name,)
    for rank in range(own.parallelism.nodes):
        products = inputs.spec.of(role, rank).accelerator.products
        memory = inputs.memory or device_memory(inputs.spec, role, rank)
        yield GpuPool(tuple(products), offered_as, memory, {role: own.parallelism.devices_per_pod})
