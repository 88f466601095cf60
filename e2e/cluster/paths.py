"""Where things live: caches that survive a cluster, and the state of clusters."""

import os
from pathlib import Path

TOOLS = Path(__file__).parent.parent / "tools"


def cache() -> Path:
    """The folder of built binaries; its content can be rebuilt at any time."""
    return Path(os.environ.get("PDINFERENCE_CACHE") or Path.home() / ".cache" / "pdinference")


def binaries() -> Path:
    """The folder to put on PATH: kubectl, helm and the rest, as links to the versions in use."""
    return cache() / "bin"


def state() -> Path:
    """The folder of running clusters and their images."""
    return Path(os.environ.get("PDINFERENCE_STATE") or "/var/lib/pdinference")


def clusters() -> Path:
    """One folder a cluster."""
    return state() / "clusters"


def image_store() -> Path:
    """Images unpacked once for all nodes; beside the clusters, because nodes take them by hard link."""
    return state() / "images"
