"""Requests from inside the cluster, through DNS, Service and kube-proxy, while something happens."""

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

from e2e.console import say
from e2e.kubectl import Kubectl
from e2e.load_client import Settings
from e2e.load_report import Report, report
from e2e.waiting import WaitTimeoutError, wait_until

_CLIENT = Path(__file__).with_name("load_client.py")
_MAX_SECONDS = 900
DEADLINE_SECONDS = 120
"""Of each request. Answers take a second or two, and some ten on a busy machine; one that hangs takes minutes."""
_STOP = "import os, signal; os.kill(1, signal.SIGTERM)"


@dataclass(frozen=True)
class Shape:
    """What is sent.

    Attributes:
        clients: Requests at a time.
        words: Lengths of prompts, in turn. Each prompt is different, so that nothing comes from a prefix cache. The
            default is one that is long enough for several KV blocks.
        tokens: Length of an answer.
        pause: Seconds between an answer and the client's next request.
    """

    clients: int = 1
    words: tuple[int, ...] = (130,)
    tokens: int = 48
    pause: float = 0.2


CALM: Final = Shape(pause=0.6)
"""Leaves the starts of pods most of two cores."""


@dataclass(frozen=True)
class Load:
    """A client at work.

    Attributes:
        kubectl: The cluster.
        pod: The client's pod.
        settings: What it sends.
    """

    kubectl: Kubectl
    pod: str
    settings: Settings

    def report(self) -> Report:
        """What became of the requests so far."""
        return report(map(json.loads, self.kubectl.run("logs", self.pod).splitlines()))

    def again(self, requests: Iterable[str]) -> Report:
        """Send requests once more, now that nothing happens."""
        words = ("python3", "/client/client.py", json.dumps(asdict(self.settings)), *requests)
        lines = self.kubectl.run("exec", self.pod, "--", *words, timeout=5 * DEADLINE_SECONDS).splitlines()
        return report(map(json.loads, lines))

    def wait_for(self, more: int) -> None:
        """Wait until so many more requests were answered."""
        goal = self.report().answered + more
        wait_until(f"{more} more answers", lambda: self.report().answered >= goal, timeout=2 * DEADLINE_SECONDS)

    def unanswered(self) -> list[str]:
        """What became of all requests that were not answered; none begins from now on.

        Waits until those under way have ended. The client ends each at its deadline, so that one that is open after it
        was lost. A time without any answer is a failure too: the client itself may have stopped.
        """
        self.kubectl.run("exec", self.pod, "--", "python3", "-c", _STOP)
        with suppress(WaitTimeoutError):
            wait_until("the last requests", lambda: not self.report().open, timeout=DEADLINE_SECONDS + 30)
        found = self.report()
        counted = ", ".join(f"{number} {outcome}" for outcome, number in sorted(found.outcomes.items()))
        say(
            f"{found.began} requests: {counted}, {len(found.open)} open, {found.prefilled_by_decode} prompts computed "
            f"by D; {found.longest_gap:.1f} s at most without an answer"
        )
        silence = [f"{found.longest_gap:.0f} s without an answer"] if found.longest_gap > DEADLINE_SECONDS else []
        return [*found.failures, *(f"{request} is open" for request in sorted(found.open)), *silence]


@contextmanager
def load(
    kubectl: Kubectl, url: str, model: str, image: str, pod: str = "load", *, shape: Shape = CALM, node: str = ""
) -> Iterator[Load]:
    """Run a client; `image` is any with Python 3. Without a `node`, the scheduler chooses one."""
    kubectl.run("delete", "pod,configmap", pod, "--ignore-not-found", "--now")
    kubectl.run("create", "configmap", pod, f"--from-file=client.py={_CLIENT}")
    settings = Settings(
        url, model, _MAX_SECONDS, shape.clients, shape.words, shape.tokens, shape.pause, DEADLINE_SECONDS, uuid4().hex
    )
    kubectl.run("apply", "-f", "-", stdin=json.dumps(_pod(pod, image, settings, node)))
    running = Load(kubectl, pod, settings)
    try:
        wait_until(
            "the first answer", lambda: _phase(kubectl, pod) == "Running" and running.report().answered > 0, timeout=120
        )
        yield running
    finally:
        # The next client waits until this one is gone.
        kubectl.run("delete", "pod,configmap", pod, "--ignore-not-found", "--now", "--wait=false")


def _phase(kubectl: Kubectl, pod: str) -> str:
    return kubectl.run("get", "pod", pod, "-o", "jsonpath={.status.phase}")


def _pod(name: str, image: str, settings: Settings, node: str) -> dict[str, Any]:
    container = {
        "name": "client",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["python3", "/client/client.py", json.dumps(asdict(settings))],
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
            "nodeSelector": {"kubernetes.io/hostname": node} if node else {},
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
