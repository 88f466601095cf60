"""The command of a container: an argument vector and environment variables, as data."""

from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any, Final

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
    """

    program: tuple[str, ...]
    arguments: tuple[str, ...]
    environment: tuple[EnvironmentVariable, ...] = field(default=())


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
    return files(package).joinpath(f"{name}.py").read_text(encoding="utf-8")


def script_program(name: str, package: str = _SCRIPTS) -> tuple[str, ...]:
    """The words that run such a program; its arguments follow.

    The image does not need to contain this package. A mounted file would need a ConfigMap, which the operator may not
    create.
    """
    return ("python3", "-I", "-c", literal(script(name, package)))


def literal(text: str) -> str:
    """Escape text for the kubelet, which expands `$(NAME)` in arguments and variables, and replaces `$$` by `$`."""
    return text.replace("$", "$$")
