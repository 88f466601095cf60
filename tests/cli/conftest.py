"""Fixtures of the command line's tests."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.cli.explain_command import Command
from tests.cli.fake_router import FakeRouter
from tests.cli.kubeconfig import KUBECONFIG
from tests.cli.served_cluster import ServedCluster


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(KUBECONFIG)
    return Command(kubeconfig, monkeypatch)


class Served(NamedTuple):
    cluster: ServedCluster
    router: FakeRouter


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    cluster = ServedCluster()
    async with cluster.running(tmp_path), FakeRouter(cluster).running() as router:
        yield Served(cluster, router)
