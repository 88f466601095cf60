"""Fixtures of the command line's tests."""

from pathlib import Path

import pytest

from tests.cli.explain_command import Command
from tests.cli.kubeconfig import KUBECONFIG


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(KUBECONFIG)
    return Command(kubeconfig, monkeypatch)
