"""Containers of Kubernetes manifests that start vLLM, with settings from their pods."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from pdinference.api.v1alpha1.roles.accelerator import Accelerator
from pdinference.conversion.docker import SHARED_MEMORY, UNUSED_VOLUME, Container
from pdinference.conversion.launch import Folder, Launch, Remark
from pdinference.conversion.programs import container_starts
from pdinference.conversion.yaml_values import mapping, mappings, marked, text, text_map, texts

_REPLACED = re.compile(r"(?<!\$)\$(?:\$\$)*\(")
_NOTHING = re.compile(r"(?!)")
_PRODUCT: str = Accelerator.model_fields["product_label"].default
_GPU: str = Accelerator.model_fields["resource_name"].default
_TAKEN = frozenset({"name", "image", "command", "args", "env", "ports", "resources", "volumeMounts"})
_OWN = {
    **dict.fromkeys(("livenessProbe", "readinessProbe", "startupProbe"), "The operator sets the probes."),
    "lifecycle": "The operator drains pods before they stop (rollout.drainSeconds).",
    "securityContext": "The operator sets one that meets the restricted Pod Security Standard.",
    "imagePullPolicy": "Use podTemplate of the role.",
    "envFrom": "Use podTemplate of the role.",
}
_POD_TAKEN = frozenset({"containers", "volumes", "nodeSelector", "tolerations", "restartPolicy"})
_FIELDS = {
    "priorityClassName": "role.placement.priorityClassName",
    "runtimeClassName": "role.placement.runtimeClassName",
    "schedulerName": "role.placement.schedulerName",
}
_SERVICE = (
    "The operator creates a Service with the name of the resource and this port. If this Service has the same name, "
    "choose another name for the resource, or delete this Service first."
)
_TEMPLATE = "Add it to podTemplate of the role if pods still need it."


def is_manifest(document: Any) -> bool:
    """Whether a document is a Kubernetes object."""
    return isinstance(document, Mapping) and "apiVersion" in document and "kind" in document


def manifest_starts(documents: Iterable[Mapping[str, Any]]) -> list[Launch]:
    """All launches of vLLM in workloads, with the Services that select their pods."""
    objects = [item for document in documents for item in _items(document)]
    services = [each for each in objects if each.get("kind") == "Service"]
    found: list[Launch] = []
    for document in objects:
        spec = mapping(document.get("spec"))
        template = mapping(spec.get("template")) or document
        pod = mapping(template.get("spec"))
        labels = text_map(mapping(template.get("metadata")).get("labels"), _NOTHING)
        for container in mappings(pod.get("containers")):
            starts = container_starts(_container(document, pod, container))
            found += [_behind(start, services, labels) for start in starts]
    return found


def _items(document: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    return mappings(document.get("items")) if document.get("kind") == "List" else iter((document,))


def _behind(launch: Launch, services: Iterable[Mapping[str, Any]], labels: Mapping[str, str]) -> Launch:
    """A launch with port and type of the Service that selects its pods."""
    for service in services:
        spec = mapping(service.get("spec"))
        selector = text_map(spec.get("selector"), _NOTHING)
        if selector and selector.items() <= labels.items():
            port = next((each.get("port") for each in mappings(spec.get("ports"))), None)
            found = {"router.service.port": port, "router.service.type": spec.get("type")}
            known = {path: value for path, value in found.items() if isinstance(value, str | int)}
            remark = Remark(f"Service {text(mapping(service.get('metadata')).get('name'))}", _SERVICE, left_out=False)
            return replace(launch, settings={**launch.settings, **known}, remarks=(*launch.remarks, remark))
    return launch


def _container(document: Mapping[str, Any], pod: Mapping[str, Any], container: Mapping[str, Any]) -> Container:
    image = text(container.get("image"))
    return Container(
        entrypoint=texts(container.get("command"), _REPLACED),
        command=texts(container.get("args"), _REPLACED),
        image=image,
        outside=_outside(document, pod, container),
    )


def _outside(document: Mapping[str, Any], pod: Mapping[str, Any], container: Mapping[str, Any]) -> Launch:
    metadata, spec = mapping(document.get("metadata")), mapping(document.get("spec"))
    environment, secrets, remarks = _environment(container)
    settings = {**_replicas(document, spec), **_resources(container), **_placement(pod)}
    return Launch(
        (),
        environment,
        secrets,
        name=text(metadata.get("name")) or "",
        namespace=text(metadata.get("namespace")) or "",
        settings=settings,
        folders=tuple(_folders(pod, container)),
        remarks=(*remarks, *_remarks(pod, container), *_volume_remarks(pod)),
    )


def _environment(
    container: Mapping[str, Any],
) -> tuple[dict[str, str], dict[str, tuple[str, str]], list[Remark]]:
    environment: dict[str, str] = {}
    secrets: dict[str, tuple[str, str]] = {}
    remarks: list[Remark] = []
    for entry in mappings(container.get("env")):
        name, value = text(entry.get("name")) or "", text(entry.get("value"))
        secret = mapping(mapping(entry.get("valueFrom")).get("secretKeyRef"))
        if value is not None:
            environment[name] = marked(value, _REPLACED)
        elif secret:
            secrets[name] = (text(secret.get("name")) or "", text(secret.get("key")) or "")
        elif "valueFrom" in entry:
            remarks.append(Remark(f"env {name}", _TEMPLATE))
    return environment, secrets, remarks


def _replicas(document: Mapping[str, Any], spec: Mapping[str, Any]) -> dict[str, Any]:
    replicas = spec.get("replicas")
    counts = isinstance(replicas, int) and not isinstance(replicas, bool) and document.get("kind") != "Pod"
    return {"role.replicas": replicas} if counts and replicas != 1 else {}


def _resources(container: Mapping[str, Any]) -> dict[str, Any]:
    """CPU and memory; the operator requests the devices."""
    found: dict[str, Any] = {}
    resources = mapping(container.get("resources"))
    for kind in ("requests", "limits"):
        amounts = text_map(resources.get(kind), _NOTHING)
        plain = {name: amount for name, amount in amounts.items() if "/" not in name}
        if plain:
            found[f"role.resources.{kind}"] = plain
        device = next((name for name in amounts if name.endswith(("/gpu", "/gaudi", "/tpu"))), _GPU)
        if device != _GPU:
            found["role.accelerator.resourceName"] = device
    return found


def _placement(pod: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    labels = text_map(pod.get("nodeSelector"), _NOTHING)
    if product := labels.pop(_PRODUCT, None):
        found["role.accelerator.products"] = [product]
    if labels:
        found["role.placement.nodeSelector"] = labels
    if tolerations := [dict(each) for each in mappings(pod.get("tolerations"))]:
        found["role.placement.tolerations"] = tolerations
    return found | {path: value for name, path in _FIELDS.items() if (value := text(pod.get(name))) is not None}


def _folders(pod: Mapping[str, Any], container: Mapping[str, Any]) -> Iterator[Folder]:
    volumes = {text(volume.get("name")): volume for volume in mappings(pod.get("volumes"))}
    for mount in mappings(container.get("volumeMounts")):
        volume = mapping(volumes.get(text(mount.get("name"))))
        where, inside = text(mount.get("mountPath")) or "", text(mount.get("subPath")) or ""
        claim = text(mapping(volume.get("persistentVolumeClaim")).get("claimName"))
        folder = text(mapping(volume.get("hostPath")).get("path"))
        if where.startswith("/") and claim:
            yield Folder(where, "persistentVolumeClaim", claim, inside)
        elif where.startswith("/") and folder:
            yield Folder(where, "hostPath", f"{folder.rstrip('/')}/{inside}".rstrip("/"))


def _remarks(pod: Mapping[str, Any], container: Mapping[str, Any]) -> Iterator[Remark]:
    for key in container:
        if key not in _TAKEN:
            yield Remark(f"container: {key}", _OWN.get(str(key), _TEMPLATE))
    for key in pod:
        if key not in _POD_TAKEN and key not in _FIELDS:
            yield Remark(f"pod: {key}", _TEMPLATE)
    others = [text(each.get("name")) for each in mappings(pod.get("containers")) if each is not container]
    if others:
        yield Remark(f"containers {', '.join(filter(None, others))}", _TEMPLATE)


def _volume_remarks(pod: Mapping[str, Any]) -> Iterator[Remark]:
    for volume in mappings(pod.get("volumes")):
        memory = mapping(volume.get("emptyDir")).get("medium") == "Memory"
        yield Remark(
            f"volume {text(volume.get('name'))}",
            SHARED_MEMORY if memory else UNUSED_VOLUME,
        )
