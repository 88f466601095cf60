"""Pages of the documentation work as they are written, on the cluster that the demo leaves."""

import os
from pathlib import Path

import pytest

from e2e.cluster.paths import binaries
from e2e.conftest import NAME, Serving
from e2e.load import load
from e2e.pages import DOCUMENTS, PAGES, page
from e2e.waiting import conditions, wait_ready

pytestmark = pytest.mark.timeout(2400)

_SECONDS = 600
"""For all commands of a page; they take less than a minute."""
_PROGRAMS = Path(__file__).parent.parent / ".venv" / "bin"


_MODES = "p-d-or-not"
"""It runs P and D, D alone, and P and D again."""


@pytest.mark.parametrize("name", [name for name in PAGES if name != _MODES])
def test_the_commands_of_a_page_work_as_written(serving: Serving, tmp_path: Path, name: str) -> None:
    follow(serving, tmp_path, name)


def test_the_mode_changes_and_back_as_written_and_no_request_fails(serving: Serving, tmp_path: Path) -> None:
    with load(serving.kubectl, serving.url, NAME, serving.images.operator) as client:
        follow(serving, tmp_path, _MODES)
        client.wait_for(more=5)
        assert client.unanswered() == []
    found = conditions(serving.resource())
    assert found["ParameterReady"]["reason"] == "AllReady"
    assert "DecodeComputesPrompts" not in found, "D answered alone, which is no fallback"


def follow(serving: Serving, tmp_path: Path, name: str) -> None:
    """Run the commands of a page."""
    kubeconfig = tmp_path / "kubeconfig"  # pages set the namespace of its context
    kubeconfig.write_text(serving.cluster.kubeconfig.read_text(encoding="utf-8"), encoding="utf-8")
    environment = {
        "HOME": str(tmp_path),
        "KUBECONFIG": str(kubeconfig),
        "LANG": "C.UTF-8",
        "PATH": os.pathsep.join(map(str, (binaries(), _PROGRAMS))),
    }
    before = serving.resource()["spec"]
    folder = tmp_path / "clone"
    folder.mkdir()
    page(DOCUMENTS / f"{name}.md").run(folder, environment, timeout=_SECONDS)
    assert serving.resource()["spec"] == before, "A page restores what it changes."
    wait_ready(serving.kubectl, NAME)
