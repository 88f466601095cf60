"""The products that the pods of a role may run on: what D inherits from P, and whether a role names products.

Tests: tests/api/test_pinning.py
"""

from collections.abc import Iterator, Mapping
from typing import Any

from pdinference.api.v1alpha1.roles.parameter import ParameterSpec
from pdinference.api.v1alpha1.roles.role import RoleSpec


def with_products_of(parameter: ParameterSpec, decode: RoleSpec, *, share_pods: bool = False) -> RoleSpec:
    """The spec of D with the products of P, their label and their memory, if D inherits them.

    D inherits them if it has no `products`, requests the same extended resource as P, and has no node selector or
    affinity that differs from that of P. A different selector may select nodes with other products, and D would then
    fit no node. An absent list and an empty list mean the same: the API server does not change the generation when one
    replaces the other.

    Args:
        parameter: The spec of P.
        decode: The spec of D.
        share_pods: Whether P runs in the pods of D, which then have the products of P in any case.
    """
    own, of_p = decode.accelerator, parameter.accelerator
    if own.products or not parameter.products:
        return decode
    alike = own.type == of_p.type and own.devices is None and own.resource_name == of_p.resource_name
    elsewhere = not share_pods and chooses_nodes(decode) and _chosen_nodes(decode) != _chosen_nodes(parameter)
    if not alike or elsewhere:
        return decode
    taken = {
        "products": parameter.products,
        "product_label": of_p.product_label,
        "memory": own.memory if own.memory is not None else of_p.memory,
    }
    return decode.model_copy(update={"accelerator": own.model_copy(update=taken)})


def chooses_nodes(role: RoleSpec) -> bool:
    """Whether `placement` or `podTemplate` of a role has a node selector or a node affinity."""
    return any(_chosen_nodes(role))


def names_product(role: RoleSpec) -> bool:
    """Whether the spec restricts pods to named products, by `products` or by the product label elsewhere."""
    label, overlay = role.accelerator.product_label, _pod_of(role)
    if label in role.placement.node_selector or label in _member(overlay, "nodeSelector"):
        return True
    terms = _required_terms(overlay)
    if terms is None:  # otherwise they replace the terms that contain `products` (strategic merge)
        if role.accelerator.products:
            return True
        affinity = role.placement.node_affinity
        placed = {} if affinity is None else affinity.model_dump(by_alias=True, mode="json")
        terms = _required_terms({"affinity": {"nodeAffinity": placed}})
    return bool(terms) and all(label in _values_asked_for(term) for term in terms or ())


def _chosen_nodes(role: RoleSpec) -> tuple[object, ...]:
    overlay = _pod_of(role)
    placed = role.placement.node_selector, role.placement.node_affinity
    return *placed, overlay.get("nodeSelector"), _member(overlay, "affinity").get("nodeAffinity")


def _pod_of(role: RoleSpec) -> Mapping[str, Any]:
    """`spec` of an overlay. It may have any type before it is validated."""
    return _member(role.pod_template, "spec")


def _member(holder: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = holder.get(name)
    return value if isinstance(value, Mapping) else {}


def _required_terms(pod: Mapping[str, Any]) -> list[Any] | None:
    """The terms of a required node affinity; None if there are none."""
    node = _member(_member(pod, "affinity"), "nodeAffinity")
    terms = _member(node, "requiredDuringSchedulingIgnoredDuringExecution").get("nodeSelectorTerms")
    return terms if isinstance(terms, list) else None


def _values_asked_for(term: Any) -> Iterator[str]:
    """Keys of labels that must have one of several values."""
    expressions = term.get("matchExpressions") if isinstance(term, Mapping) else None
    for expression in expressions if isinstance(expressions, list) else ():
        if isinstance(expression, Mapping) and expression.get("operator") == "In":
            yield str(expression.get("key"))
