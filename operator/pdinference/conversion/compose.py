"""Services of a compose file that start vLLM."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from pdinference.conversion.docker import (
    OTHER,
    REASONS,
    Container,
    bind_mount,
    environment_of,
    published,
    volume_remarks,
)
from pdinference.conversion.launch import Folder, Launch, Remark
from pdinference.conversion.programs import container_starts
from pdinference.conversion.shell import commands
from pdinference.conversion.yaml_values import mapping, mappings, marked, text, text_map, texts

_REPLACED = re.compile(r"(?<!\$)\$(?:\$\$)*[A-Za-z_{]")
_TAKEN = frozenset({"image", "command", "entrypoint", "environment", "ports", "volumes", "container_name"})
_REASONS = {
    **{name.removeprefix("--").replace("-", "_"): why for name, why in REASONS.items()},
    "deploy": REASONS["--gpus"],
    "networks": REASONS["--network"],
    "network_mode": REASONS["--network"],
    "depends_on": "The operator waits for what its pods need.",
    "healthcheck": "The operator sets the probes.",
    "build": "Build the image, push it, and set engine.image.",
}


def is_compose(document: Any) -> bool:
    """Whether a document is a compose file."""
    return isinstance(document, Mapping) and isinstance(document.get("services"), Mapping)


def compose_starts(document: Mapping[str, Any]) -> list[Launch]:
    """All services of a compose file that start vLLM."""
    services = mapping(document.get("services"))
    return [start for name, service in services.items() for start in container_starts(_container(str(name), service))]


def _container(name: str, service: Any) -> Container:
    service = mapping(service)
    image = text(service.get("image"))
    return Container(
        entrypoint=_words(service.get("entrypoint")),
        command=_words(service.get("command")),
        image=None if image is None else marked(image, _REPLACED),
        outside=_outside(name, service),
    )


def _words(value: Any) -> list[str]:
    if isinstance(value, str):
        return [word for command in commands(value) for word in command]
    return texts(value, _REPLACED)


def _outside(name: str, service: Mapping[str, Any]) -> Launch:
    given = service.get("environment")
    if isinstance(given, list):
        environment, remarks = environment_of(texts(given, _REPLACED))
    else:
        environment, remarks = text_map(given, _REPLACED), []
    volumes = [*texts(service.get("volumes"), _REPLACED), *_long_volumes(service.get("volumes"))]
    ports = [*texts(service.get("ports"), _REPLACED), *_long_ports(service.get("ports"))]
    folders: list[Folder] = [folder for volume in volumes if (folder := bind_mount(volume)) is not None]
    others = (Remark(f"service {name}: {key}", _REASONS.get(str(key), OTHER)) for key in service if key not in _TAKEN)
    return Launch(
        (),
        environment,
        name=text(service.get("container_name")) or name,
        settings=dict(published(ports)),
        folders=tuple(folders),
        remarks=(*remarks, *volume_remarks(volumes), *others),
    )


def _long_volumes(value: Any) -> Iterator[str]:
    for volume in mappings(value):
        yield marked(f"{text(volume.get('source')) or ''}:{text(volume.get('target')) or ''}", _REPLACED)


def _long_ports(value: Any) -> Iterator[str]:
    for port in mappings(value):
        yield f"{text(port.get('published')) or ''}:{text(port.get('target')) or ''}"
