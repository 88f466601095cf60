"""A launch of vLLM as data, from a command line, `docker run` or a manifest.

Tests: tests/conversion/test_shell.py, tests/conversion/test_every_option.py
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pdinference.api.names import Role


class ConversionError(ValueError):
    """The input cannot be converted. The message states the reason and what to do."""


class Unresolved(str):
    """Text with a reference that a shell or the kubelet would expand, such as `$MODEL`. It is not expanded here."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Remark:
    """A comment on the resource, for example on a setting that is left out.

    Attributes:
        subject: The setting, for example `--host 0.0.0.0`.
        text: The reason, and an alternative.
        left_out: Whether the resource lacks the setting.
    """

    subject: str
    text: str
    left_out: bool = True


Finding = tuple[str, Any] | Remark
"""Result of converting an option or variable: a field's path and value (conversion/settings.py), or a remark."""


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder that is mounted into a container.

    Attributes:
        mount: Mount path.
        member: Member of `spec.model.source` for such a volume: persistentVolumeClaim or hostPath.
        origin: Name of the claim, or path on the node.
        inside: Folder within the claim that is mounted.
    """

    mount: str
    member: str
    origin: str
    inside: str = ""


@dataclass(frozen=True)
class Launch:
    """A launch of vLLM's OpenAI-compatible server.

    Attributes:
        arguments: Arguments of the program: options, and the model of `vllm serve`.
        environment: Variables with their values.
        secrets: Variables from Secrets, with name and key of the Secret.
        image: Image of the container, if there is one.
        name: Name of the container, service or workload.
        namespace: Its namespace.
        settings: Fields that a manifest sets directly (in the form of conversion/settings.py).
        folders: Folders that are mounted into the container.
        remarks: Remarks so far.
        program: vllm, or dynamo.vllm, which has further options of its own.
        place: Where in the file the launch is, for messages.
        role: The role that names, labels or the kind of the object suggest.
    """

    arguments: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    image: str | None = None
    name: str = ""
    namespace: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    folders: tuple[Folder, ...] = ()
    remarks: tuple[Remark, ...] = ()
    program: str = "vllm"
    place: str = ""
    role: Role | None = None
