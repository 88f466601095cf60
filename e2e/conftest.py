"""One cluster with the operator and the tiny example for all tests of serving."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from e2e.cluster import Cluster
from e2e.install import ImageReferences, apply, create_namespace, example, install_operator, local_references
from e2e.kubectl import Kubectl
from e2e.local import cluster_with_images
from e2e.waiting import wait_ready

NAMESPACE = "models"
NAME = "tiny"


@dataclass(frozen=True)
class Serving:
    """A cluster that serves the tiny model.

    Attributes:
        cluster: The local cluster.
        kubectl: In the namespace of the model.
        images: What was installed.
        url: Where pods reach the model.
    """

    cluster: Cluster
    kubectl: Kubectl
    images: ImageReferences
    url: str

    @property
    def example(self) -> dict[str, Any]:
        """The example as it was first applied."""
        return example(self.images)

    def resource(self) -> dict[str, Any]:
        """The resource as it is now."""
        found: dict[str, Any] = self.kubectl.get("pdi", NAME)
        return found


@pytest.fixture(scope="session")
def serving() -> Iterator[Serving]:
    """A cluster of two nodes, the operator from its chart, and the tiny example, Ready.

    With PDINFERENCE_KEEP=1 the cluster stays up for the next run.
    """
    # A name of its own lets two checkouts be tested at once.
    cluster, built = cluster_with_images(os.environ.get("PDINFERENCE_CLUSTER", "e2e"))
    images = local_references(built)
    try:
        kubectl = Kubectl(cluster.kubeconfig, NAMESPACE)
        install_operator(kubectl, images)
        create_namespace(kubectl)
        apply(kubectl, example(images))
        wait_ready(kubectl, NAME)
        yield Serving(cluster, kubectl, images, f"http://{NAME}.{NAMESPACE}.svc")
    finally:
        if os.environ.get("PDINFERENCE_KEEP") != "1":
            cluster.down()
