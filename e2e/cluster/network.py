"""The cluster's networks: one namespace for the control plane, one for each node, and no way out of the machine.

    host (.1) --- bridge in the control plane's namespace (.2) --- node-1 (.11), node-2 (.12), ...

Besides its own networks, a namespace has only the route "unreachable": a pod that calls the internet fails at once.
"""

from pathlib import Path

from e2e.cluster.commands import Word, run, succeeds
from e2e.cluster.errors import ClusterError
from e2e.cluster.spec import MAX_CLUSTERS, SERVICE_RANGE, ClusterSpec, NodeSpec

_NAMESPACES = Path("/run/netns")
_UPLINK = "eth0"


def free_index(taken: set[int]) -> int:
    """Choose a link network that neither our clusters nor anything else on this host uses.

    Raises:
        ClusterError: All are taken.
    """
    routes = run(["ip", "-4", "route", "show", "table", "all"])
    for index in range(MAX_CLUSTERS):
        if index not in taken and not _link_exists(f"pdi{index}") and f"198.18.{index}." not in routes:
            return index
    raise ClusterError(
        f"All {MAX_CLUSTERS} test networks are in use: see `ip -br link` and `python -m e2e.cluster status`."
    )


def exists(cluster: ClusterSpec) -> bool:
    """Say whether the networks are there (a reboot removes them) and were completed (a SIGKILL may have come first)."""
    if not _completed(cluster).exists():
        return False
    return _link_exists(cluster.host_link) and all((_NAMESPACES / name).exists() for name in _namespaces(cluster))


def create(cluster: ClusterSpec) -> None:
    """Make all namespaces and the links between them.

    Raises:
        ClusterError: Somebody else has the names.
    """
    for name in _namespaces(cluster):
        if (_NAMESPACES / name).exists():
            raise ClusterError(
                f"The network namespace {name} exists, but no cluster {cluster.name} under {cluster.folder.parent}. "
                f"Choose another --name, or if nothing uses it: ip netns delete {name}"
            )
    _create_control_plane(cluster)
    for node in cluster.node_specs:
        _create_node(node)
    _completed(cluster).touch()


def delete(cluster: ClusterSpec) -> None:
    """Remove all of it; the processes inside must be gone."""
    if _link_exists(cluster.host_link):
        run(["ip", "link", "delete", cluster.host_link])
    for name in _namespaces(cluster):
        if (_NAMESPACES / name).exists():
            run(["ip", "netns", "delete", name])


def _completed(cluster: ClusterSpec) -> Path:
    return cluster.folder / "network-completed"


def _namespaces(cluster: ClusterSpec) -> list[str]:
    return [cluster.netns, *(node.netns for node in cluster.node_specs)]


def _create_control_plane(cluster: ClusterSpec) -> None:
    inside = cluster.netns
    _create_namespace(inside)
    _ip("link", "add", cluster.host_link, "type", "veth", "peer", "name", "host", "netns", inside)
    _ip("address", "add", f"{cluster.host_address}/24", "dev", cluster.host_link)
    _ip("link", "set", cluster.host_link, "up")
    _ip("link", "add", _UPLINK, "type", "bridge", netns=inside)
    _ip("link", "set", "host", "master", _UPLINK, "up", netns=inside)
    _ip("address", "add", f"{cluster.address}/24", "dev", _UPLINK, netns=inside)
    _ip("link", "set", _UPLINK, "up", netns=inside)
    for node in cluster.node_specs:
        _route_to_pods(node, netns=inside)


def _create_node(node: NodeSpec) -> None:
    inside = node.netns
    _create_namespace(inside)
    _ip(
        "link",
        "add",
        _UPLINK,
        "netns",
        inside,
        "type",
        "veth",
        "peer",
        "name",
        node.short_name,
        "netns",
        node.cluster.netns,
    )
    _ip("link", "set", node.short_name, "master", _UPLINK, "up", netns=node.cluster.netns)
    _ip("address", "add", f"{node.address}/24", "dev", _UPLINK, netns=inside)
    _ip("link", "set", _UPLINK, "up", netns=inside)
    # A process of the node itself needs some route to a service's address before kube-proxy's rules see its packets.
    _ip("route", "add", SERVICE_RANGE, "dev", _UPLINK, netns=inside)
    for other in node.cluster.node_specs:
        if other != node:
            _route_to_pods(other, netns=inside)
    run(["nsenter", f"--net={_NAMESPACES / inside}", "sysctl", "--quiet", "net.ipv4.ip_forward=1"])


def _create_namespace(name: str) -> None:
    _ip("netns", "add", name)
    _ip("link", "set", "lo", "up", netns=name)
    _ip("route", "add", "unreachable", "default", netns=name)


def _route_to_pods(node: NodeSpec, *, netns: str) -> None:
    _ip("route", "add", node.pod_range, "via", node.address, netns=netns)


def _link_exists(name: str) -> bool:
    return succeeds(["ip", "link", "show", "dev", name])


def _ip(*words: Word, netns: str | None = None) -> None:
    run(["ip", *(["-netns", netns] if netns else []), *words])
