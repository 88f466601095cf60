"""`spec.parameter`: what P has more than D."""

from typing import Annotated, ClassVar

from pydantic import Field

from pdinference.api.v1alpha1.base import ApiModel, LabelValue, LabelValues, QualifiedName, Rule
from pdinference.api.v1alpha1.roles.role import RoleSpec


class NodePool(ApiModel):
    """Where one node of each instance is. What is not set is as in `accelerator` and `placement`."""

    products: LabelValues = Field(default_factory=list)
    """Accelerator products, instead of accelerator.products."""
    node_selector: Annotated[dict[QualifiedName, LabelValue], Field(max_length=16)] = Field(default_factory=dict)
    """Node labels that must all match, besides those of placement.nodeSelector."""


class ParameterSpec(RoleSpec):
    """P."""

    node_pools: Annotated[list[NodePool], Field(max_length=16)] = Field(default_factory=list)
    """For instances of several nodes: where each node is, in the order of vLLM's ranks, so that the first has the first
    pipeline stages and thus the early layers. Default: alike."""

    rules: ClassVar[tuple[Rule, ...]] = (
        *RoleSpec.rules,
        Rule(
            cel="!has(self.nodePools) || self.nodePools.size() == 0 "
            "|| (self.parallelism.nodes > 1 && self.nodePools.size() == self.parallelism.nodes)",
            holds=lambda p: not p.node_pools or len(p.node_pools) == p.parallelism.nodes > 1,
            field="nodePools",
            message="Give one for each node of an instance (parallelism.nodes, at least 2).",
        ),
        Rule(
            cel="!has(self.nodePools) || (self.accelerator.type != 'CPU' && !has(self.accelerator.devices)) "
            "|| self.nodePools.all(p, !has(p.products) || p.products.size() == 0)",
            holds=lambda p: (
                (p.accelerator.type != "CPU" and p.accelerator.devices is None)
                or not any(pool.products for pool in p.node_pools)
            ),
            field="nodePools",
            message="Products go with neither type CPU nor accelerator.devices; choose nodes with nodeSelector.",
        ),
    )

    @property
    def products(self) -> list[str]:
        """Accelerator products that any of the pods may run on; empty for any."""
        if not self.node_pools:
            return self.accelerator.products
        nodes = [self.on_node(rank).accelerator.products for rank in range(len(self.node_pools))]
        return sorted({product for products in nodes for product in products}) if all(nodes) else []

    def on_node(self, rank: int) -> "ParameterSpec":
        """The spec as it is for one node of each instance; `products` are then those of this node alone."""
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
