"""Runs Helm on the chart."""

import json
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from e2e.cluster.build import binary

CHART = Path(__file__).parents[2] / "charts" / "pdinference-operator"
RELEASE = "pdinference-operator"
NAMESPACE = "pdinference-system"
OLDEST_KUBERNETES = "1.30.0"

Values = dict[str, Any]
Object = dict[str, Any]


class HelmError(Exception):
    """Helm refused; its own words."""


def helm(command: str, *arguments: str, chart: Path = CHART, values: Values | None = None) -> str:
    """Run a command of Helm that takes a chart and values, on files alone or with the cluster of `--kubeconfig`.

    Raises:
        HelmError: Helm refused.
        ClusterError: There is no Helm.
    """
    line: list[str | Path] = [binary("helm"), command, *arguments, chart, "--namespace", NAMESPACE, "--values", "-"]
    result = subprocess.run(line, check=False, capture_output=True, text=True, input=json.dumps(values or {}))
    if result.returncode:
        raise HelmError(result.stdout + result.stderr)
    return result.stdout


def rendered(
    values: Values | None = None, *, chart: Path = CHART, release: str = RELEASE, kubernetes: str = OLDEST_KUBERNETES
) -> list[Object]:
    """The objects that an installation creates, for a Kubernetes version, which Helm needs without a cluster."""
    output = _template(json.dumps(values or {}), chart, release, kubernetes)
    return [item for item in yaml.load_all(output, yaml.CSafeLoader) if item and not _of_test(item)]


def rendered_test(values: Values | None = None) -> list[Object]:
    """The objects that `helm test` creates."""
    output = _template(json.dumps(values or {}), CHART, RELEASE, OLDEST_KUBERNETES)
    return [item for item in yaml.load_all(output, yaml.CSafeLoader) if item and _of_test(item)]


def _of_test(item: Object) -> bool:
    return bool((item["metadata"].get("annotations") or {}).get("helm.sh/hook") == "test")


@cache
def _template(values: str, chart: Path, release: str, kubernetes: str) -> str:
    return helm("template", release, f"--kube-version={kubernetes}", chart=chart, values=json.loads(values))


def of_kind(objects: list[Object], kind: str) -> list[Object]:
    """The objects of one kind."""
    return [item for item in objects if item["kind"] == kind]


def only(objects: list[Object], kind: str, *, ending: str = "") -> Object:
    """The only object of a kind whose name ends so."""
    (found,) = (item for item in of_kind(objects, kind) if item["metadata"]["name"].endswith(ending))
    return found


def arguments_here(objects: list[Object], folder: Path) -> list[str]:
    """The operator's arguments, with the policy that they name as a file in a folder of this machine."""
    (container,) = only(objects, "Deployment")["spec"]["template"]["spec"]["containers"]
    (mount,) = (mount for mount in container["volumeMounts"] if mount["name"] == "policy")
    for name, text in only(objects, "ConfigMap", ending="-policy")["data"].items():
        (folder / name).write_text(text, encoding="utf-8")
    return [argument.replace(f"--policy={mount['mountPath']}", f"--policy={folder}") for argument in container["args"]]


NAMESPACED: Values = {"watchNamespaces": ["models", "research"]}
EVERYTHING: Values = {
    "replicas": 3,
    "image": {
        "repository": "registry.example:5000/team/operator",
        "digest": "sha256:" + "0" * 64,
        "pullPolicy": "Always",
    },
    "imagePullSecrets": [{"name": "registry"}],
    "router": {"image": {"repository": "registry.example:5000/team/router", "tag": "1.2.3"}},
    "model": {"image": {"tag": "1.2.2"}},
    "allowedHostPaths": [
        {"path": "/srv/models"},
        {"path": "/srv/cache", "readOnly": False, "namespaces": ["models", "research"]},
    ],
    "policy": {"volumeTypes": ["nfs"], "secrets": ["side-car-*"], "tolerations": ["*", ""]},
    "workers": 16,
    "resyncSeconds": 3600,
    "log": {"format": "plain", "level": "debug"},
    "extraEnv": [
        {"name": "HTTPS_PROXY", "value": "http://proxy:3128"},
        {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
    ],
    "crds": {"annotations": {"argocd.argoproj.io/sync-options": "Prune=false"}},
    "serviceAccount": {"name": "operator", "annotations": {"example.com/role": "serving"}},
    "podAnnotations": {"example.com/team": "serving"},
    "podLabels": {"team": "serving"},
    "priorityClassName": "system-cluster-critical",
    "nodeSelector": {"kubernetes.io/os": "linux"},
    "tolerations": [{"key": "control-plane", "operator": "Exists", "effect": "NoSchedule"}],
    "affinity": {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [{"key": "gpu", "operator": "DoesNotExist"}]}]
            }
        }
    },
    "topologySpreadConstraints": [
        {
            "maxSkew": 1,
            "topologyKey": "kubernetes.io/hostname",
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": {"app.kubernetes.io/name": "pdinference-operator"}},
        }
    ],
    "metrics": {"service": {"annotations": {"prometheus.io/scrape": "true"}}},
    "networkPolicy": {"enabled": True, "from": [{"namespaceSelector": {"matchLabels": {"team": "monitoring"}}}]},
    "webhook": {"timeoutSeconds": 3, "certManager": {"enabled": False, "issuerRef": {"name": "ca"}}},
    "fullnameOverride": "pdi",
}
CLIENT_CERTIFICATE: Values = {"webhook": {"clientCertificate": {"enabled": True}}}
OWN_CLIENT_CA: Values = {
    "webhook": {"clientCertificate": {"enabled": True, "caConfigMap": "webhook-ca", "names": ["kube-apiserver"]}},
    "networkPolicy": {"apiServer": [{"ipBlock": {"cidr": "10.0.0.0/28"}}]},
}
POLICY: Values = {
    "admissionPolicy": {"protectedNamespaces": ["payments"], "ownNamespace": True},
    "allowedHostPaths": [{"path": "/srv/models"}, {"path": "/data"}],
}
CERT_MANAGER: Values = {"webhook": {"certManager": {"enabled": True}}}
WITH_MONITOR: Values = {
    "metrics": {"serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}}},
    "dashboard": {"enabled": True, "labels": {"team": "serving"}},
    "prometheusRule": {"enabled": True, "labels": {"release": "prometheus"}},
}
BATCH_CONFIG_MAPS: Values = {"rbac": {"batchConfigMaps": True}}
KEDA: Values = {"autoscaling": {"keda": {"enabled": True, "prometheus": "http://prometheus.monitoring:9090"}}}
WITH_PROMETHEUS: Values = {
    "metricsApi": {"enabled": False},
    "autoscaling": {
        "keda": {
            "enabled": True,
            "prometheus": "https://thanos.monitoring:9090",
            "authentication": {"kind": "TriggerAuthentication", "name": "thanos", "modes": ["tls", "bearer"]},
        },
        "prometheusAdapter": {"enabled": True, "namespace": "monitoring"},
        "podMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
        "prometheusNamespace": "monitoring",
    },
}
WITHOUT_EXTRAS: Values = {
    "replicas": 1,
    "webhook": {"enabled": False},
    "metricsApi": {"enabled": False},
    "leaderElection": {"enabled": False},
    "crds": {"install": False},
    "rbac": {"create": False},
    "admissionPolicy": {"enabled": False},
    "networkPolicy": {"enabled": False},
    "serviceAccount": {"create": False},
    "metrics": {"service": {"enabled": False}},
}
VALUE_SETS: dict[str, Values] = {
    "default": {},
    "namespaced": NAMESPACED,
    "everything": EVERYTHING,
    "with-monitor": WITH_MONITOR,
    "cert-manager": CERT_MANAGER,
    "keda": KEDA,
    "batch-config-maps": BATCH_CONFIG_MAPS,
    "policy": POLICY,
    "client-certificate": CLIENT_CERTIFICATE,
    "own-client-ca": OWN_CLIENT_CA,
    "with-prometheus": WITH_PROMETHEUS,
    "without-extras": WITHOUT_EXTRAS,
}
"""Ways to install the chart which together render every line of it."""
