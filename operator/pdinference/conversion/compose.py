"""Services of a compose file that start vLLM.

Tests: tests/conversion/test_containers.py, tests/conversion/test_kinds.py
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from pdinference.conversion.docker import (
    FROM_MACHINE,
    OTHER,
    REASONS,
    Container,
    bind_mount,
    environment_of,
    published,
    volume_remarks,
)
from pdinference.conversion.expansion import Variables
from pdinference.conversion.launch import Folder, Launch, Remark, Unresolved
from pdinference.conversion.pod_templates import role_named
from pdinference.conversion.programs import Context, container_starts
from pdinference.conversion.shell import ArrayWord, Reference, Text, parse
from pdinference.conversion.yaml_values import Read, mapping, mappings, text, text_map, texts

_REFERENCE = re.compile(r"\$\$|\$\{([^{}]*(?:\{[^{}]*\}[^{}]*)?)\}|\$([A-Za-z_][A-Za-z0-9_]*)", re.ASCII)
_TAKEN = frozenset({"image", "command", "entrypoint", "environment", "ports", "volumes", "container_name", "configs"})
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


def compose_starts(document: Mapping[str, Any], context: Context) -> list[Launch]:
    """All services of a compose file that start vLLM."""
    services = mapping(document.get("services"))
    found: list[Launch] = []
    for name, service in services.items():
        found += container_starts(_container(str(name), mapping(service), document), context)
    return found


def _container(name: str, service: Mapping[str, Any], document: Mapping[str, Any]) -> Container:
    variables = Variables({})

    def read(value: str) -> str:
        return interpolated(value, variables)

    image = text(service.get("image"))
    entrypoint, command = _words(service.get("entrypoint"), read), _words(service.get("command"), read)
    image = None if image is None else read(image)
    outside = _outside(name, service, read)
    remarks = (*outside.remarks, *variables.remarks)
    return Container(
        entrypoint=entrypoint,
        command=command,
        image=image,
        outside=replace(outside, remarks=remarks, place=f"service {name}", role=role_named(name)),
        files=_files(service, document),
    )


def interpolated(value: str, variables: Variables) -> str:
    """A text with the variables of Compose replaced: `${A:-b}` by its default. `$$` is a dollar."""
    unresolved = False

    def replacement(match: re.Match[str]) -> str:
        nonlocal unresolved
        if match[1] is None and match[2] is None:
            return "$"
        found = variables.text((Reference("parameter", match[1] or match[2], match[0]),))
        unresolved |= isinstance(found, Unresolved)
        return found

    result = _REFERENCE.sub(replacement, value)
    return Unresolved(result) if unresolved else result


def _words(value: Any, read: Read) -> list[str]:
    """Words of a command. A text is split as by a shell, after its variables are replaced."""
    if not isinstance(value, str):
        return texts(value, read) if isinstance(value, list) else []
    # `$$` is `$$` within quotes, too, so the text is split first.
    words = [word for command in parse(value) for word in command.words if not isinstance(word, ArrayWord)]
    return [read("".join(part.value if isinstance(part, Text) else part.source for part in word)) for word in words]


def _files(service: Mapping[str, Any], document: Mapping[str, Any]) -> dict[str, str]:
    """Files of the container whose content is in the compose file (`configs` with `content`)."""
    known = mapping(document.get("configs"))
    found: dict[str, str] = {}
    for entry in service.get("configs", []) if isinstance(service.get("configs"), list) else []:
        source = text(mapping(entry).get("source")) or text(entry) or ""
        content = text(mapping(known.get(source)).get("content"))
        if content is not None:
            found[text(mapping(entry).get("target")) or f"/{source}"] = content
    return found


def _outside(name: str, service: Mapping[str, Any], read: Read) -> Launch:
    given = service.get("environment")
    if isinstance(given, list):
        environment, remarks = environment_of(texts(given, read))
    else:
        environment, remarks = text_map(given, read), []
        remarks = [Remark(f"environment {key}", FROM_MACHINE) for key, value in mapping(given).items() if value is None]
    volumes = [*texts(service.get("volumes", []), read), *_long_volumes(service.get("volumes"), read)]
    ports = [*texts(service.get("ports", []), read), *_long_ports(service.get("ports"))]
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


def _long_volumes(value: Any, read: Read) -> Iterator[str]:
    for volume in mappings(value):
        yield read(f"{text(volume.get('source')) or ''}:{text(volume.get('target')) or ''}")


def _long_ports(value: Any) -> Iterator[str]:
    for port in mappings(value):
        yield f"{text(port.get('published')) or ''}:{text(port.get('target')) or ''}"
