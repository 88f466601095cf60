"""A start of vLLM as data, whether a command line, `docker run` or a manifest describes it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


class ConversionError(ValueError):
    """Something cannot be converted at all; the message says why and what to do."""


class Unresolved(str):
    """Text of which a shell or the kubelet would replace a part, such as `$MODEL`. Nothing here does so."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Remark:
    """What the resource lacks, or what its reader should know.

    Attributes:
        subject: What it is about, for example `--host 0.0.0.0`.
        text: Why, and what to use instead.
        left_out: Whether the resource lacks it.
    """

    subject: str
    text: str
    left_out: bool = True


Finding = tuple[str, Any] | Remark
"""What a part of a command line becomes: the path of a field with its value (conversion/settings.py), or a remark."""


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder that a container has from elsewhere.

    Attributes:
        mount: Where the container has it.
        member: Which member of `spec.model.source` has such a volume: persistentVolumeClaim or hostPath.
        origin: Name of the claim, or path on the node.
        inside: Folder within the claim that is mounted.
    """

    mount: str
    member: str
    origin: str
    inside: str = ""


@dataclass(frozen=True)
class Launch:
    """One start of vLLM's OpenAI-compatible server.

    Attributes:
        arguments: What follows the program: options, and the model of `vllm serve`.
        environment: Variables with their values.
        secrets: Variables that come from a Secret: its name and key.
        image: Image of the container, if there is one.
        name: What the container, service or workload is called.
        namespace: Its namespace.
        settings: Fields that a manifest says directly (conversion/settings.py has their form).
        folders: Folders that the container has from elsewhere.
        remarks: What was noticed so far.
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
