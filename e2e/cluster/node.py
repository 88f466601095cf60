"""A node: its own containerd, kubelet and kube-proxy in a network namespace of its own."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from e2e.cluster import api, build, cgroups, images, pki
from e2e.cluster.commands import Word
from e2e.cluster.containerd import Containerd, connectable
from e2e.cluster.files import write_atomically
from e2e.cluster.processes import Component
from e2e.cluster.spec import DNS_ADDRESS, POD_RANGE, NodeSpec
from e2e.cluster.waiting import wait_until


def components(node: NodeSpec) -> list[Component]:
    """The processes of a node, in the order in which they start."""
    found = [_containerd(node), _kubelet(node), _kube_proxy(node)]
    return [*found, _policy_agent(node)] if node.cluster.policies else found


def ensure_all(nodes: list[NodeSpec]) -> None:
    """Bring all nodes up; they start together."""
    images.store_own()
    for node in nodes:
        _configure(node)
        for component in components(node):
            component.launch()
    for node in nodes:
        for component in components(node):
            component.await_ready()
        _await_ready(node)


def _await_ready(node: NodeSpec) -> None:
    log = _kubelet(node).log
    wait_until(f"{node.name} to be Ready", lambda: api.node_ready(node.cluster, node.name), timeout=300, log=log)


def load_image(node: NodeSpec, source: images.Source) -> None:
    """Put images into a running node."""
    images.load_into(Containerd(root(node), socket(node)), source)


def root(node: NodeSpec) -> Path:
    """The folder of its images and containers."""
    return node.folder / "containerd"


def state(node: NodeSpec) -> Path:
    """The folder of its running containers, full of mounts."""
    return node.folder / "run"


def socket(node: NodeSpec) -> Path:
    """Where its containerd listens."""
    return node.folder / "containerd.sock"


def cni_network(node: NodeSpec) -> str:
    """The name of its pod network, which tells its records from other clusters'."""
    return f"pdinference-{node.name}"


def _configure(node: NodeSpec) -> None:
    images.seed(root(node))
    cgroups.ensure(node)
    write_atomically(node.folder / "containerd.toml", _containerd_config(node))
    write_atomically(node.folder / "kubelet.yaml", yaml.safe_dump(_kubelet_config(node)))
    write_atomically(node.folder / "kube-proxy.yaml", yaml.safe_dump(_kube_proxy_config(node)))
    write_atomically(node.folder / "cni" / "10-pods.conflist", json.dumps(_cni_config(node), indent=2))


def _containerd(node: NodeSpec) -> Component:
    command: list[Word] = ["containerd", "--config", node.folder / "containerd.toml"]
    return _component(node, "containerd", command, lambda: connectable(socket(node)))


def _kubelet(node: NodeSpec) -> Component:
    command: list[Word] = [
        build.binary("kubelet"),
        f"--config={node.folder / 'kubelet.yaml'}",
        f"--kubeconfig={pki.kubeconfig(node.cluster, node.short_name)}",
        f"--hostname-override={node.name}",
        f"--node-ip={node.address}",
        f"--root-dir={node.folder / 'kubelet'}",
        f"--node-labels=topology.kubernetes.io/region=local,topology.kubernetes.io/zone=zone-{node.number}",
    ]
    kubelet = _component(node, "kubelet", command, lambda: api.healthy(f"http://{node.address}:10248/healthz"))
    return replace(kubelet, gives_up=True)  # containerd listens a little before it serves


def _kube_proxy(node: NodeSpec) -> Component:
    command: list[Word] = [build.binary("kube-proxy"), f"--config={node.folder / 'kube-proxy.yaml'}"]
    return _component(node, "kube-proxy", command, lambda: api.healthy(f"http://{node.address}:10256/healthz"))


def _policy_agent(node: NodeSpec) -> Component:
    health = f"{node.address}:10260"
    command: list[Word] = [
        build.binary("policy-agent"),
        f"--kubeconfig={node.cluster.kubeconfig}",
        f"--pod-range={POD_RANGE}",
        f"--health={health}",
    ]
    return _component(node, "policy-agent", command, lambda: api.healthy(f"http://{health}/healthz"))


def _component(node: NodeSpec, name: str, command: list[Word], ready: Callable[[], bool]) -> Component:
    return Component(f"{node.short_name}/{name}", node.cluster, command, ready, node.netns)


def _containerd_config(node: NodeSpec) -> str:
    # restrict_oom_score_adj: where root may not lower it (CAP_SYS_RESOURCE), no pod would start.
    # netns_mounts_under_state_dir: the default, /run/netns, is the whole machine's.
    return f"""\
version = 2
root = "{root(node)}"
state = "{state(node)}"
[grpc]
  address = "{socket(node)}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{images.PAUSE}"
  restrict_oom_score_adj = true
  disable_apparmor = true
  netns_mounts_under_state_dir = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
        Root = "{state(node)}/runc"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{node.folder / "cni"}"
"""


def _kubelet_config(node: NodeSpec) -> dict[str, Any]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": node.address,
        "healthzBindAddress": node.address,
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(pki.folder(node.cluster) / "ca.crt")},
        },
        "authorization": {"mode": "Webhook"},
        "containerRuntimeEndpoint": f"unix://{socket(node)}",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": node.cgroup,
        "failCgroupV1": False,
        "enforceNodeAllocatable": [],
        "failSwapOn": False,
        "oomScoreAdj": 0,
        "podLogsDir": str(node.folder / "pod-logs"),
        "volumePluginDir": str(node.folder / "volume-plugins"),
        "clusterDNS": [DNS_ADDRESS],
        "clusterDomain": "cluster.local",
        "resolvConf": "",  # not the host's: no name outside of the cluster can be reached
        # Images can't be pulled again, so they are never removed, and a disk that fills up evicts nobody.
        "imageGCHighThresholdPercent": 100,
        "evictionHard": {"memory.available": "100Mi"},
    }


def _kube_proxy_config(node: NodeSpec) -> dict[str, Any]:
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "clientConnection": {"kubeconfig": str(pki.kubeconfig(node.cluster, "kube-proxy"))},
        "mode": "nftables",
        "hostnameOverride": node.name,
        "clusterCIDR": POD_RANGE,
        "healthzBindAddress": f"{node.address}:10256",
        "oomScoreAdj": 0,
        # Connection tracking is limited by a number of the whole machine, which is not ours to change.
        "conntrack": {"maxPerCore": 0, "min": 0},
    }


def _cni_config(node: NodeSpec) -> dict[str, Any]:
    """Every pod has a link of its own to the node, which therefore sees, and kube-proxy translates, all its packets."""
    return {
        "cniVersion": "0.4.0",
        "name": cni_network(node),
        "plugins": [
            {
                "type": "ptp",
                "ipMasq": False,
                "ipam": {
                    "type": "host-local",
                    "dataDir": str(node.folder / "addresses"),
                    "ranges": [[{"subnet": node.pod_range}]],
                    "routes": [{"dst": "0.0.0.0/0"}],
                },
            },
            {"type": "portmap", "capabilities": {"portMappings": True}},
        ],
    }
