"""Fixtures of the command line's tests."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from click.testing import CliRunner, Result

from pdinference.cli import main
from pdinference.cluster import client
from tests.cli.explain_command import Command
from tests.cli.fake_router import FakeRouter
from tests.cli.kubeconfig import KUBECONFIG
from tests.cli.served_cluster import ServedCluster
from tests.inference.world import World


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(KUBECONFIG)
    return Command(kubeconfig, monkeypatch)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Runs a command on the API server of a world, which then sees what it wrote."""
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(KUBECONFIG)

    def runs(world: World, *words: str) -> Result:
        monkeypatch.setattr(client, "ApiServer", lambda *_, **__: world.api)
        result = CliRunner().invoke(main, [*words, "-n", "ns", "--kubeconfig", str(kubeconfig)])
        world.sync()
        return result

    return runs


class Served(NamedTuple):
    cluster: ServedCluster
    router: FakeRouter


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    cluster = ServedCluster()
    async with cluster.running(tmp_path), FakeRouter(cluster).running() as router:
        yield Served(cluster, router)
