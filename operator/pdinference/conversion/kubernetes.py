"""Containers of Kubernetes manifests that start vLLM, with settings from their pods.

Tests: tests/conversion/test_containers.py, tests/conversion/test_field_points.py, tests/conversion/test_kinds.py
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pdinference.api.v1alpha1.roles.accelerator import Accelerator
from pdinference.conversion.config_maps import ConfigMaps, config_maps, mounted_files
from pdinference.conversion.docker import SHARED_MEMORY, UNUSED_VOLUME, Container
from pdinference.conversion.gpu_labels import gpu_settings
from pdinference.conversion.launch import Finding, Folder, Launch, Remark, Unresolved
from pdinference.conversion.left_out import as_sentence
from pdinference.conversion.pod_templates import PodTemplate, pod_templates
from pdinference.conversion.programs import Context, container_starts
from pdinference.conversion.yaml_values import mapping, mappings, number, text, text_map, texts
from pdinference.engine.refused import refused_variable

_REFERENCE = re.compile(r"\$\$|\$\(([A-Za-z_][A-Za-z0-9_.-]*)\)", re.ASCII)
_GO_TEMPLATE = re.compile(r"\{\{-?\s*\.\w[^{}]*\}\}", re.ASCII)
"""A part that a controller or Helm fills in, such as `{{.Name}}`."""
_GPU: str = Accelerator.model_fields["resource_name"].default
_DEVICE = re.compile(r".*/(gpu|gaudi|tpu|gpu\.shared|mig-[\w.-]+)")
_RDMA = re.compile(r"rdma/.+")
_TAKEN = frozenset({"name", "image", "command", "args", "env", "envFrom", "ports", "resources", "volumeMounts"})
_OWN = {
    **dict.fromkeys(("livenessProbe", "readinessProbe", "startupProbe"), "The operator sets the probes."),
    "lifecycle": "The operator drains pods before they stop (rollout.drainSeconds).",
    "securityContext": "The operator sets one that meets the restricted Pod Security Standard.",
    "imagePullPolicy": "Use podTemplate of the role.",
    "workingDir": "The operator starts vLLM directly, in the folder of the image.",
}
_POD_TAKEN = frozenset(
    {"containers", "mainContainer", "volumes", "nodeSelector", "tolerations", "restartPolicy", "affinity"}
)
_FIELDS = {
    "priorityClassName": "role.placement.priorityClassName",
    "runtimeClassName": "role.placement.runtimeClassName",
    "schedulerName": "role.placement.schedulerName",
}
_SERVICE = (
    "The operator creates a Service with the name of the resource and this port. If this Service has the same name, "
    "choose another name for the resource, or delete this Service first."
)
TEMPLATE = "Add it to podTemplate of the role if pods still need it."
_OF_A_SOURCE = (
    "The variables that this Secret gives are not known here. For a token of the hub, set tokenSecret of "
    "model.source.huggingFace to {{name: {name}, key: ...}}; for API keys of clients, router.apiKeys.secretName. Add "
    "others to podTemplate of the role."
)
_NOT_HERE = "Its values are in a ConfigMap that is not in this file. Put it into the file, or write them into env."
_EXTENDED = "The operator requests devices by accelerator and transfer.rdma only. Add it to podTemplate of the role."
_NODE_AFFINITY = "requiredDuringSchedulingIgnoredDuringExecution"


@dataclass(frozen=True)
class _Environment:
    """Variables of a container: for vLLM, and for references in its command.

    Attributes:
        values: Variables with values.
        secrets: Variables from Secrets.
        known: Values and references for commands of the container.
        remarks: Remarks on variables that are left out.
    """

    values: dict[str, str]
    secrets: dict[str, tuple[str, str]]
    known: dict[str, str]
    remarks: list[Remark]


def is_manifest(document: Any) -> bool:
    """Whether a document is a Kubernetes object."""
    return isinstance(document, Mapping) and "apiVersion" in document and "kind" in document


def objects_of(documents: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """All objects of documents, with the items of lists."""
    return [
        item
        for document in documents
        for item in (mappings(document.get("items")) if document.get("kind") == "List" else (document,))
    ]


def manifest_starts(objects: list[Mapping[str, Any]], context: Context) -> list[Launch]:
    """All launches of vLLM in pod templates of objects of any kind, with the Services that select their pods."""
    services = [each for each in objects if each.get("kind") == "Service"]
    maps = config_maps(objects)
    found: list[Launch] = []
    for document in objects:
        own: list[tuple[PodTemplate, Launch]] = []
        for template in pod_templates(document):
            for container in template.containers:
                starts = container_starts(container_of(template, container, maps), context)
                own += [(template, _behind(start, services, template.labels)) for start in starts]
        found += _without_workers(own)
    return found


def _without_workers(found: list[tuple[PodTemplate, Launch]]) -> list[Launch]:
    """Launches without those of pods that only take part in an instance that another template starts."""
    leaders = [template.path for template, _ in found if template.worker_of is None]
    return [
        launch
        for template, launch in found
        if template.worker_of is None
        or not any(path[: len(template.worker_of)] == template.worker_of for path in leaders)
    ]


def _behind(launch: Launch, services: Iterable[Mapping[str, Any]], labels: Mapping[str, str]) -> Launch:
    """A launch with port and type of the Service that selects its pods."""
    for service in services:
        spec = mapping(service.get("spec"))
        selector = text_map(spec.get("selector"))
        if selector and selector.items() <= labels.items() and spec.get("clusterIP") != "None":
            port = next((each.get("port") for each in mappings(spec.get("ports"))), None)
            found = {"router.service.port": port, "router.service.type": spec.get("type")}
            known = {path: value for path, value in found.items() if isinstance(value, str | int)}
            remark = Remark(f"Service {text(mapping(service.get('metadata')).get('name'))}", _SERVICE, left_out=False)
            return replace(launch, settings={**launch.settings, **known}, remarks=(*launch.remarks, remark))
    return launch


def container_of(template: PodTemplate, container: Mapping[str, Any], maps: ConfigMaps) -> Container:
    """A container of a pod template, with what its command can refer to."""
    environment = _environment(template, container, maps)
    if template.nodes > 1:
        environment.known.setdefault("LWS_GROUP_SIZE", str(template.nodes))

    def read(value: str) -> str:
        return expanded(value, environment.known)

    return Container(
        entrypoint=texts(container.get("command"), read),
        command=texts(container.get("args"), read),
        image=text(container.get("image")),
        outside=_outside(template, container, environment),
        variables=environment.known,
        files=mounted_files(template.pod, container, maps),
    )


def expanded(value: str, known: Mapping[str, str]) -> str:
    """A text with `$(NAME)` replaced as the kubelet does. References to other variables are kept, and marked."""
    unresolved = _GO_TEMPLATE.search(value) is not None

    def replacement(match: re.Match[str]) -> str:
        nonlocal unresolved
        if match[1] is None:
            return "$"
        found = known.get(match[1], Unresolved(match[0]))
        unresolved |= isinstance(found, Unresolved)
        return match[0] if isinstance(found, Unresolved) else found

    result = _REFERENCE.sub(replacement, value)
    return Unresolved(result) if unresolved or isinstance(value, Unresolved) else result


def _outside(template: PodTemplate, container: Mapping[str, Any], environment: _Environment) -> Launch:
    metadata = mapping(template.document.get("metadata"))
    findings = [*_resources(template, container), *_placement(template.pod)]
    settings = {finding[0]: finding[1] for finding in findings if not isinstance(finding, Remark)}
    remarks = [finding for finding in findings if isinstance(finding, Remark)]
    settings |= {} if template.replicas in {None, 1} else {"role.replicas": template.replicas}
    settings |= {} if template.nodes == 1 else {"role.parallelism.nodes": template.nodes}
    return Launch(
        (),
        environment.values,
        environment.secrets,
        name=text(metadata.get("name")) or "",
        namespace=text(metadata.get("namespace")) or "",
        settings=settings,
        folders=tuple(_folders(template.pod, container)),
        remarks=(*environment.remarks, *remarks, *_remarks(template, container), *_volume_remarks(template.pod)),
        place=template.place,
        role=template.role(container),
    )


def _environment(template: PodTemplate, container: Mapping[str, Any], maps: ConfigMaps) -> _Environment:
    found = _Environment({}, {}, {}, [])
    for source in [*mappings(container.get("envFrom")), *_dynamo_sources(template)]:
        _take_source(found, source, maps)
    for entry in [*mappings(_component(template).get("envs")), *mappings(container.get("env"))]:
        _take_variable(found, entry, maps)
    return found


def _component(template: PodTemplate) -> Mapping[str, Any]:
    """The component around `extraPodSpec` of Dynamo, which has settings of its container."""
    return template.above[-1] if "mainContainer" in template.pod else {}


def _dynamo_sources(template: PodTemplate) -> Iterator[Mapping[str, Any]]:
    if name := text(_component(template).get("envFromSecret")):
        yield {"secretRef": {"name": name}}


def _take_source(found: _Environment, source: Mapping[str, Any], maps: ConfigMaps) -> None:
    prefix = text(source.get("prefix")) or ""
    name = text(mapping(source.get("configMapRef")).get("name"))
    secret = text(mapping(source.get("secretRef")).get("name"))
    if name and name in maps:
        values = {f"{prefix}{key}": value for key, value in maps[name].items()}
        found.values.update(values)
        found.known.update(values)
    elif name:
        found.remarks.append(Remark(f"envFrom ConfigMap {name}", _NOT_HERE))
    elif secret:
        found.remarks.append(Remark(f"envFrom Secret {secret}", _OF_A_SOURCE.format(name=secret)))


def _take_variable(found: _Environment, entry: Mapping[str, Any], maps: ConfigMaps) -> None:
    name, value = text(entry.get("name")) or "", text(entry.get("value"))
    origin = mapping(entry.get("valueFrom"))
    secret, chosen = mapping(origin.get("secretKeyRef")), mapping(origin.get("configMapKeyRef"))
    if value is None and chosen:
        value = maps.get(text(chosen.get("name")) or "", {}).get(text(chosen.get("key")) or "")
    found.known[name] = Unresolved(f"$({name})")
    if value is not None:
        found.known[name] = found.values[name] = expanded(value, found.known)
    elif secret:
        found.secrets[name] = (text(secret.get("name")) or "", text(secret.get("key")) or "")
    elif origin:
        own = refused_variable(name)
        found.remarks.append(Remark(f"env {name}", as_sentence(own) if own else _NOT_HERE if chosen else TEMPLATE))


def _resources(template: PodTemplate, container: Mapping[str, Any]) -> Iterator[Finding]:
    """CPU and memory; the operator requests the devices."""
    resources = {**mapping(_component(template).get("resources")), **mapping(container.get("resources"))}
    for kind in ("requests", "limits"):
        amounts = {name: value for name, value in text_map(resources.get(kind)).items() if name != "gpu"}
        plain = {name: amount for name, amount in amounts.items() if "/" not in name}
        if plain:
            yield f"role.resources.{kind}", plain
        for name, amount in amounts.items():
            if _DEVICE.fullmatch(name):
                yield from () if name == _GPU else iter([("role.accelerator.resourceName", name)])
            elif _RDMA.fullmatch(name):
                count = number(amount) or 1
                yield "transfer.rdma", {"resourceName": name, **({"count": count} if count > 1 else {})}
            elif "/" in name:
                yield Remark(f"resources {name}: {amount}", _EXTENDED)
    for name in resources:
        if name not in {"requests", "limits"}:
            yield Remark(f"resources {name}", TEMPLATE)


def _placement(pod: Mapping[str, Any]) -> Iterator[Finding]:
    required = {name: [value] for name, value in text_map(pod.get("nodeSelector")).items()}
    affinity, remarks = _node_affinity(pod)
    labels = {**affinity, **required}
    yield from gpu_settings(labels)
    if selector := {name: labels[name][0] for name in labels if name in required}:
        yield "role.placement.nodeSelector", selector
    rest = {name: values for name, values in labels.items() if name not in required}
    if rest:
        expressions = [{"key": name, "operator": "In", "values": values} for name, values in rest.items()]
        terms = {_NODE_AFFINITY: {"nodeSelectorTerms": [{"matchExpressions": expressions}]}}
        yield "role.placement.nodeAffinity", terms
    if tolerations := [dict(each) for each in mappings(pod.get("tolerations"))]:
        yield "role.placement.tolerations", tolerations
    yield from remarks
    for name, path in _FIELDS.items():
        if (value := text(pod.get(name))) is not None:
            yield path, value


def _node_affinity(pod: Mapping[str, Any]) -> tuple[dict[str, list[str]], list[Remark]]:
    """Labels that nodes must have, by a single term with the operator In; a remark on any other affinity."""
    affinity = mapping(pod.get("affinity"))
    nodes = mapping(affinity.get("nodeAffinity"))
    terms = list(mappings(mapping(nodes.get(_NODE_AFFINITY)).get("nodeSelectorTerms")))
    expressions = list(mappings(terms[0].get("matchExpressions"))) if len(terms) == 1 else []
    simple = bool(expressions) and set(terms[0]) == {"matchExpressions"} and set(nodes) == {_NODE_AFFINITY}
    simple = simple and all(each.get("operator") == "In" for each in expressions)
    remarks = [
        Remark(
            f"pod: affinity.{name}", "Use placement.nodeAffinity of the role." if name == "nodeAffinity" else TEMPLATE
        )
        for name in affinity
        if name != "nodeAffinity" or not simple
    ]
    labels = {text(each.get("key")) or "": texts(each.get("values")) for each in expressions} if simple else {}
    return labels, remarks


def _folders(pod: Mapping[str, Any], container: Mapping[str, Any]) -> Iterator[Folder]:
    volumes = {text(volume.get("name")): volume for volume in mappings(pod.get("volumes"))}
    for mount in mappings(container.get("volumeMounts")):
        volume = mapping(volumes.get(text(mount.get("name"))))
        where, inside = text(mount.get("mountPath")) or "", text(mount.get("subPath")) or ""
        claim = text(mapping(volume.get("persistentVolumeClaim")).get("claimName"))
        folder = text(mapping(volume.get("hostPath")).get("path"))
        image = text(mapping(volume.get("image")).get("reference"))
        if where.startswith("/") and claim:
            yield Folder(where, "persistentVolumeClaim", claim, inside)
        elif where.startswith("/") and folder:
            yield Folder(where, "hostPath", f"{folder.rstrip('/')}/{inside}".rstrip("/"))
        elif where.startswith("/") and image:
            yield Folder(where, "image", image, inside)
        elif where.startswith("/") and "emptyDir" in volume:
            yield Folder(where, "emptyDir", "")


def _remarks(template: PodTemplate, container: Mapping[str, Any]) -> Iterator[Remark]:
    for key in container:
        if key not in _TAKEN:
            yield Remark(f"container: {key}", _OWN.get(str(key), TEMPLATE))
    for key in template.pod:
        if key not in _POD_TAKEN and key not in _FIELDS:
            yield Remark(f"pod: {key}", TEMPLATE)
    others = [text(each.get("name")) for each in template.containers if each is not container]
    if others:
        yield Remark(f"containers {', '.join(filter(None, others))}", TEMPLATE)


def _volume_remarks(pod: Mapping[str, Any]) -> Iterator[Remark]:
    for volume in mappings(pod.get("volumes")):
        memory = mapping(volume.get("emptyDir")).get("medium") == "Memory"
        yield Remark(
            f"volume {text(volume.get('name'))}",
            SHARED_MEMORY if memory else UNUSED_VOLUME,
        )
