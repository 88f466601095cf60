"""What an installation allows to resources: the file of `--policy`.

Whoever installs the operator writes it; the chart makes it from its values `policy` and `allowedHostPaths`. A list of
names takes patterns: `*` stands for any text. A list that is given replaces the default.
"""

from collections.abc import Iterable
from pathlib import PurePosixPath
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from pdinference.api.v1alpha1.base import ApiModel, ObjectName, Rule
from pdinference.api.v1alpha1.source import AbsolutePath

Pattern = Annotated[str, Field(max_length=512)]
VolumeType = Literal[
    "awsElasticBlockStore",
    "azureDisk",
    "azureFile",
    "cephfs",
    "cinder",
    "csi",
    "fc",
    "flexVolume",
    "gcePersistentDisk",
    "glusterfs",
    "iscsi",
    "nfs",
    "portworxVolume",
    "quobyte",
    "rbd",
    "scaleIO",
    "storageos",
    "vsphereVolume",
]
Capability = Annotated[str, Field(max_length=64, pattern="^[A-Z][A-Z_]*$")]


def matches(pattern: str, text: str) -> bool:
    """Whether a text is what a pattern says; `*` stands for any text. Linear in the text, whatever the pattern."""
    first, *others = pattern.split("*")
    if not others:
        return text == pattern
    if not text.startswith(first):
        return False
    position = len(first)
    for part in others[:-1]:
        position = text.find(part, position)
        if position < 0:
            return False
        position += len(part)
    return len(text) - position >= len(others[-1]) and text.endswith(others[-1])


def allowed_by(patterns: Iterable[str], text: str, reserved: tuple[str, ...] = ()) -> bool:
    """Whether one of the patterns allows a text.

    Args:
        patterns: Of the installation.
        text: What a resource asks for.
        reserved: Beginnings of texts that `*` alone does not allow: a pattern has to begin like them.
    """
    needed = next((start for start in reserved if text.startswith(start)), "")
    return any(pattern.startswith(needed) and matches(pattern, text) for pattern in patterns)


class AllowedHostPath(ApiModel):
    """A folder of nodes that resources may mount."""

    path: AbsolutePath
    """The folder. With readOnly, also all folders below it; else this very folder, as pods that write into it could put
    links there that lead elsewhere."""
    read_only: bool = True
    """Whether pods can only read it. A cache of models (spec.model.cache.hostPath) and a disk tier
    (kvTiers.disk.hostPath) write, and need false."""
    namespaces: list[ObjectName] = Field(default_factory=list)
    """Namespaces whose resources may mount it. Default: all."""

    def covers(self, path: str, namespace: str) -> bool:
        """Whether a resource of this namespace may mount this path."""
        wanted = PurePosixPath(path)
        within = wanted.is_relative_to(self.path) if self.read_only else wanted == PurePosixPath(self.path)
        return within and ".." not in wanted.parts and (not self.namespaces or namespace in self.namespaces)


def _apart(policy: "Policy") -> bool:
    """Whether no folder that pods may write into contains another allowed one, or is in one."""
    folders = [(PurePosixPath(entry.path), entry.read_only) for entry in policy.allowed_host_paths]
    return not any(
        path.is_relative_to(other)
        for index, (path, read_only) in enumerate(folders)
        for number, (other, other_read_only) in enumerate(folders)
        if index != number and path != other and not (read_only and other_read_only)
    )


class Policy(ApiModel):
    """What an installation allows."""

    allowed_host_paths: list[AllowedHostPath] = Field(default_factory=list)
    """Folders of nodes that fields of a resource may name; an overlay never mounts one."""
    labels: list[Pattern] = Field(
        default_factory=lambda: [
            "team",
            "owner",
            "project",
            "department",
            "environment",
            "cost-center",
            "cost-centre",
            "example.com/*",
        ]
    )
    """Keys of labels that overlays may put on pods. No key that a Service or a webhook of the cluster selects by."""
    annotations: list[Pattern] = Field(default_factory=lambda: ["checksum/*", "prometheus.io/*", "example.com/*"])
    """Keys of annotations that overlays may put on pods, besides plain words without a dot or a slash."""
    volume_types: list[VolumeType] = Field(default_factory=list)
    """Types of volumes that overlays may use besides configMap, downwardAPI, emptyDir, ephemeral, image,
    persistentVolumeClaim and projected."""
    secrets: list[Pattern] = Field(default_factory=list)
    """Names of Secrets that overlays may mount or read into variables."""
    token_secrets: list[Pattern] = Field(default_factory=lambda: ["*"])
    """Names of Secrets that spec.model.source.huggingFace.tokenSecret may name."""
    hub_hosts: list[Pattern] = Field(
        default_factory=lambda: [
            "huggingface.co",
            "*.huggingface.co",
            "hf.co",
            "*.hf.co",
            "modelscope.cn",
            "*.modelscope.cn",
            "modelscope.ai",
            "*.modelscope.ai",
        ]
    )
    """Hosts that mirrors and proxies may be on where a resource has a token of a hub. A host is reached by HTTPS;
    `http://` in front allows HTTP."""
    router_images: list[Pattern] = Field(default_factory=list)
    """Images that spec.router.image may name besides the installation's own."""
    capabilities: list[Capability] = Field(default_factory=lambda: ["NET_BIND_SERVICE"])
    """Linux capabilities that containers may have. With IPC_LOCK, spec.transfer.rdma adds it to vLLM's container."""
    priority_classes: list[Pattern] = Field(default_factory=lambda: ["*"])
    """PriorityClasses that pods may have. One that begins with `system-` needs a pattern that does so too."""
    runtime_classes: list[Pattern] = Field(
        default_factory=lambda: ["nvidia", "nvidia-*", "amd", "habana", "gvisor", "kata"]
    )
    """RuntimeClasses that pods may have."""
    scheduler_names: list[Pattern] = Field(default_factory=lambda: ["*"])
    """Schedulers that may place pods."""
    tolerations: list[Pattern] = Field(default_factory=lambda: ["*"])
    """Keys of taints that pods may tolerate. One that begins with `node-role.kubernetes.io/` needs a pattern that does
    so too; an empty text allows a toleration without a key, that is of every taint."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="true",  # no API server reads it
            holds=_apart,
            field="allowedHostPaths",
            message="A folder with readOnly: false must neither contain another allowed folder nor be in one: pods "
            "that write into it could put a link there that leads anywhere on the node.",
        ),
    )

    def writable_host_path(self, path: str, namespace: str) -> bool:
        """Whether a resource of this namespace may write into this folder of nodes."""
        return any(not entry.read_only and entry.covers(path, namespace) for entry in self.allowed_host_paths)

    def readable_host_path(self, path: str, namespace: str) -> bool:
        """Whether a resource of this namespace may read this folder of nodes."""
        return any(entry.covers(path, namespace) for entry in self.allowed_host_paths)
