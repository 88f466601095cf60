"""Remove a cluster without asking it: this must work whatever state it is in."""

import shutil

from e2e.cluster import network, processes
from e2e.cluster.spec import SPEC_FILE, ClusterSpec


def remove(cluster: ClusterSpec) -> None:
    """Remove everything of a cluster; its record goes last, so that a run killed half-way can be repeated."""
    processes.kill_marked(cluster)
    network.delete(cluster)
    for path in cluster.folder.iterdir():
        if path.name != SPEC_FILE:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    shutil.rmtree(cluster.folder)
