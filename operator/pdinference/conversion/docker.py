"""Parses the container of a `docker run` command.

Tests: tests/conversion/test_containers.py
"""

import re
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pdinference.conversion.launch import Folder, Launch, Remark, Unresolved

_NO_MATTER = frozenset({"--detach", "--interactive", "--quiet", "--rm", "--tty"})
_SWITCHES = _NO_MATTER | {
    "--disable-content-trust",
    "--init",
    "--no-healthcheck",
    "--oom-kill-disable",
    "--privileged",
    "--publish-all",
    "--read-only",
    "--sig-proxy",
}
_SHORT_SWITCHES = "ditq"
_LONG = {"-e": "--env", "-v": "--volume", "-p": "--publish", "-m": "--memory", "-w": "--workdir", "-u": "--user"}
_PORT = re.compile(r"(?:[0-9.]+:|\[[0-9a-f:]+\]:)?(\d{1,5}):\d{1,5}(?:/tcp)?", re.ASCII)
SHARED_MEMORY = "The operator gives each pod the shared memory that its ranks need."
_NETWORK = "Pods are in the cluster's network; clients use the Service of the router."
REASONS = {
    "--gpus": "The pods get as many GPUs as parallelism says. accelerator.products or accelerator.devices choose them.",
    "--runtime": "Use placement.runtimeClassName of the role, if your nodes need one for GPUs.",
    "--device": "The fields accelerator.resourceName and parallelism bring devices into the pods.",
    "--ipc": SHARED_MEMORY,
    "--shm-size": SHARED_MEMORY,
    "--network": _NETWORK,
    "--net": _NETWORK,
    "--restart": "Kubernetes restarts containers.",
    "--env-file": "This file is not read here. Give its variables by --env.",
    "--memory": "Use resources of the role.",
    "--cpus": "Use resources of the role.",
}
OTHER = "The operator creates the pods. Use podTemplate of the role for further settings."
_HUB_CACHE = "This is the cache of a hub. spec.model.cache stores the model on a claim or on each node."
UNUSED_VOLUME = "Pods get volumes by model.source (the model), and by podTemplate of the role (anything else)."
FROM_MACHINE = "Its value comes from your machine. Write NAME=VALUE."
_HANDLED = frozenset({"--env", "--volume", "--publish", "--entrypoint", "--name"})


@dataclass(frozen=True)
class Container:
    """A container that may start vLLM.

    Attributes:
        entrypoint: The program, if it replaces that of the image.
        command: Arguments of the program.
        image: The image.
        outside: A launch with everything except arguments.
        variables: Values of variables that commands of the container can refer to, beside its environment.
        files: Text of scripts that are mounted, by path.
    """

    entrypoint: Sequence[str] = ()
    command: Sequence[str] = ()
    image: str | None = None
    outside: Launch = field(default_factory=lambda: Launch(()))
    variables: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)

    def around(self, launch: Launch) -> Launch:
        """A launch of vLLM in this container."""
        return replace(
            self.outside,
            arguments=launch.arguments,
            program=launch.program,
            environment={**self.outside.environment, **launch.environment},
            image=self.image,
            remarks=(*self.outside.remarks, *launch.remarks),
        )


def docker_run(arguments: Sequence[str]) -> Container:
    """The container of `docker run ARGUMENTS`."""
    words = deque(arguments)
    options: list[tuple[str, str]] = []
    while words and words[0].startswith("-") and words[0] != "-":
        name, value = _option(words)
        options.append((_LONG.get(name, name), value))
    image = words.popleft() if words else None
    entrypoint = [value for name, value in options if name == "--entrypoint" and value]
    named = next((value for name, value in options if name == "--name"), "")
    return Container(entrypoint[-1:], tuple(words), image, _outside(options, named))


def _option(words: deque[str]) -> tuple[str, str]:
    """The next option and its value; empty for switches."""
    word = words.popleft()
    name, equals, value = word.partition("=")
    if name.startswith("--"):
        if equals:
            return name, _as(word, value)
        return name, "" if name in _SWITCHES or not words else words.popleft()
    letters = word[1:].lstrip(_SHORT_SWITCHES)
    if not letters:
        return "--detach", ""
    return f"-{letters[0]}", _as(word, letters[1:].removeprefix("=")) if letters[1:] or not words else words.popleft()


def _as(word: str, part: str) -> str:
    return Unresolved(part) if isinstance(word, Unresolved) else part


def _outside(options: Sequence[tuple[str, str]], name: str) -> Launch:
    of = {kind: [value for option, value in options if option == kind] for kind in _HANDLED}
    environment, remarks = environment_of(of["--env"])
    volumes = [folder for text in of["--volume"] if (folder := bind_mount(text)) is not None]
    others = (
        Remark(f"{option} {value}".strip(), REASONS.get(option, OTHER))
        for option, value in options
        if option not in _HANDLED | _NO_MATTER
    )
    return Launch(
        (),
        environment,
        name=name,
        settings=dict(published(of["--publish"])),
        folders=tuple(volumes),
        remarks=(*remarks, *volume_remarks(of["--volume"]), *others),
    )


def environment_of(entries: Sequence[str]) -> tuple[dict[str, str], list[Remark]]:
    """Variables from `NAME=VALUE`. Variables without a value come from the machine and are left out."""
    environment, remarks = {}, []
    for entry in entries:
        name, equals, value = entry.partition("=")
        if equals:
            environment[name] = _as(entry, value)
        else:
            remarks.append(Remark(f"--env {name}", FROM_MACHINE))
    return environment, remarks


def published(entries: Sequence[str]) -> Iterator[tuple[str, Any]]:
    """The published port, for the Service of the router."""
    for entry in entries[:1]:
        if match := _PORT.fullmatch(entry):
            yield "router.service.port", int(match[1])


def bind_mount(text: str) -> Folder | None:
    """A bind mount; None for a volume that Docker manages."""
    origin, _, rest = text.partition(":")
    mount = rest.partition(":")[0]
    if isinstance(text, Unresolved) or not (origin.startswith("/") and mount.startswith("/")):
        return None
    return Folder(mount, "hostPath", origin)


def volume_remarks(entries: Sequence[str]) -> Iterator[Remark]:
    """Remarks on volumes. conversion/model_fields.py adds the remark on a folder with the model."""
    for entry in entries:
        hub = re.search(r"huggingface|modelscope", entry) is not None
        yield Remark(f"--volume {entry}", _HUB_CACHE if hub else UNUSED_VOLUME)
