"""A Kubernetes cluster on this machine, without Docker: real components in network namespaces."""

from e2e.cluster.cluster import Cluster
from e2e.cluster.errors import ClusterError

__all__ = ["Cluster", "ClusterError"]
