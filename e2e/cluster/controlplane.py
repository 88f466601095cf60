"""etcd, API server, controller manager, scheduler and, for fake nodes, kwok."""

from typing import Any

import yaml

from e2e.cluster import api, build, pki
from e2e.cluster.commands import Word
from e2e.cluster.files import write_atomically
from e2e.cluster.processes import Component
from e2e.cluster.spec import SERVICE_RANGE, ClusterSpec
from e2e.go_modules import module_folder

_ETCD = "http://127.0.0.1:2379"
_KWOK = "sigs.k8s.io/kwok"
_STAGES = ("node/fast/node-initialize", "pod/fast/pod-ready", "pod/fast/pod-complete", "pod/fast/pod-delete")
"""What kwok plays for fake nodes and their pods, in its module; it has no stages of its own."""


def components(cluster: ClusterSpec) -> list[Component]:
    """The processes of the control plane, in the order in which they start."""
    found = [_etcd(cluster), _api_server(cluster), _controller_manager(cluster), _scheduler(cluster)]
    return [*found, _kwok(cluster)] if cluster.kwok else found


def ensure(cluster: ClusterSpec) -> None:
    """Bring the control plane up: what needs nobody starts together, and nothing is used before it serves."""
    write_atomically(cluster.folder / "audit-policy.yaml", yaml.safe_dump(_AUDIT_POLICY))
    write_atomically(cluster.folder / "admission.yaml", yaml.safe_dump(_admission(cluster)))
    etcd, api_server, *clients = components(cluster)
    etcd.ensure()
    api_server.ensure()
    for client in clients:
        client.launch()
    for client in clients:
        client.await_ready()


def _etcd(cluster: ClusterSpec) -> Component:
    command: list[Word] = [
        "etcd",
        f"--data-dir={cluster.folder / 'etcd'}",
        f"--listen-client-urls={_ETCD}",
        f"--advertise-client-urls={_ETCD}",
        f"--listen-metrics-urls=http://{cluster.address}:2381",
        # Waiting for the disk only guards against a power cut, after which nobody wants a test cluster back.
        "--unsafe-no-fsync",
        "--log-level=warn",
    ]
    return _component(cluster, "etcd", command, f"http://{cluster.address}:2381/health")


def _api_server(cluster: ClusterSpec) -> Component:
    at = pki.folder(cluster)
    command: list[Word] = [
        build.binary("kube-apiserver"),
        f"--etcd-servers={_ETCD}",
        f"--bind-address={cluster.address}",
        f"--advertise-address={cluster.address}",
        "--endpoint-reconciler-type=master-count",
        f"--service-cluster-ip-range={SERVICE_RANGE}",
        f"--tls-cert-file={at / 'apiserver.crt'}",
        f"--tls-private-key-file={at / 'apiserver.key'}",
        f"--client-ca-file={at / 'ca.crt'}",
        f"--token-auth-file={at / 'tokens.csv'}",
        f"--authorization-mode={'Node,RBAC' if cluster.dra else 'RBAC'}",  # Node waits for the API of devices
        "--enable-admission-plugins=NodeRestriction",
        f"--admission-control-config-file={cluster.folder / 'admission.yaml'}",
        "--allow-privileged=true",
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
        f"--service-account-key-file={at / 'sa.pub'}",
        f"--service-account-signing-key-file={at / 'sa.key'}",
        # logs, exec and port-forward go from the API server to the kubelet.
        "--kubelet-preferred-address-types=InternalIP",
        f"--kubelet-client-certificate={at / 'kubelet-client.crt'}",
        f"--kubelet-client-key={at / 'kubelet-client.key'}",
        # Aggregated APIs and webhooks: no kube-proxy runs here, so services are resolved to their pods.
        "--enable-aggregator-routing=true",
        f"--proxy-client-cert-file={at / f'{pki.FRONT_PROXY}.crt'}",
        f"--proxy-client-key-file={at / f'{pki.FRONT_PROXY}.key'}",
        f"--requestheader-client-ca-file={at / 'front-proxy-ca.crt'}",
        f"--requestheader-allowed-names={pki.FRONT_PROXY}",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        "--shutdown-delay-duration=0s",
    ]
    if not cluster.dra and not build.oldest():
        command.append("--runtime-config=resource.k8s.io/v1=false")
    if cluster.audit:
        command += [
            f"--audit-policy-file={cluster.folder / 'audit-policy.yaml'}",
            f"--audit-log-path={cluster.audit_log}",
            "--audit-log-maxsize=100000",  # MB: tests count its lines, so it must not be rotated
        ]
    return _component(cluster, "kube-apiserver", command, f"{cluster.server}/readyz")


def _controller_manager(cluster: ClusterSpec) -> Component:
    at = pki.folder(cluster)
    # Each node's pod range is fixed by us. Only names that all our versions know: with another one, it does not start.
    without = ["node-ipam-controller"]
    if not cluster.nodes:
        # Every 20 seconds it would fail pods that end on no node; tests play kubelets for those.
        without.append("pod-garbage-collector-controller")
    if not cluster.dra and not build.oldest():
        without += ["resourceclaim-controller", "device-taint-eviction-controller"]  # they would wait for its API
    command: list[Word] = [
        build.binary("kube-controller-manager"),
        *_client_flags(cluster, "controller-manager"),
        f"--root-ca-file={at / 'ca.crt'}",
        f"--service-account-private-key-file={at / 'sa.key'}",
        "--use-service-account-credentials",
        f"--cluster-signing-cert-file={at / 'ca.crt'}",
        f"--cluster-signing-key-file={at / 'ca.key'}",
        # Tests need not wait 15 seconds for each look.
        "--horizontal-pod-autoscaler-sync-period=1s",
        # kwok reports a fake node once. Its leases come too late: up to 61 seconds after each other in version 0.8.0.
        *(["--node-monitor-grace-period=24h"] if cluster.kwok else []),
        f"--controllers={','.join(['*', *(f'-{name}' for name in without)])}",
    ]
    return _component(cluster, "kube-controller-manager", command, f"https://{cluster.address}:10257/healthz")


def _scheduler(cluster: ClusterSpec) -> Component:
    command: list[Word] = [
        build.binary("kube-scheduler"),
        *_client_flags(cluster, "scheduler"),
    ]
    return _component(cluster, "kube-scheduler", command, f"https://{cluster.address}:10259/healthz")


def _client_flags(cluster: ClusterSpec, user: str) -> list[Word]:
    config = pki.kubeconfig(cluster, user)
    return [
        f"--kubeconfig={config}",
        f"--authentication-kubeconfig={config}",
        f"--authorization-kubeconfig={config}",
        f"--bind-address={cluster.address}",
        "--leader-elect=false",
        # The default of 20 requests a second is meant to spare a busy API server.
        "--kube-api-qps=1000",
        "--kube-api-burst=1000",
    ]


def _kwok(cluster: ClusterSpec) -> Component:
    folder = module_folder(_KWOK, build.TOOLS["kwok"].source) / "kustomize" / "stage"
    command: list[Word] = [
        build.binary("kwok"),
        f"--kubeconfig={pki.kubeconfig(cluster, 'kwok')}",
        *(f"--config={folder / stage}.yaml" for stage in _STAGES),
        "--manage-all-nodes=false",
        "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake",
        f"--server-address={cluster.address}:10247",
    ]
    return _component(cluster, "kwok", command, f"http://{cluster.address}:10247/healthz")


def _component(cluster: ClusterSpec, name: str, command: list[Word], health: str) -> Component:
    return Component(name, cluster, command, lambda: api.healthy(health), cluster.netns)


def _admission(cluster: ClusterSpec) -> dict[str, Any]:
    """Webhooks are called with the front proxy's client certificate, for those that ask for one (docs/webhook.md)."""
    at = pki.folder(cluster)
    certificate = {key: str(at / f"{pki.FRONT_PROXY}.{ending}") for key, ending in _CERTIFICATE.items()}
    kubeconfig = cluster.folder / "webhooks.kubeconfig"
    document = {"apiVersion": "v1", "kind": "Config", "users": [{"name": "*", "user": certificate}]}
    write_atomically(kubeconfig, yaml.safe_dump(document), mode=0o600)
    calls = {
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "WebhookAdmissionConfiguration",
        "kubeConfigFile": str(kubeconfig),
    }
    plugins = [{"name": f"{kind}AdmissionWebhook", "configuration": calls} for kind in ("Validating", "Mutating")]
    return {"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AdmissionConfiguration", "plugins": plugins}


_CERTIFICATE = {"client-certificate": "crt", "client-key": "key"}
_AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        # Kubernetes' own components read all the time, which would bury what the tests look for.
        {"level": "None", "userGroups": ["system:nodes"], "verbs": ["get", "list", "watch"]},
        {"level": "None", "users": ["system:apiserver", "system:kube-scheduler", "system:kube-proxy"]},
        {"level": "None", "userGroups": ["system:serviceaccounts:kube-system"], "verbs": ["get", "list", "watch"]},
        {"level": "None", "nonResourceURLs": ["/*"]},
        {"level": "Metadata"},
    ],
}
