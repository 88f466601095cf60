"""What a container runs: an argument vector and an environment, as data."""

from dataclasses import dataclass, field
from typing import Any

EnvironmentVariable = dict[str, Any]
"""One entry of a container's `env`, as in the Kubernetes API."""


@dataclass(frozen=True)
class Command:
    """What a container runs.

    Attributes:
        program: The executable and what always follows it; replaces the image's entry point.
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
    """A variable that the kubelet fills from the pod, for example from `status.podIP`."""
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def resource_variable(name: str, resource: str) -> EnvironmentVariable:
    """A variable that the kubelet fills from the container's own resources, rounded up to whole units."""
    return {"name": name, "valueFrom": {"resourceFieldRef": {"resource": resource, "divisor": "1"}}}


def secret_variable(name: str, secret: str, key: str) -> EnvironmentVariable:
    """A variable that the kubelet fills from a Secret; the operator never sees the value."""
    return {"name": name, "valueFrom": {"secretKeyRef": {"name": secret, "key": key}}}


def literal(text: str) -> str:
    """Protect text from the kubelet, which replaces `$(NAME)` in arguments and variables, and `$$` by `$`."""
    return text.replace("$", "$$")
