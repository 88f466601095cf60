"""kubectl and Helm on a test cluster, and the operator's account there."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from e2e.cluster import Cluster
from e2e.cluster.build import binary
from tests.charts.helm import NAMESPACE, RELEASE, Object, Values, helm

ACCOUNT = f"system:serviceaccount:{NAMESPACE}:{RELEASE}"
ELSEWHERE = "elsewhere"


class Kubernetes:
    """kubectl and Helm on one cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def kubectl(self, *arguments: str, objects: list[Object] | None = None) -> str:
        line = [str(binary("kubectl")), f"--kubeconfig={self._cluster.kubeconfig}", *arguments]
        text = "\n".join(json.dumps(item) for item in objects or [])
        result = subprocess.run(line, check=False, input=text, capture_output=True, text=True)
        assert result.returncode == 0, result.stdout + result.stderr
        assert "Warning" not in result.stderr, result.stderr
        return result.stdout

    def get(self, *arguments: str) -> Any:
        return json.loads(self.kubectl("get", *arguments, "--output=json"))

    def exists(self, *arguments: str) -> bool:
        return bool(self.kubectl("get", *arguments, "--ignore-not-found"))

    def apply(self, objects: list[Object], *options: str) -> None:
        self.kubectl("apply", "--server-side", "--filename=-", *options, objects=objects)

    def pdinference(self, *arguments: str) -> str:
        """What a command prints, with an administrator's rights."""
        line = ["pdinference", *arguments, f"--kubeconfig={self._cluster.kubeconfig}"]
        line[0] = str(Path(sys.executable).parent / line[0])
        result = subprocess.run(line, capture_output=True, text=True, check=False)
        assert result.returncode == 0, result.stderr
        return result.stdout

    def helm(self, command: str, values: Values | None = None) -> str:
        return helm(command, RELEASE, f"--kubeconfig={self._cluster.kubeconfig}", values=values)

    @contextmanager
    def installed(self) -> Iterator[None]:
        """The chart with its default values."""
        self.helm("install")
        try:
            yield
        finally:
            self.uninstall()

    def uninstall(self) -> None:
        line = [str(binary("helm")), "uninstall", RELEASE, f"--kubeconfig={self._cluster.kubeconfig}", "-n", NAMESPACE]
        subprocess.run(line, check=True, capture_output=True)

    def as_account(self) -> Any:
        """A kubeconfig of the operator's account."""
        config = yaml.safe_load(self._cluster.kubeconfig.read_text(encoding="utf-8"))
        token = self.kubectl("create", "token", RELEASE, "--namespace", NAMESPACE)
        config["users"][0]["user"] = {"token": token.strip()}
        return config

    def refusals(self, user: str) -> list[str]:
        """The requests of a user that the API server forbade, from its audit log."""
        with self._cluster.audit_log.open(encoding="utf-8") as lines:
            entries = [json.loads(line) for line in lines if f'"{user}"' in line and '"code":403' in line]
        own = [entry for entry in entries if "impersonatedUser" not in entry]
        return [f"{entry['verb']} {entry['requestURI']}" for entry in own]

    def allowed(self, namespace: str, rights: list[tuple[str, str, str]], *, name: str = "") -> list[bool]:
        """Whether the operator's account has each of these rights: API group, resource, verb."""
        reviews = [_review(namespace, group, resource, verb, name) for group, resource, verb in rights]
        answers = self.kubectl("create", "--filename=-", '--output=jsonpath={.status.allowed}{"\\n"}', objects=reviews)
        return [answer == "true" for answer in answers.split()]


def _review(namespace: str, group: str, resource: str, verb: str, name: str) -> Object:
    resource, _, subresource = resource.partition("/")
    attributes = {
        "namespace": namespace,
        "group": group,
        "resource": resource,
        "subresource": subresource,
        "verb": verb,
        "name": name,
    }
    groups = ["system:serviceaccounts", f"system:serviceaccounts:{NAMESPACE}", "system:authenticated"]
    return {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": ACCOUNT, "groups": groups, "resourceAttributes": attributes},
    }
