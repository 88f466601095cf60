"""A control plane for all tests of the operator, and a namespace for each."""

import os
import random
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import click
import pytest

from e2e.cluster import Cluster
from pdinference.api.crd import definitions
from pdinference.api.v1alpha1 import PDInference
from pdinference.cluster.client import ApiServer, load_configuration
from tests.charts.helm import NAMESPACE
from tests.conftest import REPOSITORY, example_documents
from tests.integration.kubernetes import ELSEWHERE, Kubernetes
from tests.integration.operators import Operators
from tests.integration.registries import serving
from tests.integration.scaling_world import ScalingWorld
from tests.integration.webhook import Webhook
from tests.integration.world import World


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    # A name of its own lets two checkouts be tested at once.
    with Cluster.fresh(os.environ.get("PDINFERENCE_CLUSTER", "integration"), nodes=0) as cluster:
        yield cluster


@pytest.fixture
def registry() -> Iterator[str]:
    """A registry of the test's own."""
    with serving() as address:
        yield address


@pytest.fixture
async def world(cluster: Cluster) -> AsyncIterator[World]:
    """The API server, the CRDs, and a namespace of the test's own."""
    api = ApiServer(await load_configuration(cluster.kubeconfig), user_agent="test")
    world = World(cluster, api, f"t-{uuid.uuid4().hex[:8]}")
    for crd in definitions().values():
        await world.install_crd(crd)
    await api.create("/api/v1/namespaces", {"apiVersion": "v1", "metadata": {"name": world.namespace}})
    yield world
    # Not waited for: later tests only profit from controllers that have less to look at.
    await world.discard()
    await api.close()


@pytest.fixture
def operators(world: World, tmp_path: Path) -> Iterator[Operators]:
    """Starts operators that serve the test's namespace; none survives the test."""
    started = Operators(world, tmp_path)
    yield started
    started.kill_all()


@pytest.fixture
async def scaling(world: World, operators: Operators) -> AsyncIterator[ScalingWorld]:
    """The metrics API is registered; the test starts the operator that serves it."""
    scaling = ScalingWorld(world, operators)
    await scaling.install()
    yield scaling
    operators.kill_all()
    await scaling.close()


@pytest.fixture
async def webhook(world: World) -> AsyncIterator[Webhook]:
    """The installed chart, without a running operator."""
    webhook = Webhook(world)
    await webhook.install()
    yield webhook
    await webhook.remove()


@pytest.fixture
def chance() -> random.Random:
    """For moments at random. A test that fails shows the seed; PDINFERENCE_SEED sets it, to have the same moments."""
    seed = os.environ.get("PDINFERENCE_SEED") or os.urandom(4).hex()
    click.echo(f"PDINFERENCE_SEED={seed}")
    return random.Random(seed)  # noqa: S311 - no secret


@pytest.fixture(scope="session")
def kubernetes() -> Iterator[Kubernetes]:
    with Cluster.fresh(f"{os.environ.get('PDINFERENCE_CLUSTER', 'integration')}-chart", nodes=0) as cluster:
        kubernetes = Kubernetes(cluster)
        for name in (NAMESPACE, "models", "research", ELSEWHERE):
            metadata = {"name": name, "labels": {"pod-security.kubernetes.io/enforce": "restricted"}}
            kubernetes.apply([{"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}])
        yield kubernetes


@pytest.fixture
def installed(kubernetes: Kubernetes) -> Iterator[Kubernetes]:
    """The chart with its default values."""
    with kubernetes.installed():
        yield kubernetes


@pytest.fixture
def resource(installed: Kubernetes) -> Iterator[PDInference]:
    """An example with P and D, as the API server knows it."""
    (document,) = example_documents(REPOSITORY / "examples" / "llama-8b.yaml")
    document["metadata"]["namespace"] = "models"
    installed.apply([document])
    name = document["metadata"]["name"]
    yield PDInference.model_validate(installed.get("pdi", name, "--namespace=models"))
    # With its children: the next one has the same name, and must not find those of this one.
    installed.kubectl("delete", "pdi", name, "--namespace=models", "--cascade=foreground")
