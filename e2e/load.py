"""Requests from inside the cluster, through DNS, Service and kube-proxy, while something happens to the operator."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from e2e.kubectl import Kubectl
from e2e.waiting import wait_until

_CLIENT = Path(__file__).with_name("load_client.py")
_MAX_SECONDS = 600


@dataclass(frozen=True)
class Shape:
    """What is sent.

    Attributes:
        clients: Requests at a time.
        words: Length of a prompt, which is different each time, so that nothing comes from a prefix cache. The default
            is long enough for several KV blocks.
        tokens: Length of an answer.
    """

    clients: int = 1
    words: int = 130
    tokens: int = 48


@dataclass(frozen=True)
class Load:
    """A client at work.

    Attributes:
        kubectl: The cluster.
        pod: The client's pod.
    """

    kubectl: Kubectl
    pod: str

    def results(self) -> list[dict[str, Any]]:
        """What became of the requests so far."""
        return [json.loads(line) for line in self.kubectl.run("logs", self.pod).splitlines()]

    def answered(self) -> int:
        """Number of requests answered so far."""
        return sum(result["ok"] for result in self.results())

    def failures(self) -> list[str]:
        """What the failed ones said."""
        return [result["error"] for result in self.results() if not result["ok"]]

    def wait_for(self, more: int) -> None:
        """Wait until so many more requests were answered."""
        goal = self.answered() + more
        wait_until(f"{more} more answers", lambda: self.answered() >= goal, timeout=120)


@contextmanager
def load(
    kubectl: Kubectl, url: str, model: str, image: str, pod: str = "load", *, shape: Shape = Shape()
) -> Iterator[Load]:
    """Run a client; `image` is any with Python 3."""
    kubectl.run("delete", "pod,configmap", pod, "--ignore-not-found", "--now")
    kubectl.run("create", "configmap", pod, f"--from-file=client.py={_CLIENT}")
    kubectl.run("apply", "-f", "-", stdin=json.dumps(_pod(pod, image, url, model, shape)))
    running = Load(kubectl, pod)
    try:
        wait_until(
            "the first answer", lambda: _phase(kubectl, pod) == "Running" and running.answered() > 0, timeout=120
        )
        yield running
    finally:
        kubectl.run("delete", "pod,configmap", pod, "--ignore-not-found", "--now")


def _phase(kubectl: Kubectl, pod: str) -> str:
    return kubectl.run("get", "pod", pod, "-o", "jsonpath={.status.phase}")


def _pod(name: str, image: str, url: str, model: str, shape: Shape) -> dict[str, Any]:
    amounts = map(str, (_MAX_SECONDS, shape.clients, shape.words, shape.tokens))
    container = {
        "name": "client",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["python3", "/client/client.py", url, model, *amounts],
        "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": [{"name": "client", "mountPath": "/client"}],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": 65532,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [container],
            "volumes": [{"name": "client", "configMap": {"name": name}}],
        },
    }
