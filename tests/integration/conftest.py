"""A control plane for all tests of the operator, and a namespace for each."""

import os
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from e2e.cluster import Cluster
from pdinference.api.crd import definitions
from pdinference.cluster.client import ApiServer, load_configuration
from tests.integration.operator_process import OperatorProcess
from tests.integration.world import World


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    # A name of its own lets two checkouts be tested at once.
    with Cluster.fresh(os.environ.get("PDINFERENCE_CLUSTER", "integration"), nodes=0) as cluster:
        yield cluster


@pytest.fixture
async def world(cluster: Cluster) -> AsyncIterator[World]:
    """The API server, the CRDs, and a namespace of the test's own."""
    api = ApiServer(await load_configuration(cluster.kubeconfig), user_agent="test")
    world = World(cluster, api, f"t-{uuid.uuid4().hex[:8]}")
    for crd in definitions().values():
        await world.install_crd(crd)
    await api.create("/api/v1/namespaces", {"apiVersion": "v1", "metadata": {"name": world.namespace}})
    yield world
    await api.close()


@pytest.fixture
def operators(world: World, tmp_path: Path) -> Iterator["Operators"]:
    """Starts operators that serve the test's namespace; none survives the test."""
    started = Operators(world, tmp_path)
    yield started
    started.kill_all()


class Operators:
    """Makes operator processes."""

    def __init__(self, world: World, folder: Path) -> None:
        self._world = world
        self._folder = folder
        self._processes: list[OperatorProcess] = []

    async def start(self, *flags: str, kubeconfig: Path | None = None, elect: bool = False) -> OperatorProcess:
        """Start one and wait until it is ready."""
        number = len(self._processes)
        leadership = (
            ["--leader-elect", f"--lease-namespace={self._world.namespace}"] if elect else ["--no-leader-elect"]
        )
        process = OperatorProcess(
            [
                f"--namespace={self._world.namespace}",
                f"--kubeconfig={kubeconfig or self._world.cluster.kubeconfig}",
                *leadership,
                *flags,
            ],
            log=self._folder / f"operator-{number}.log",
        )
        self._processes.append(process)
        await process.until_ready()
        return process

    def kill_all(self) -> None:
        for process in self._processes:
            process.kill()
