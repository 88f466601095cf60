"""The webhook in a cluster, under load: killed, upgraded, its certificate expired. Nothing wrong gets in, nothing right
is kept out for longer than a restart takes, and no request of a client notices.
"""

import ssl
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import yaml
from cryptography import x509

from e2e.conftest import NAME, Serving
from e2e.console import say
from e2e.edits import Edits, editing
from e2e.faults import kill_operators
from e2e.install import OPERATOR_NAMESPACE, RELEASE, install_operator
from e2e.kubectl import Kubectl
from e2e.load import Load, load
from e2e.waiting import wait_until
from pdinference.api.names import OPERATOR_TLS_PORT
from pdinference.serving.authority import KeyMaterial, Lifetimes, renewed

pytestmark = pytest.mark.timeout(2400)

SECRET = f"{RELEASE}-pdinference-operator-tls"
REPLICAS = 2
RESTART_SECONDS = 240
"""Far more than a restart takes: the kubelet's 1 s, the process' 3 s, its probe's 5 s."""


@pytest.fixture
def requests(serving: Serving) -> Iterator[Load]:
    """Requests through the router, all the time."""
    with load(serving.kubectl, serving.url, NAME, serving.images.operator) as client:
        yield client


@pytest.fixture
def operator(serving: Serving) -> Kubectl:
    """kubectl in the operator's namespace."""
    return Kubectl(serving.cluster.kubeconfig, OPERATOR_NAMESPACE)


def pods(operator: Kubectl) -> dict[str, dict[str, Any]]:
    """The operator's pods that are to stay."""
    found = operator.get("pods", "-l", f"app.kubernetes.io/instance={RELEASE}")["items"]
    return {pod["metadata"]["name"]: pod for pod in found if "deletionTimestamp" not in pod["metadata"]}


def material(operator: Kubectl) -> KeyMaterial:
    held = KeyMaterial.from_secret(operator.get("secret", SECRET)["data"])
    assert held is not None
    return held


def overwrite(operator: Kubectl, *, signed: timedelta) -> x509.Certificate:
    """Put a certificate that was signed so long ago, for a day, into the Secret."""
    host = f"{SECRET}.{OPERATOR_NAMESPACE}.svc"
    old = material(operator)
    for name in ("another.host", host):  # a certificate of another host is never kept
        old = renewed(old, (name,), datetime.now(UTC) - signed, Lifetimes(server=timedelta(days=1)), published=True)
    patch = yaml.safe_dump({"data": old.as_secret()})
    operator.run("patch", "secret", SECRET, "--type=merge", "-p", patch)
    return old.certificate


def served(operator: Kubectl, pod: str) -> x509.Certificate:
    """The certificate that a pod shows to those who connect."""
    with operator.port_forward(f"pod/{pod}", OPERATOR_TLS_PORT) as url:
        host, _, port = url.removeprefix("http://").partition(":")
        return x509.load_pem_x509_certificate(ssl.get_server_certificate((host, int(port))).encode())


def restarts(operator: Kubectl) -> int:
    """How often containers were started again, once all replicas are ready; until then -1."""
    statuses = [status for pod in pods(operator).values() for status in pod["status"].get("containerStatuses", [])]
    ready = [status for status in statuses if status["ready"]]
    return sum(status["restartCount"] for status in ready) if len(ready) == REPLICAS else -1


def wait_for_answers(edits: Edits, more: int = 10) -> None:
    """Wait until so many edits one after another were answered."""
    start = len(edits.made)

    def answered() -> bool:
        recent = edits.made[start:][-more:]
        return len(recent) == more and all(edit.outcome != "unanswered" for edit in recent)

    wait_until("edits to be answered", answered, timeout=300)


def test_helm_tests_the_installation(operator: Kubectl) -> None:
    said = operator.command("helm", "test", RELEASE, "--namespace", OPERATOR_NAMESPACE, "--logs", timeout=330)
    assert "The webhook answers." in said
    assert "The metrics API answers." in said


def test_killed_pods_let_nothing_in_and_are_back_after_a_restart(
    serving: Serving, operator: Kubectl, requests: Load
) -> None:
    """The certificate expires while none of them lives: the first one to come back replaces it."""
    with editing(serving.cluster.kubeconfig, serving.kubectl.namespace, NAME) as edits:
        wait_for_answers(edits)
        before = restarts(operator)
        assert kill_operators(serving.cluster, at_most=1) == 1
        wait_for_answers(edits)
        say(f"one of {REPLICAS} killed: {edits.longest_gap():.1f} s between two right edits that got in")
        wait_until("it to be back", lambda: restarts(operator) > before)
        expired = overwrite(operator, signed=timedelta(days=2))
        assert expired.not_valid_after_utc < datetime.now(UTC)
        assert kill_operators(serving.cluster) == REPLICAS
        wait_until("them to be back", lambda: restarts(operator) > before + REPLICAS)
        wait_for_answers(edits)
    assert any(edit.outcome == "unanswered" for edit in edits.of(right=True)), "with nobody to ask, nothing gets in"
    say(f"all of them killed, certificate expired: {edits.longest_gap():.1f} s between two that got in")
    assert edits.mistakes() == []
    assert edits.longest_gap() < RESTART_SECONDS
    assert material(operator).certificate.not_valid_after_utc > datetime.now(UTC)
    requests.wait_for(more=3)
    assert requests.unanswered() == []


def test_the_webhook_serves_during_an_upgrade_with_certificate_renewal(
    serving: Serving, operator: Kubectl, requests: Load
) -> None:
    wait_until("all replicas to be ready", lambda: restarts(operator) >= 0)
    before = pods(operator).keys()
    with editing(serving.cluster.kubeconfig, serving.kubectl.namespace, NAME) as edits:
        wait_for_answers(edits)
        due = overwrite(operator, signed=timedelta(hours=20))
        assert due.not_valid_after_utc > datetime.now(UTC)
        install_operator(serving.kubectl, serving.images, "podAnnotations.upgraded=yes", "webhook.timeoutSeconds=7")
        assert not before & pods(operator).keys()
        # Every replica checks when it starts and every 15 s. Of two that renew at once, one gets a conflict.
        wait_until("the due certificate to be renewed", lambda: material(operator).certificate != due)
        current = material(operator).certificate
        wait_until(
            "every replica to serve the renewed certificate",
            lambda: all(served(operator, pod) == current for pod in pods(operator)),
        )
        wait_for_answers(edits)
    say(f"{len(edits.made)} edits during an upgrade: {edits.longest_gap():.1f} s between two right ones")
    assert {edit.words for edit in edits.of(right=True)} == {""}
    assert {edit.outcome for edit in edits.of(right=False)} == {"refused"}
    requests.wait_for(more=3)
    assert requests.unanswered() == []
