"""What platforms bring and the local cluster lacks, from its Go modules: Kueue, and the Gateway API's definitions."""

from e2e.cluster import Cluster
from e2e.kubectl import Kubectl


def install(cluster: Cluster, kubectl: Kubectl) -> None:
    """TODO."""
