"""Volumes that pods on all nodes share, as a cluster with a shared file system would provide them."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from e2e.cluster import paths
from e2e.install import apply
from e2e.kubectl import Kubectl

USER = 65532
"""Whom pods run as; volumes of this kind cannot be handed to a pod's group."""


@contextmanager
def shared_folder(kubectl: Kubectl, claim: str) -> Iterator[Path]:
    """A claim whose volume is a folder of this machine, on which all nodes are; pods may write to it."""
    folder = paths.state() / f"e2e-{claim}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    os.chown(folder, USER, USER)
    for manifest in _volume_and_claim(claim, folder, kubectl.namespace):
        apply(kubectl, manifest)
    try:
        yield folder
    finally:
        # Nobody waits for pods to let go of it.
        kubectl.run("delete", f"pvc/{claim}", f"pv/{claim}", "--ignore-not-found", "--wait=false")
        shutil.rmtree(folder, ignore_errors=True)


def _volume_and_claim(name: str, folder: Path, namespace: str) -> Iterator[dict[str, Any]]:
    size, modes = {"storage": "1Gi"}, ["ReadWriteMany"]
    yield {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "capacity": size,
            "accessModes": modes,
            "storageClassName": "",
            "claimRef": {"name": name, "namespace": namespace},
            "hostPath": {"path": str(folder)},
        },
    }
    spec = {"accessModes": modes, "storageClassName": "", "volumeName": name, "resources": {"requests": size}}
    yield {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": spec}
