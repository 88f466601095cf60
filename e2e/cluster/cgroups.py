"""The cgroups that hold a node's pods, on cgroup v1 and v2.

Two kubelets on one machine need a parent each: a kubelet removes what it does not know below its own.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from e2e.cluster.errors import ClusterError
from e2e.cluster.spec import ClusterSpec, NodeSpec

_MOUNT = Path("/sys/fs/cgroup")
_PARENT = "pdinference"


def ensure(node: NodeSpec) -> None:
    """Make the parent of a node's pods.

    Raises:
        ClusterError: The kernel does not let us.
    """
    try:
        for hierarchy in _mounts("cgroup2" if _is_v2() else "cgroup"):
            _make(hierarchy, Path(node.cgroup.strip("/")).parts)
    except OSError as error:
        raise ClusterError(
            f"Can't make the cgroup {node.cgroup}: {error}. In a container, it must be privileged and have the "
            "machine's own cgroups (docker run --privileged --cgroupns=host)."
        ) from error


def processes(cluster: ClusterSpec) -> list[int]:
    """Every process in a pod of this cluster. A pod that ends meanwhile takes its cgroup with it."""
    return [int(line) for folder in _folders(cluster) for line in _processes_below(folder)]


def _processes_below(folder: Path) -> Iterator[str]:
    for path, _, _ in os.walk(folder):  # passes over folders that are gone; Path.rglob does not
        with suppress(OSError):
            yield from (Path(path) / "cgroup.procs").read_text().split()


def delete(cluster: ClusterSpec) -> None:
    """Remove all of a cluster's cgroups, which must be empty, and the common parent once no cluster uses it."""
    for folder in _folders(cluster):
        for child in sorted((path for path in folder.rglob("*") if path.is_dir()), reverse=True):
            child.rmdir()
        folder.rmdir()
        if not any(path.is_dir() for path in folder.parent.iterdir()):
            folder.parent.rmdir()


def _make(hierarchy: Path, parts: tuple[str, ...]) -> None:
    folder = hierarchy
    for part in parts:
        parent, folder = folder, folder / part
        if not _is_v2():
            folder.mkdir(exist_ok=True)
            _inherit_cpuset(parent, folder)
            continue
        # A controller is available in a folder only if its parent passes it on.
        controllers = (parent / "cgroup.controllers").read_text().split()
        (parent / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in controllers))
        folder.mkdir(exist_ok=True)


def _inherit_cpuset(parent: Path, folder: Path) -> None:
    """On v1, a new cpuset allows no processor and no memory node, so that nothing can enter it."""
    for name in ("cpuset.cpus", "cpuset.mems"):
        if (folder / name).exists() and not (folder / name).read_text().strip():
            (folder / name).write_text((parent / name).read_text())


def _is_v2() -> bool:
    return (_MOUNT / "cgroup.controllers").exists()


def _mounts(*kinds: str) -> list[Path]:
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    return [Path(at) for _, at, kind, *_ in mounts if kind in kinds]


def _folders(cluster: ClusterSpec) -> Iterator[Path]:
    for hierarchy in _mounts("cgroup", "cgroup2"):  # beside v1's hierarchies, runc may use a mount of v2
        folder = hierarchy / _PARENT / cluster.name
        if folder.is_dir():
            yield folder
