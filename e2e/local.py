"""The local cluster with our images in it, as demo and tests start from."""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

from e2e.cluster import Cluster
from e2e.cluster.build import prepare
from e2e.cluster.debian import require
from e2e.console import headline, say
from e2e.images import BuiltImage, build_images

TOOLS = ("control-plane", "node", "coredns", "tiny", "helm")
IMAGES = ("operator", "router", "vllm-cpu")


def cluster_with_images(name: str) -> tuple[Cluster, Mapping[str, BuiltImage]]:
    """Build what is missing, bring a cluster of two nodes up, and load the images.

    Compiling keeps the cores busy and the images mostly the network and the disk, so both go on at once.

    Raises:
        ClusterError: This machine cannot run a cluster; the message says why.
        ImageError: An image cannot be built.
    """
    headline("Kubernetes from its Go modules, and three images")
    require()
    with ThreadPoolExecutor() as pool:
        binaries = pool.submit(prepare, TOOLS)
        built = build_images(IMAGES)
        binaries.result()
    headline("A local cluster of two nodes")
    cluster = Cluster.up(name)
    for image in built.values():
        say(f"loading {image.reference}")
        cluster.load_image(image.reference, storage=image.storage)
    return cluster, built
