"""The installation policy (file of `--policy`): what resources of users may use.

The chart generates it from its values `policy` and `allowedHostPaths`. Lists of names take patterns, in which `*`
matches any text. A list replaces its default.

Tests: tests/manifests/test_policy.py, tests/manifests/test_pod_rules.py
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
    """Whether a text matches a pattern, in which `*` matches any text. Takes time linear in the text."""
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
        patterns: Patterns of the policy.
        text: The value in a resource.
        reserved: Prefixes that `*` alone does not match: a pattern must start with the same prefix.
    """
    needed = next((start for start in reserved if text.startswith(start)), "")
    return any(pattern.startswith(needed) and matches(pattern, text) for pattern in patterns)


class AllowedHostPath(ApiModel):
    """A folder on nodes that resources may mount."""

    path: AbsolutePath
    """Path of the folder. With readOnly, it includes all folders below it. Otherwise only the folder itself is allowed:
    pods that can write to a parent folder could create symbolic links to other folders."""
    read_only: bool = True
    """Whether pods mount it read-only. A model cache (spec.model.cache.hostPath) and a disk tier
    (kvTiers.disk.hostPath) need false."""
    namespaces: list[ObjectName] = Field(default_factory=list)
    """Namespaces whose resources may mount it. Default: all."""

    def covers(self, path: str, namespace: str) -> bool:
        """Whether a resource of this namespace may mount this path."""
        wanted = PurePosixPath(path)
        within = wanted.is_relative_to(self.path) if self.read_only else wanted == PurePosixPath(self.path)
        return within and ".." not in wanted.parts and (not self.namespaces or namespace in self.namespaces)


def _apart(policy: "Policy") -> bool:
    """Whether no writable folder contains another allowed folder, or is in one."""
    folders = [(PurePosixPath(entry.path), entry.read_only) for entry in policy.allowed_host_paths]
    return not any(
        path.is_relative_to(other)
        for index, (path, read_only) in enumerate(folders)
        for number, (other, other_read_only) in enumerate(folders)
        if index != number and path != other and not (read_only and other_read_only)
    )


class Policy(ApiModel):
    """The installation policy."""

    allowed_host_paths: list[AllowedHostPath] = Field(default_factory=list)
    """Folders on nodes that fields of a resource may name. podTemplate can never mount one."""
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
    """Label keys that podTemplate may set. Do not add keys that Services or webhooks of the cluster select by."""
    annotations: list[Pattern] = Field(default_factory=lambda: ["checksum/*", "prometheus.io/*", "example.com/*"])
    """Annotation keys that podTemplate may set, in addition to keys without a dot or a slash."""
    service_annotations: list[Pattern] = Field(
        default_factory=lambda: [
            "service.beta.kubernetes.io/*",
            "service.kubernetes.io/*",
            "networking.gke.io/*",
            "cloud.google.com/*",
            "prometheus.io/*",
            "example.com/*",
        ]
    )
    """Annotation keys that spec.router.service.annotations may have, in addition to keys without a dot or a slash. The
    default allows keys of cloud load balancers. Do not add keys that claim DNS names, such as those of external-dns."""
    volume_types: list[VolumeType] = Field(default_factory=list)
    """Volume types that podTemplate may use, in addition to configMap, downwardAPI, emptyDir, ephemeral, image,
    persistentVolumeClaim and projected."""
    secrets: list[Pattern] = Field(default_factory=list)
    """Names of Secrets that podTemplate may mount or read into environment variables."""
    token_secrets: list[Pattern] = Field(default_factory=lambda: ["*"])
    """Names of Secrets that spec.model.source may reference: tokenSecret of huggingFace, and secretName of bucket."""
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
    """Hosts of mirrors and proxies that a resource with a hub token may use. HTTPS is required; the prefix `http://`
    allows HTTP."""
    router_images: list[Pattern] = Field(default_factory=list)
    """Images that spec.router.image may name, in addition to the default image."""
    capabilities: list[Capability] = Field(default_factory=lambda: ["NET_BIND_SERVICE"])
    """Linux capabilities that containers may have. If IPC_LOCK is allowed, spec.transfer.rdma adds it to vLLM's
    container."""
    root: bool = False
    """Whether podTemplate of P and D may run containers as root. Processes of other users get none of the capabilities
    that a container adds, which the libraries of some images need."""
    priority_classes: list[Pattern] = Field(default_factory=lambda: ["*"])
    """PriorityClasses that pods may have. Names with the prefix `system-` need a pattern with that prefix."""
    runtime_classes: list[Pattern] = Field(
        default_factory=lambda: ["nvidia", "nvidia-*", "amd", "habana", "gvisor", "kata"]
    )
    """RuntimeClasses that pods may have."""
    scheduler_names: list[Pattern] = Field(default_factory=lambda: ["*"])
    """Schedulers that pods may have."""
    tolerations: list[Pattern] = Field(default_factory=lambda: ["*"])
    """Taint keys that pods may tolerate. Keys with the prefix `node-role.kubernetes.io/` need a pattern with that
    prefix. An empty pattern allows a toleration without a key, which tolerates all taints."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="true",  # not part of a CRD
            holds=_apart,
            field="allowedHostPaths",
            message="A folder with readOnly: false must neither contain another allowed folder nor be in one: pods "
            "that write to it could create a symbolic link to any folder of the node.",
        ),
    )
