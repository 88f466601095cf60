"""Remove a cluster without asking it: this must work whatever state it is in."""

import contextlib
import shutil
from pathlib import Path

from e2e.cluster import cgroups, network, node, processes
from e2e.cluster.commands import run
from e2e.cluster.spec import SPEC_FILE, ClusterSpec, NodeSpec

_CONTAINER_LOGS = Path("/var/log/containers")
_CNI_RESULTS = Path("/var/lib/cni/results")
_SHIM_SOCKETS = Path("/run/containerd/s")


def remove(cluster: ClusterSpec) -> None:
    """Remove everything of a cluster; its record goes last, so that a run killed half-way can be repeated."""
    if not cluster.folder.exists():
        return
    processes.kill_marked(cluster)
    processes.kill_all(f"the containers of {cluster.name}", lambda: cgroups.processes(cluster))
    cgroups.delete(cluster)
    _unmount(cluster.folder)
    network.delete(cluster)
    _remove_strays(cluster)
    for path in cluster.folder.iterdir():
        if path.name != SPEC_FILE:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    shutil.rmtree(cluster.folder)


def mounts_below(folder: Path) -> list[str]:
    """Every mount in a folder, the innermost first."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    targets = [line.split()[4].encode().decode("unicode_escape") for line in lines]
    return [target for target in reversed(targets) if target.startswith(f"{folder}/")]


def _unmount(folder: Path) -> None:
    for target in mounts_below(folder):
        run(["umount", "--lazy", target])


def _remove_strays(cluster: ClusterSpec) -> None:
    """Remove what kubelet, containerd and CNI write to fixed places of the machine."""
    for spec in cluster.node_specs:
        _remove_pod_networks(spec)
        for record in node.state(spec).glob("io.containerd.runtime.v2.task/*/*/address"):
            Path(record.read_text().removeprefix("unix://")).unlink(missing_ok=True)
    for link in _CONTAINER_LOGS.glob("*.log"):
        if link.is_symlink() and link.readlink().is_relative_to(cluster.folder):
            link.unlink()
    for folder in (_CONTAINER_LOGS, _CNI_RESULTS, _CNI_RESULTS.parent, _SHIM_SOCKETS, _SHIM_SOCKETS.parent):
        with contextlib.suppress(OSError):  # not empty, as somebody else uses it, or not there
            folder.rmdir()


def _remove_pod_networks(spec: NodeSpec) -> None:
    """Remove CNI's records of pods; those of their loopback interfaces bear no name of ours, only the pods' ids."""
    prefix = f"{node.cni_network(spec)}-"
    sandboxes = {path.name for path in (node.root(spec) / "io.containerd.grpc.v1.cri" / "sandboxes").glob("*")}
    sandboxes |= {path.name.removeprefix(prefix).rpartition("-")[0] for path in _CNI_RESULTS.glob(f"{prefix}*")}
    for sandbox in sandboxes:
        for path in _CNI_RESULTS.glob(f"*-{sandbox}-*"):
            path.unlink()
