"""The command of a container: an argument vector, environment variables and the files that it needs, as data."""

from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any, Final

SCRIPTS_MOUNT: Final = "/etc/pdinference/scripts"
"""Folder with the programs of `engine/scripts` in the pods. Overlays may not hide it beside a token (below /etc)."""
_SCRIPTS: Final = "pdinference.engine.scripts"

EnvironmentVariable = dict[str, Any]
"""One entry of a container's `env`, as in the Kubernetes API."""


@dataclass(frozen=True)
class Command:
    """The command of a container.

    Attributes:
        program: The executable with its fixed arguments. It replaces the entry point of the image.
        arguments: The options.
        environment: Environment variables.
        scripts: Names of the programs and modules of `engine/scripts` that it needs in `SCRIPTS_MOUNT`.
    """

    program: tuple[str, ...]
    arguments: tuple[str, ...]
    environment: tuple[EnvironmentVariable, ...] = field(default=())
    scripts: tuple[str, ...] = ()


def variable(name: str, value: str) -> EnvironmentVariable:
    """A variable with a literal value."""
    return {"name": name, "value": literal(value)}


def pod_field_variable(name: str, path: str) -> EnvironmentVariable:
    """A variable with a field of the pod, for example `status.podIP`."""
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def resource_variable(name: str, resource: str) -> EnvironmentVariable:
    """A variable with a resource limit of the container, rounded up to whole units."""
    return {"name": name, "valueFrom": {"resourceFieldRef": {"resource": resource, "divisor": "1"}}}


def secret_variable(name: str, secret: str, key: str) -> EnvironmentVariable:
    """A variable with a value from a Secret, which the operator does not read."""
    return {"name": name, "valueFrom": {"secretKeyRef": {"name": secret, "key": key}}}


@cache
def script(name: str, package: str = _SCRIPTS) -> str:
    """Source of a program or module that runs in vLLM's image."""
    return files(package).joinpath(script_file(name)).read_text(encoding="utf-8")


def script_file(name: str) -> str:
    """Name of the file with such a program or module."""
    return f"{name}.py"


def script_program(name: str) -> tuple[str, ...]:
    """The words that run such a program from its file in the pod; its arguments follow."""
    return ("python3", "-I", f"{SCRIPTS_MOUNT}/{script_file(name)}")


def inline_program(name: str, package: str = _SCRIPTS) -> tuple[str, ...]:
    """The words that run such a program in a pod without its file, such as a Job that a person starts to measure."""
    return ("python3", "-I", "-c", literal(script(name, package)))


def literal(text: str) -> str:
    """Escape text for the kubelet, which expands `$(NAME)` in arguments and variables, and replaces `$$` by `$`."""
    return text.replace("$", "$$")
