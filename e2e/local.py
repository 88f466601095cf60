"""The local cluster with our images in it, as demo and tests start from."""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from e2e.cluster import Cluster
from e2e.cluster.build import prepare
from e2e.cluster.debian import require
from e2e.cluster.errors import ClusterError
from e2e.console import headline, say
from e2e.images import BuiltImage, build_images

_GIB = 2**20  # in KiB, the unit of /proc/meminfo
_NEEDED_KIB = 8 * _GIB
"""Two pairs of vLLM pods at a time, as in a roll-out, take 9 GiB; one pair and the cluster take 6."""

TOOLS = ("control-plane", "node", "coredns", "tiny", "helm")
IMAGES = ("operator", "vllm-cpu")


def cluster_with_images(name: str, *, policies: bool = False) -> tuple[Cluster, Mapping[str, BuiltImage]]:
    """Build what is missing, bring a cluster of two nodes up, and load the images.

    Compiling keeps the cores busy and the images mostly the network and the disk, so both go on at once.

    Args:
        name: Of the cluster.
        policies: Whether its nodes enforce NetworkPolicies.

    Raises:
        ClusterError: This machine cannot run a cluster; the message says why.
        ImageError: An image cannot be built.
    """
    headline("Kubernetes from its Go modules, and the images")
    require()
    if all(cluster.name != name for cluster in Cluster.all()):
        _require_memory()
    with ThreadPoolExecutor() as pool:
        binaries = pool.submit(prepare, TOOLS)
        built = build_images(IMAGES)
        binaries.result()
    headline("A local cluster of two nodes")
    cluster = Cluster.up(name, policies=policies)
    for image in built.values():
        say(f"loading {image.reference}")
        cluster.load_image(image.reference, storage=image.storage)
    return cluster, built


def _require_memory() -> None:
    """Say at once what would otherwise end in pods that the kernel kills."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    (available,) = (int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))
    if available < _NEEDED_KIB:
        others = "".join(f" `make down PDINFERENCE_CLUSTER={cluster.name}` removes one." for cluster in Cluster.all())
        raise ClusterError(
            f"{available / _GIB:.1f} GiB of memory are left, and {_NEEDED_KIB // _GIB} are needed. Stop other "
            f"programs, or clusters of earlier runs.{others}"
        )
