"""What runs in a cluster with nodes before anybody uses it: DNS."""

from pathlib import Path
from string import Template

from e2e.cluster import api, build, images
from e2e.cluster.commands import Word, run
from e2e.cluster.spec import DNS_ADDRESS, ClusterSpec
from e2e.cluster.waiting import wait_until

_MANIFEST = Path(__file__).with_name("coredns.yaml")
_DEPLOYMENT = "/apis/apps/v1/namespaces/kube-system/deployments/coredns"


def ensure_dns(cluster: ClusterSpec) -> None:
    """Deploy CoreDNS unless it is there, and wait until it answers."""
    if api.get(cluster, _DEPLOYMENT) is None:
        manifest = Template(_MANIFEST.read_text()).substitute(DNS_ADDRESS=DNS_ADDRESS, IMAGE=images.COREDNS)
        kubectl: list[Word] = [build.binary("kubectl"), f"--kubeconfig={cluster.kubeconfig}"]
        run([*kubectl, "apply", "--server-side", "--filename=-"], stdin=manifest)
    wait_until("CoreDNS", lambda: api.has_condition(api.get(cluster, _DEPLOYMENT), "Available"), timeout=300)
