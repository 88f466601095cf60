"""On which products the pods of a role may run: what D takes from P, and whether a role names a product at all."""

from collections.abc import Iterator, Mapping
from typing import Any

from pdinference.api.v1alpha1.roles.parameter import ParameterSpec
from pdinference.api.v1alpha1.roles.role import RoleSpec


def with_products_of(parameter: ParameterSpec, decode: RoleSpec) -> RoleSpec:
    """D as it runs: with the products of P, their label and their memory where it takes these.

    It does so when it has no `products`, asks for the same extended resource as P, and has no node selector or
    affinity, or that of P. Any other one counts as D's own choice: a condition on another label, such as that of a node
    pool, may mean nodes that have other products, and D would fit on no node. No list and an empty list are the same,
    as everywhere in Kubernetes: the API server gives a resource no new generation when one replaces the other.
    """
    own, of_p = decode.accelerator, parameter.accelerator
    if own.products or not parameter.products:
        return decode
    alike = own.type == of_p.type and own.devices is None and own.resource_name == of_p.resource_name
    elsewhere = chooses_nodes(decode) and _chosen_nodes(decode) != _chosen_nodes(parameter)
    if not alike or elsewhere:
        return decode
    taken = {
        "products": parameter.products,
        "product_label": of_p.product_label,
        "memory": own.memory if own.memory is not None else of_p.memory,
    }
    return decode.model_copy(update={"accelerator": own.model_copy(update=taken)})


def chooses_nodes(role: RoleSpec) -> bool:
    """Whether `placement` or `podTemplate` of a role have a node selector or a node affinity."""
    return any(_chosen_nodes(role))


def names_product(role: RoleSpec) -> bool:
    """Whether pods run only on nodes of products that the spec names, by `products` or by the same label elsewhere."""
    label, overlay = role.accelerator.product_label, _pod_of(role)
    if label in role.placement.node_selector or label in _member(overlay, "nodeSelector"):
        return True
    terms = _required_terms(overlay)
    if terms is None:  # else they replace those that `products` is in (strategic merge)
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
    """`spec` of an overlay, which may be anything before it is checked."""
    return _member(role.pod_template, "spec")


def _member(holder: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = holder.get(name)
    return value if isinstance(value, Mapping) else {}


def _required_terms(pod: Mapping[str, Any]) -> list[Any] | None:
    """The alternatives of a required node affinity; None where there are none."""
    node = _member(_member(pod, "affinity"), "nodeAffinity")
    terms = _member(node, "requiredDuringSchedulingIgnoredDuringExecution").get("nodeSelectorTerms")
    return terms if isinstance(terms, list) else None


def _values_asked_for(term: Any) -> Iterator[str]:
    """Labels that must have one of some values."""
    expressions = term.get("matchExpressions") if isinstance(term, Mapping) else None
    for expression in expressions if isinstance(expressions, list) else ():
        if isinstance(expression, Mapping) and expression.get("operator") == "In":
            yield str(expression.get("key"))
