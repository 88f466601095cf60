"""Volumes that pods on all nodes share, as a cluster with a shared file system would provide them."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from e2e.cluster import paths

USER = 65532
"""Whom pods run as; volumes of this kind cannot be handed to a pod's group."""


def empty_folder(name: str) -> Path:
    """A folder of this machine, on which all nodes are, that pods may write to."""
    folder: Path = paths.state() / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    os.chown(folder, USER, USER)
    return folder


def shared_volume(name: str, folder: Path, namespace: str) -> Iterator[dict[str, Any]]:
    """A volume, and the claim of the same name that has it."""
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
