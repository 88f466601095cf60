"""Checks of the devices that pods need: GPUs by an extended resource or a claim, RDMA devices, products.

Tests: tests/integration/test_doctor.py
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from decimal import Decimal
from typing import Final

from pdinference.api.names import Role
from pdinference.api.plain_text import first_of, plain
from pdinference.api.quantities import quantity
from pdinference.cli.doctor.facts import ClusterFacts, Subject
from pdinference.cli.doctor.finding import Finding, ok, problem, unknown
from pdinference.cli.doctor.matching import may_run
from pdinference.cli.listing import ObjectListing
from pdinference.cluster.client import Json

_OF_DRIVER: Final = re.compile(r"device\.driver\s*==\s*['\"]([a-z0-9.-]+)['\"]")
_COMPUTE_DOMAINS: Final = "resource.nvidia.com"
_CHANNELS: Final = "compute-domain.nvidia.com"
_SHOWN: Final = 8
_NOT_DEVICES: Final = ("hugepages-", "attachable-volumes-")
_PLUGIN: Final = (
    "Install the vendor's device plug-in (for NVIDIA: the GPU Operator or k8s-device-plugin), or correct "
    "accelerator.resourceName."
)


def devices(facts: ClusterFacts, subject: Subject | None) -> Iterator[Finding]:
    """All checks of this module."""
    if subject is None:
        yield from _overview(facts)
        return
    for role, name in subject.names_of_roles.items():
        pod = subject.templates[role]["spec"]
        nodes = ObjectListing(tuple(_suitable(pod, facts.nodes.items)), facts.nodes.unreadable)
        yield from _of_role(facts, subject, role, name, nodes)
    yield from _products(facts, subject)
    spec = subject.resource.spec
    if subject.claims and spec.rdma is None and spec.host_local is None:
        yield _imex(facts)


def _of_role(facts: ClusterFacts, subject: Subject, role: Role, name: str, nodes: ObjectListing) -> Iterator[Finding]:
    if nodes.unreadable:
        yield unknown(f"nodes of {name}", nodes.unreadable, "An administrator can run this command.")
    elif not nodes.items:
        remedy = "Correct placement and accelerator.products, add tolerations, or label the nodes."
        yield problem(f"nodes of {name}", f"None of {len(facts.nodes.items)} nodes fits labels and taints.", remedy)
    else:
        names = _listed(node["metadata"]["name"] for node in nodes.items)
        yield ok(
            f"nodes of {name}", f"{len(nodes.items)} of {len(facts.nodes.items)} nodes fit labels and taints: {names}."
        )
        for resource, amount in _of_pod(subject.templates[role]).items():
            yield _on_one_node(f"{resource} for {name}", resource, amount, nodes.items)
    if role in subject.claims:
        yield from _claimed(facts, subject.claims[role], name, nodes)


def _suitable(pod: Json, nodes: Iterable[Json]) -> Iterator[Json]:
    return (node for node in nodes if may_run(pod, node))


def _of_pod(template: Json) -> Counter[str]:
    """Amounts of extended resources of a pod."""
    containers = template["spec"]["containers"]
    return _extended((container.get("resources") or {}).get("limits") or {} for container in containers)


def _extended(lists: Iterable[Json]) -> Counter[str]:
    """Amounts of extended resources in several resource lists together."""
    amounts: Counter[str] = Counter()
    for resources in lists:
        for resource, amount in resources.items():
            if "/" in resource and not resource.startswith(_NOT_DEVICES):
                amounts[resource] += int(quantity(amount) or 0)
    return amounts


def _allocatable(node: Json) -> Json:
    return (node.get("status") or {}).get("allocatable") or {}


def _on_one_node(subject: str, resource: str, amount: int, nodes: tuple[Json, ...]) -> Finding:
    amounts = [quantity(_allocatable(node).get(resource)) or Decimal(0) for node in nodes]
    largest, fit = max(amounts), sum(each >= amount for each in amounts)
    if fit:
        return ok(subject, f"A pod needs {amount}; {fit} of these nodes have as many or more, whether free or not.")
    if not largest:
        return problem(subject, f"A pod needs {amount}; none of these nodes has any.", _PLUGIN)
    remedy = "Lower parallelism.tensor or transfer.rdma.count, or place the pods on larger nodes."
    return problem(subject, f"A pod needs {amount} on one node; the largest of these nodes has {largest}.", remedy)


def _claimed(facts: ClusterFacts, claim: Json, name: str, nodes: ObjectListing) -> Iterator[Finding]:
    """Device classes and published devices for a claim. Its CEL selectors are not evaluated."""
    for request in claim["requests"]:
        exactly = request["exactly"]
        class_name = exactly["deviceClassName"]
        subject = f"DeviceClass {class_name} for {name}"
        if facts.device_classes.unreadable:
            yield unknown(subject, facts.device_classes.unreadable)
            continue
        found = next((each for each in facts.device_classes.items if each["metadata"]["name"] == class_name), None)
        if found is None:
            there = _listed(each["metadata"]["name"] for each in facts.device_classes.items) or "none"
            remedy = "Install the DRA driver of the devices, or correct accelerator.devices.deviceClassName."
            yield problem(subject, f"It does not exist. There is {there}.", remedy)
            continue
        yield ok(subject, "It exists.")
        yield _published(facts, found, f"devices for {name}", exactly, nodes)


def _published(facts: ClusterFacts, found: Json, subject: str, exactly: Json, nodes: ObjectListing) -> Finding:
    count: int = exactly["count"]
    if facts.slices.unreadable or nodes.unreadable:
        return unknown(subject, facts.slices.unreadable or nodes.unreadable)
    driver = _driver(found)
    if driver is None:
        return unknown(subject, "The CEL expressions of the DeviceClass name no driver, and are not evaluated here.")
    here = {node["metadata"]["name"] for node in nodes.items}
    counts = {node: n for node, n in _devices_by_node(facts.slices, driver).items() if node in here}
    if not counts:
        remedy = f"Look at the pods of the DRA driver {driver} on these nodes (`kubectl get resourceslices`)."
        return problem(subject, f"Driver {driver} publishes no device on the nodes that fit.", remedy)
    largest = max(counts.values())
    if largest < count:
        remedy = "Lower parallelism.tensor, or place the pods on larger nodes."
        return problem(subject, f"A pod needs {count} of one node; the largest node has {largest}.", remedy)
    fit = sum(n >= count for n in counts.values())
    text = f"A pod needs {count}; {fit} of these nodes have as many or more, whether free or not."
    if exactly.get("selectors"):
        return unknown(subject, f"{text} The selectors of accelerator.devices are not evaluated here.")
    return ok(subject, text)


def _driver(device_class: Json) -> str | None:
    """The driver that a class names in its usual CEL expression."""
    selectors = (device_class.get("spec") or {}).get("selectors") or ()
    expressions = [(selector.get("cel") or {}).get("expression") or "" for selector in selectors]
    return next((match[1] for expression in expressions if (match := _OF_DRIVER.search(expression))), None)


def _devices_by_node(slices: ObjectListing, driver: str) -> Counter[str]:
    counts: Counter[str] = Counter()
    for item in slices.items:
        spec = item["spec"]
        if spec.get("driver") == driver and spec.get("nodeName"):
            counts[spec["nodeName"]] += len(spec.get("devices") or ())
    return counts


def _products(facts: ClusterFacts, subject: Subject) -> Iterator[Finding]:
    """Whether all pods get the same accelerator: a mixture gives other speeds, and P and D of other precision."""
    labels = {
        subject.resource.spec.of(role).accelerator.product_label
        for role in subject.templates
        if subject.resource.spec.of(role).accelerator.type == "GPU"
    }
    if facts.nodes.unreadable or not labels:
        return
    found: dict[str, set[str]] = {}
    for role, name in subject.names_of_roles.items():
        for node in _suitable(subject.templates[role]["spec"], facts.nodes.items):
            values = (node["metadata"].get("labels") or {}).items()
            found.setdefault(name, set()).update(plain(value, 63) for label, value in values if label in labels)
    text = "; ".join(f"{name} may run on {_listed(sorted(products))}" for name, products in found.items() if products)
    if not text:
        yield unknown("products", f"No node that fits has the label {' or '.join(sorted(labels))}.")
    elif len(set().union(*found.values())) > 1:
        yield problem("products", f"{text}.", "Name one product in accelerator.products of P and D.")
    else:
        yield ok("products", f"{text}.")


def _imex(facts: ClusterFacts) -> Finding:
    """Compute domains of NVIDIA's DRA driver, which give pods IMEX channels."""
    if not facts.groups.get(_COMPUTE_DOMAINS):
        return ok(
            "IMEX",
            f"No compute domains ({_COMPUTE_DOMAINS}): pods get no IMEX channels. Only NVLink between pods needs them.",
        )
    channels = _devices_by_node(facts.slices, _CHANNELS)
    return ok("IMEX", f"Compute domains are served; {len(channels)} nodes publish IMEX channels.")


def _overview(facts: ClusterFacts) -> Iterator[Finding]:
    """What all nodes offer, without a resource to compare it with."""
    if facts.nodes.unreadable:
        yield unknown("nodes", facts.nodes.unreadable, "An administrator can run this command.")
    else:
        yield _extended_overview(facts.nodes)
    if facts.serves("resource.k8s.io", "v1"):
        yield _class_overview(facts.device_classes)
        yield _imex(facts)


def _extended_overview(nodes: ObjectListing) -> Finding:
    totals = _extended(map(_allocatable, nodes.items))
    if not any(totals.values()):
        return problem("extended resources", f"None of {len(nodes.items)} nodes offers one.", f"For GPUs: {_PLUGIN}")
    offered = ", ".join(f"{plain(resource, 253)}: {amount}" for resource, amount in sorted(totals.items())[:_SHOWN])
    return ok("extended resources", f"On {len(nodes.items)} nodes: {offered}.")


def _class_overview(classes: ObjectListing) -> Finding:
    if classes.unreadable:
        return unknown("DeviceClasses", classes.unreadable)
    found = _listed(each["metadata"]["name"] for each in classes.items)
    return ok("DeviceClasses", f"{found or 'None'}. Only accelerator.devices needs one.")


def _listed(texts: Iterable[str]) -> str:
    return first_of([plain(text, 253) for text in texts], _SHOWN)
