"""What a cluster consists of: its profile, its addresses and where its files are."""

import json
import re
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Self

from e2e.cluster import paths
from e2e.cluster.errors import ClusterError
from e2e.cluster.files import write_atomically

# 198.18.0.0/15 is reserved for tests (RFC 2544): nothing on the internet or in a company has these addresses.
# Each cluster has a link network of its own on the host; pods and services exist only in a cluster's namespaces, so
# that all clusters use the same ranges for them.
SERVICE_RANGE = "198.19.0.0/16"
API_SERVICE_ADDRESS = "198.19.0.1"
DNS_ADDRESS = "198.19.0.10"
POD_RANGE = "198.18.128.0/17"
MAX_CLUSTERS = 128
MAX_NODES = 8

SPEC_FILE = "cluster.json"
_NAME = re.compile(r"[a-z]([a-z0-9-]{0,18}[a-z0-9])?")
_LONGEST_SOCKET = "nodes/node-1/containerd.sock.ttrpc"
_SOCKET_LIMIT = 107


@dataclass(frozen=True)
class NodeSpec:
    """One node."""

    cluster: "ClusterSpec"
    number: int

    @property
    def short_name(self) -> str:
        """Its name within the cluster."""
        return f"node-{self.number}"

    @property
    def name(self) -> str:
        """Its name as Kubernetes knows it, unique on this machine."""
        return f"{self.cluster.name}-{self.short_name}"

    @property
    def netns(self) -> str:
        """Its network namespace."""
        return f"{self.cluster.netns}.{self.short_name}"

    @property
    def address(self) -> str:
        """Its address on the link network, reachable from the host."""
        return f"{self.cluster.network}.{10 + self.number}"

    @property
    def pod_range(self) -> str:
        """The addresses of its pods."""
        return f"198.18.{128 + self.number}.0/24"

    @property
    def folder(self) -> Path:
        """Its files."""
        return self.cluster.folder / "nodes" / self.short_name

    @property
    def cgroup(self) -> str:
        """The parent of all its pods' cgroups."""
        return f"/pdinference/{self.cluster.name}/{self.short_name}"


@dataclass(frozen=True)
class ClusterSpec:
    """One cluster; written to disk before anything of it is made, so that `down` always finds it."""

    name: str
    nodes: int
    audit: bool
    kwok: bool
    index: int
    dra: bool = True
    policies: bool = False

    @property
    def folder(self) -> Path:
        """All its files."""
        return paths.clusters() / self.name

    @property
    def logs(self) -> Path:
        """The logs of its components."""
        return self.folder / "logs"

    @property
    def kubeconfig(self) -> Path:
        """For its administrator, on the host."""
        return self.folder / "kubeconfig"

    @property
    def audit_log(self) -> Path:
        """One JSON object a request."""
        return self.logs / "audit.log"

    @property
    def netns(self) -> str:
        """The control plane's network namespace; no cluster's name has a dot, so names can't collide."""
        return f"pdi.{self.name}"

    @property
    def host_link(self) -> str:
        """The host's interface towards the cluster."""
        return f"pdi{self.index}"

    @property
    def network(self) -> str:
        """The first three bytes of its link network."""
        return f"198.18.{self.index}"

    @property
    def host_address(self) -> str:
        """The host's address as seen from the cluster."""
        return f"{self.network}.1"

    @property
    def address(self) -> str:
        """The control plane's address."""
        return f"{self.network}.2"

    @property
    def server(self) -> str:
        """The API server's URL."""
        return f"https://{self.address}:6443"

    @property
    def node_specs(self) -> list[NodeSpec]:
        """Its nodes."""
        return [NodeSpec(self, number) for number in range(1, self.nodes + 1)]

    def save(self) -> None:
        """Write it to the cluster's folder."""
        write_atomically(self.folder / SPEC_FILE, json.dumps(asdict(self), indent=2))

    @classmethod
    def load(cls, name: str) -> Self | None:
        """Read it back, None where there is no such cluster."""
        path = paths.clusters() / name / SPEC_FILE
        return cls._read(path) if path.exists() else None

    @classmethod
    def load_all(cls) -> list[Self]:
        """Every cluster of this state folder."""
        found = sorted(paths.clusters().glob(f"*/{SPEC_FILE}"))
        return [cls._read(path) for path in found]

    @classmethod
    def _read(cls, path: Path) -> Self:
        """Read a record, of which another checkout on this machine may know more fields."""
        known = {field.name for field in fields(cls)}
        return cls(**{name: value for name, value in json.loads(path.read_text()).items() if name in known})


def check(name: str, nodes: int) -> None:
    """Refuse what could not work, before anything is made.

    Raises:
        ClusterError: The name or the number of nodes won't do.
    """
    if not _NAME.fullmatch(name):
        raise ClusterError(
            f"{name!r} is no name for a cluster: use up to 20 lower-case letters, digits and dashes, a letter first."
        )
    if not 0 <= nodes <= MAX_NODES:
        raise ClusterError(f"A cluster has 0 to {MAX_NODES} nodes here, not {nodes}.")
    longest = paths.clusters() / name / _LONGEST_SOCKET
    if len(str(longest)) > _SOCKET_LIMIT:
        raise ClusterError(f"{longest} is too long for a unix socket: set PDINFERENCE_STATE to a shorter path.")
