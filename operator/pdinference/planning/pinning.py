"""The condition Pinned: whether P runs only on named products, and where P and D run."""

from pdinference.api.names import Role
from pdinference.api.v1alpha1 import RoleSpec, Spec
from pdinference.api.v1alpha1.roles.pinning import chooses_nodes, names_product
from pdinference.planning.condition_changes import ConditionResult


def pinned(spec: Spec) -> ConditionResult | None:
    """Whether P is pinned, and where both roles run; None where P has no accelerator, and without P."""
    if spec.parameter.accelerator.type == "CPU" or Role.PARAMETER not in spec.engine_roles:
        return None
    if (problem := not_pinned(spec)) is not None:
        return ConditionResult("False", "NotPinned", f"spec.parameter.accelerator.products: {problem}")
    return ConditionResult("True", "Pinned", f"P {_where_p(spec)}. D {_where_d(spec)}.")


def not_pinned(spec: Spec) -> str | None:
    """The message when P may run on any product; None when P is pinned, and without P."""
    if Role.PARAMETER not in spec.engine_roles:
        return None
    own = spec.parameter.accelerator
    nodes: list[RoleSpec] = [spec.parameter.on_node(rank) for rank in range(len(spec.parameter.node_pools) or 1)]
    if spec.host_local is not None:  # the pods are those of D
        nodes = [spec.of(Role.DECODE)]
    if own.type == "CPU" or own.devices is not None or all(map(names_product, nodes)):
        return None
    return (
        f"P is not pinned to a product: its pods may run on any node with {own.resource_name}. "
        f"List products here. `kubectl get nodes -L {own.product_label}` shows the products in the cluster."
    )


def _where_p(spec: Spec) -> str:
    return _on_devices(spec.parameter) or "runs on nodes that placement, nodePools or podTemplate choose"


def _where_d(spec: Spec) -> str:
    decode = spec.of(Role.DECODE)
    if (devices := _on_devices(decode)) is not None:
        taken = decode.products != spec.decode.products
        return f"{devices}, the products of P" if taken else devices
    advice = "" if names_product(decode) else "; to pin it to a product, list spec.decode.accelerator.products"
    if chooses_nodes(decode):
        return f"runs on nodes that its own placement or podTemplate choose{advice}"
    return f"runs on any node with {decode.accelerator.resource_name}{advice}"


def _on_devices(role: RoleSpec) -> str | None:
    """The devices of a role's pods; None where `accelerator` does not name them."""
    if role.accelerator.type == "CPU":
        return "runs on CPU"
    if role.accelerator.devices is not None:
        return "claims exact devices"
    return f"runs on {', '.join(role.products)}" if role.products else None
