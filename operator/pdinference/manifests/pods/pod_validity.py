"""What the API server rejects in a pod template although each field has the right form.

The tables of `pod_rules` check the form of each field of an overlay. This checks how the fields of the finished
template fit together: names that occur twice, mounts of volumes that do not exist, requests above limits. Source:
`ValidatePodTemplateSpec` in pkg/apis/core/validation/validation.go of Kubernetes. tests/integration/test_edges.py
compares both.

Tests: tests/integration/test_edges.py, tests/manifests/test_pod_rules.py
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from pdinference.api.container_resources import resource_faults
from pdinference.api.validation import Problem
from pdinference.manifests.pods.pod_security import containers_of

Json = Mapping[str, Any]
Found = Iterator[tuple[str, str]]
_PROBES: Final = ("startupProbe", "readinessProbe", "livenessProbe")
_CALLS: Final = ("exec", "httpGet", "tcpSocket", "grpc", "sleep")
_LISTS: Final = {"volumes": "name", "hostAliases": "ip", "resourceClaims": "name", "schedulingGates": "name"}
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
_WITHOUT_VALUES: Final = ("Exists", "DoesNotExist")


def validity_problems(pod: Json, field_path: str = "") -> Iterator[Problem]:
    """Parts of a pod template that do not fit together.

    Args:
        pod: Object with `metadata` and `spec`, whose fields have the right form each.
        field_path: Prefix of each path.
    """
    for rule in _RULES:
        for path, message in rule(pod):
            yield Problem(f"{field_path}.{path}".lstrip("."), message)


def _images(pod: Json) -> Found:
    for path, container in containers_of(pod):
        if not container.get("image"):
            yield f"{path}.image", "The pod has no container of this name. Write its image, or correct the name."


def _names(pod: Json) -> Found:
    spec = pod["spec"]
    yield from _twice("spec.containers", (container.get("name") for _, container in containers_of(pod)))
    for member, key in _LISTS.items():
        yield from _twice(f"spec.{member}", (item.get(key) for item in spec.get(member) or ()))
    spreads = spec.get("topologySpreadConstraints") or ()
    yield from _twice(
        "spec.topologySpreadConstraints",
        (f"{spread.get('topologyKey')}, {spread.get('whenUnsatisfiable')}" for spread in spreads),
    )
    for path, container in containers_of(pod):
        yield from _twice(f"{path}.env", (variable.get("name") for variable in container.get("env") or ()))
        yield from _twice(f"{path}.volumeMounts", (m.get("mountPath") for m in container.get("volumeMounts") or ()))
        ports = container.get("ports") or ()
        yield from _twice(f"{path}.ports", (port["name"] for port in ports if port.get("name")))
        yield from _twice(f"{path}.ports", (f"{p.get('containerPort')}/{p.get('protocol', 'TCP')}" for p in ports))


def _twice(path: str, values: Iterable[object]) -> Found:
    for value, count in Counter(map(str, values)).items():
        if count > 1:
            yield path, f"{value} occurs {count} times. Write it once."


def _volumes(pod: Json) -> Found:
    for volume in pod["spec"].get("volumes") or ():
        path = f"spec.volumes[{volume.get('name')}]"
        if len(volume.keys() - {"name"}) != 1:
            yield path, "A volume has exactly one type. Write one, or use another name than those of the operator."
        for index, source in enumerate((volume.get("projected") or {}).get("sources") or ()):
            if len(source) != 1:
                yield f"{path}.projected.sources[{index}]", "Write exactly one source in each entry."
            yield from _one_field((source.get("downwardAPI") or {}).get("items"), f"{path}.projected.sources[{index}]")
        yield from _one_field((volume.get("downwardAPI") or {}).get("items"), f"{path}.downwardAPI")


def _one_field(items: Iterable[Json] | None, path: str) -> Found:
    for item in items or ():
        if ("fieldRef" in item) is ("resourceFieldRef" in item):
            yield f"{path}.items[{item.get('path')}]", "Set exactly one of fieldRef and resourceFieldRef."


def _mounts(pod: Json) -> Found:
    volumes = {volume.get("name") for volume in pod["spec"].get("volumes") or ()}
    for path, container in containers_of(pod):
        for mount in container.get("volumeMounts") or ():
            where = f"{path}.volumeMounts[{mount.get('mountPath')}]"
            if mount.get("name") not in volumes:
                yield f"{where}.name", f"The pod has no volume {mount.get('name')}. Add it to volumes."
            if mount.get("subPath") and mount.get("subPathExpr"):
                yield f"{where}.subPathExpr", "Set only one of subPath and subPathExpr."
            if mount.get("recursiveReadOnly", "Disabled") != "Disabled" and not mount.get("readOnly"):
                yield f"{where}.recursiveReadOnly", "Set readOnly: true, too."


def _variables(pod: Json) -> Found:
    for path, container in containers_of(pod):
        for variable in container.get("env") or ():
            where, source = f"{path}.env[{variable.get('name')}]", variable.get("valueFrom")
            if source is not None and (variable.get("value") or len(source) != 1):
                yield where, "Set either value or one source in valueFrom."


def _resources(pod: Json) -> Found:
    claims = {claim.get("name") for claim in pod["spec"].get("resourceClaims") or ()}
    for path, container in containers_of(pod):
        resources = container.get("resources") or {}
        requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
        for member, message in resource_faults(requests, limits):
            yield f"{path}.resources.{member}", message
        for claim in resources.get("claims") or ():
            if claim.get("name") not in claims:
                yield f"{path}.resources.claims[{claim.get('name')}]", "The pod has no such claim. Add resourceClaims."
    for claim in pod["spec"].get("resourceClaims") or ():
        if ("resourceClaimName" in claim) is ("resourceClaimTemplateName" in claim):
            yield (
                f"spec.resourceClaims[{claim.get('name')}]",
                "Set exactly one of resourceClaimName and resourceClaimTemplateName.",
            )


def _probes(pod: Json) -> Found:
    init = {id(container) for container in pod["spec"].get("initContainers") or () if "restartPolicy" not in container}
    for path, container in containers_of(pod):
        hooks = container.get("lifecycle") or {}
        handlers = {name: container[name] for name in _PROBES if name in container}
        for name, handler in (*handlers.items(), *((f"lifecycle.{name}", hook) for name, hook in hooks.items())):
            if id(container) in init:
                yield f"{path}.{name}", "An init container without restartPolicy: Always has no probes and hooks."
            elif sum(call in handler for call in _CALLS) != 1:
                yield f"{path}.{name}", "Write exactly one call: exec, httpGet, tcpSocket or grpc."
            if "exec" in handler and not (handler["exec"] or {}).get("command"):
                yield f"{path}.{name}.exec.command", "Write the command as a list, the program first."
            if name in {"startupProbe", "livenessProbe"} and handler.get("successThreshold", 1) != 1:
                yield f"{path}.{name}.successThreshold", "Only a readinessProbe can need several successes. Write 1."
            if name == "readinessProbe" and "terminationGracePeriodSeconds" in handler:
                yield f"{path}.{name}.terminationGracePeriodSeconds", "A readinessProbe ends no container. Remove it."
            grace = pod["spec"].get("terminationGracePeriodSeconds", 30)
            if (handler.get("sleep") or {}).get("seconds", 0) > grace:
                yield f"{path}.{name}.sleep.seconds", f"The pod has {grace} s to end (spec.rollout.drainSeconds)."


def _tolerations(pod: Json) -> Found:
    for index, toleration in enumerate(pod["spec"].get("tolerations") or ()):
        path, exists = f"spec.tolerations[{index}]", toleration.get("operator") == "Exists"
        if exists and toleration.get("value"):
            yield f"{path}.value", "Operator Exists takes no value. Remove value."
        if not toleration.get("key") and not exists:
            yield f"{path}.operator", "Operator Equal needs a key. Set the key of the taint, or use operator Exists."
        if "tolerationSeconds" in toleration and toleration.get("effect") != "NoExecute":
            yield f"{path}.tolerationSeconds", "Set tolerationSeconds only with effect NoExecute."


def _spreads(pod: Json) -> Found:
    for spread in pod["spec"].get("topologySpreadConstraints") or ():
        path = f"spec.topologySpreadConstraints[{spread.get('topologyKey')}]"
        if "minDomains" in spread and spread.get("whenUnsatisfiable") != "DoNotSchedule":
            yield f"{path}.minDomains", "Set minDomains only with whenUnsatisfiable: DoNotSchedule."
        yield from _selector(spread, path)


def _affinity(pod: Json) -> Found:
    affinity = pod["spec"].get("affinity") or {}
    nodes = affinity.get("nodeAffinity") or {}
    required = nodes.get(_REQUIRED)
    terms = [preferred["preference"] for preferred in nodes.get(_PREFERRED) or ()]
    if required is not None:
        if not required.get("nodeSelectorTerms"):
            yield "spec.affinity.nodeAffinity", "Write at least one term in nodeSelectorTerms."
        terms += required.get("nodeSelectorTerms") or ()
    for term in terms:
        for member in ("matchExpressions", "matchFields"):
            yield from _expressions(term.get(member), f"spec.affinity.nodeAffinity.{member}", of_nodes=True)
        for expression in term.get("matchFields") or ():
            if expression["key"] != "metadata.name" or len(expression.get("values") or ()) != 1:
                yield "spec.affinity.nodeAffinity.matchFields", "The only field is metadata.name, with one value."
    for kind in ("podAffinity", "podAntiAffinity"):
        pods = affinity.get(kind) or {}
        preferred = pods.get(_PREFERRED) or ()
        for term in (*(pods.get(_REQUIRED) or ()),
                     *(weighted["podAffinityTerm"] for weighted in preferred)):  # fmt: skip
            yield from _selector(term, f"spec.affinity.{kind}[{term.get('topologyKey')}]")


def _selector(term: Json, path: str) -> Found:
    selector = term.get("labelSelector")
    if selector is None and (term.get("matchLabelKeys") or term.get("mismatchLabelKeys")):
        yield f"{path}.matchLabelKeys", "Set labelSelector, too."
    expressions = (selector or {}).get("matchExpressions") or ()
    yield from _expressions(expressions, f"{path}.labelSelector.matchExpressions", of_nodes=False)
    selected = {*((selector or {}).get("matchLabels") or ()), *(expression["key"] for expression in expressions)}
    ours, others = term.get("matchLabelKeys") or [], term.get("mismatchLabelKeys") or []
    for key in {*ours} & selected | {*others} & selected | {*ours} & {*others}:
        yield f"{path}.matchLabelKeys", f"{key} is also in labelSelector or in the other list. Write it once."
    yield from _twice(f"{path}.matchLabelKeys", [*ours, *others])


def _expressions(expressions: Iterable[Json] | None, path: str, *, of_nodes: bool) -> Found:
    for expression in expressions or ():
        operator, values = expression["operator"], expression.get("values") or []
        where = f"{path}[{expression['key']}]"
        if operator in {"Gt", "Lt"}:
            if not of_nodes or len(values) != 1 or not str(values[0]).isdigit():
                yield where, "Gt and Lt compare labels of nodes with one whole number."
        elif (operator in _WITHOUT_VALUES) is bool(values):
            yield where, "Exists and DoesNotExist take no values. The other operators need at least one."


def _resolver(pod: Json) -> Found:
    if pod["spec"].get("dnsPolicy") == "None" and not (pod["spec"].get("dnsConfig") or {}).get("nameservers"):
        yield "spec.dnsConfig.nameservers", "With dnsPolicy None, write at least one name server."


_RULES: Final = (
    _images,
    _names,
    _volumes,
    _mounts,
    _variables,
    _resources,
    _probes,
    _tolerations,
    _spreads,
    _affinity,
    _resolver,
)
