"""`spec.parameter`: the settings of P, including those that D does not have.

Tests: tests/api/test_validation.py, tests/api/test_pinning.py, tests/manifests/test_nodes.py
"""

from typing import Annotated, ClassVar

from pydantic import Field

from pdinference.api.v1alpha1.base import ApiModel, LabelValue, LabelValues, QualifiedName, Rule
from pdinference.api.v1alpha1.roles.role import RoleSpec


class NodePool(ApiModel):
    """Placement of one node of each instance. Members that are not set follow `accelerator` and `placement`."""

    products: LabelValues = Field(default_factory=list)
    """Accelerator products; they replace accelerator.products."""
    node_selector: Annotated[dict[QualifiedName, LabelValue], Field(max_length=16)] = Field(default_factory=dict)
    """Required node labels, in addition to placement.nodeSelector."""


class ParameterSpec(RoleSpec):
    """Settings of P."""

    node_pools: Annotated[list[NodePool], Field(max_length=16)] = Field(default_factory=list)
    """Placement of each node of a multi-node instance, in the order of vLLM's ranks. The first node has the first
    pipeline stages, that is the early layers, or the first data-parallel ranks. Default: the same placement for all."""

    rules: ClassVar[tuple[Rule, ...]] = (
        *RoleSpec.rules,
        Rule(
            cel="!has(self.nodePools) || self.nodePools.size() == 0 "
            "|| (self.parallelism.nodes > 1 && self.nodePools.size() == self.parallelism.nodes)",
            holds=lambda p: not p.node_pools or len(p.node_pools) == p.parallelism.nodes > 1,
            field="nodePools",
            message="Set one entry for each node of an instance (parallelism.nodes, at least 2).",
        ),
        Rule(
            cel="!has(self.nodePools) || (self.accelerator.type != 'CPU' && !has(self.accelerator.devices)) "
            "|| self.nodePools.all(p, !has(p.products) || p.products.size() == 0)",
            holds=lambda p: (
                (p.accelerator.type != "CPU" and p.accelerator.devices is None)
                or not any(pool.products for pool in p.node_pools)
            ),
            field="nodePools",
            message="products cannot be combined with type CPU or accelerator.devices. Use nodeSelector instead.",
        ),
    )

    @property
    def products(self) -> list[str]:
        """Accelerator products that the pods may run on, over all nodes of an instance; empty for any."""
        if not self.node_pools:
            return self.accelerator.products
        nodes = [self.on_node(rank).accelerator.products for rank in range(len(self.node_pools))]
        return sorted({product for products in nodes for product in products}) if all(nodes) else []

    def on_node(self, rank: int) -> "ParameterSpec":
        """The spec as it applies to one node of each instance, with the products of that node only."""
        if not self.node_pools:
            return self
        pool = self.node_pools[rank]
        products = pool.products or self.accelerator.products
        selector = {**self.placement.node_selector, **pool.node_selector}
        return self.model_copy(
            update={
                "accelerator": self.accelerator.model_copy(update={"products": products}),
                "placement": self.placement.model_copy(update={"node_selector": selector}),
                "node_pools": [],
            }
        )
