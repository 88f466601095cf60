"""One cluster with the operator and the tiny example for all tests of serving."""

import json
import os
from collections.abc import Generator, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pytest

from e2e import demo, programs
from e2e.cluster import Cluster
from e2e.hangs import pytest_exception_interact, pytest_timeout_set_timer  # noqa: F401 - hooks of pytest
from e2e.install import (
    LOCAL_VALUES,
    ImageReferences,
    apply,
    create_namespace,
    example,
    install_operator,
    local_references,
)
from e2e.kubectl import Kubectl, KubectlError
from e2e.local import cluster_with_images
from e2e.waiting import wait_ready, wait_until
from pdinference.api.names import LABEL_ROLE, Role

NAMESPACE = demo.NAMESPACE
"""As after the demo, so that pages of the documentation can be run as they are (test_pages.py)."""
NAME = demo.NAME
_DRAIN_SECONDS = 40
"""The least that a resource may have, as D pods wait for a quarter of it. test_tiers.py has the default."""
STEP_SECONDS = "0.02"
"""Of an engine, as on a GPU: requests under way then leave most of two cores to what the test waits for."""
_SHOWN = 60
"""Lines of each thing that is shown of a cluster in which a test failed."""
_LONG_SECONDS = 15
"""Of a request whose line in the router's log is one of them."""


@dataclass(frozen=True)
class Serving:
    """A cluster that serves the tiny model.

    Attributes:
        cluster: The local cluster.
        kubectl: In the namespace of the model.
        images: What was installed.
        url: Where pods reach the model.
    """

    cluster: Cluster
    kubectl: Kubectl
    images: ImageReferences
    url: str

    @property
    def example(self) -> dict[str, Any]:
        """The example as it was first applied."""
        return quick_example(self.images)

    def resource(self) -> dict[str, Any]:
        """The resource as it is now."""
        found: dict[str, Any] = self.kubectl.get("pdi", NAME)
        return found


def quick_example(images: ImageReferences) -> dict[str, Any]:
    """The example. Its pods end sooner than by default, and several D pods run on different nodes."""
    document = example(images)
    document["spec"]["engine"]["env"]["VLLM_CPU_STEP_SECONDS"] = STEP_SECONDS
    document["spec"]["rollout"] = {"drainSeconds": _DRAIN_SECONDS}
    spread = {"topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule"}
    document["spec"]["decode"]["placement"] = {"topologySpread": [spread]}
    return document


def started(cluster: Cluster, images: ImageReferences) -> Serving:
    """Install the operator from its chart, apply the tiny example, and wait until it is Ready."""
    kubectl = Kubectl(cluster.kubeconfig, NAMESPACE)
    install_operator(kubectl, images, *LOCAL_VALUES)
    create_namespace(kubectl)
    apply(kubectl, quick_example(images))
    wait_ready(kubectl, NAME)
    return Serving(cluster, kubectl, images, f"http://{NAME}.{NAMESPACE}.svc")


@pytest.fixture(scope="session")
def serving() -> Iterator[Serving]:
    """A cluster of two nodes that enforce NetworkPolicies, the operator from its chart, and the tiny example, Ready.

    With PDINFERENCE_KEEP=1 the cluster stays up for the next run.
    """
    # A name of its own lets two checkouts be tested at once.
    name = os.environ.get("PDINFERENCE_CLUSTER", "e2e")
    keep = os.environ.get("PDINFERENCE_KEEP") == "1"
    if not keep:
        Cluster.discard(name)
    try:
        cluster, built = cluster_with_images(name, policies=True)
        yield started(cluster, local_references(built))
    finally:
        if not keep:
            Cluster.discard(name)


@pytest.fixture
def without_autoscaling_after(serving: Serving) -> Iterator[None]:
    """Remove the autoscaling that a test adds, also if it fails. That replaces no pod."""
    revision = serving.resource()["status"]["revision"]
    yield
    apply(serving.kubectl, serving.example)
    wait_until("no HPA", lambda: not serving.kubectl.get("hpa")["items"])
    if serving.resource()["status"]["revision"] != revision:
        pytest.fail("Autoscaling is no part of the pods, but the revision changed.")


def pytest_configure() -> None:
    """Let the tests start only what a fresh machine has."""
    programs.restrict()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the pages first: their readers have a resource without a history."""
    items.sort(key=lambda item: item.path.name != "test_pages.py")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show the cluster beside a failure, because it is gone when somebody reads of it."""
    report = yield
    serving = item.funcargs.get("serving") if isinstance(item, pytest.Function) else None
    if report.failed and isinstance(serving, Serving):
        with suppress(KubectlError):
            for words in (("get", "pods", "-A", "-o", "wide"), ("get", "events", "-A", "--sort-by=.lastTimestamp")):
                lines = serving.kubectl.run(*words).splitlines()
                report.sections.append((f"kubectl {' '.join(words)}", "\n".join([*lines[:1], *lines[1:][-_SHOWN:]])))
            said = serving.kubectl.run("logs", f"-l{LABEL_ROLE}={Role.ROUTER}", "--tail=-1", "--timestamps")
            shown = [line for line in said.splitlines() if not _is_of_a_quick_request(line)]
            report.sections.append(("router pods, without quick requests", "\n".join(shown[-_SHOWN:])))
    return report


def _is_of_a_quick_request(line: str) -> bool:
    """Whether a line of the router's log, with its time, is of a request that did not wait for long."""
    try:
        logged: dict[str, Any] = json.loads(line.partition(" ")[2])
    except ValueError:
        return False
    stages = (seconds for name, seconds in logged.items() if name.endswith("_seconds"))
    return bool(logged.get("outcome") == "answered" and sum(stages) < _LONG_SECONDS)
