"""The operator's status as evaluated by Flux (kstatus) and Argo CD (the chart's script)."""

import json
import subprocess
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from e2e.cluster.build import binary
from pdinference.api.names import Role
from pdinference.api.v1alpha1 import Status
from pdinference.planning.status import StatusInputs
from tests.conftest import REPOSITORY
from tests.planning.rollouts import FIRST, LOOP, NO_ROOM, PULL, SECOND, with_decode
from tests.planning.statuses import ASLEEP, NOW, SERVING, STARTING, built, workload

SCRIPT = REPOSITORY / "charts" / "pdinference-operator" / "files" / "argocd-health.lua"
LATER = NOW + timedelta(hours=1)


def health(status: Status | None, *, generation: int = 3, **metadata: Any) -> tuple[str, str, str]:
    """kstatus, Argo CD's health and its message; None is the status that the CRD gives a new resource."""
    written = {"observedGeneration": 0} if status is None else status.model_dump(mode="json", by_alias=True)
    resource = {
        "apiVersion": "pdinference.io/v1alpha1",
        "kind": "PDInference",
        "metadata": {"name": "x", "namespace": "ns", "generation": generation, **metadata},
        "status": written,
    }
    answer = subprocess.run(
        [binary("health-of"), SCRIPT], input=json.dumps([resource]), capture_output=True, text=True, check=True
    )
    (found,) = json.loads(answer.stdout)
    return found["kstatus"], found["argocd"], found["message"]


def late(inputs: StatusInputs) -> Status:
    """The status when nothing has happened for an hour, which is longer than the deadline."""
    return built(inputs, built(inputs), LATER)


STOPPED = replace(
    SERVING,
    desired={**SERVING.desired, Role.DECODE: 0},
    workloads={**SERVING.workloads, Role.ROUTER: workload(Role.ROUTER, ready=0)},
)


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (built(SERVING), ("Current", "Healthy")),
        (built(ASLEEP), ("Current", "Healthy")),
        (built(STARTING), ("InProgress", "Progressing")),
        (built(SECOND), ("InProgress", "Progressing")),
        (built(with_decode(SECOND, NO_ROOM)), ("InProgress", "Progressing")),
        (built(with_decode(SECOND, PULL)), ("Failed", "Degraded")),
        (built(with_decode(SECOND, LOOP)), ("Failed", "Degraded")),
        (built(with_decode(FIRST, PULL)), ("Failed", "Degraded")),
        (late(SECOND), ("Failed", "Degraded")),
        (built(replace(SERVING, invalid="spec.x: wrong")), ("Failed", "Degraded")),
        (built(STOPPED), ("InProgress", "Suspended")),  # kstatus knows no other word for a Ready that is False
    ],
    ids=["serves", "asleep", "starts", "rolls out", "waits", "image", "crash", "first", "late", "invalid", "stopped"],
)
def test_kstatus_and_argo_cd_see_the_same(status: Status, expected: tuple[str, str]) -> None:
    assert health(status)[:2] == expected


def test_a_version_that_the_operator_has_not_seen_is_in_progress() -> None:
    assert health(None, generation=1)[:2] == ("InProgress", "Progressing")
    assert health(built(SERVING), generation=4)[:2] == ("InProgress", "Progressing")


def test_the_message_says_what_is_wrong() -> None:
    assert "cannot get the image x:1 (not found)" in health(built(with_decode(SECOND, PULL)))[2]


def test_the_page_for_gitops_shows_the_script_that_the_chart_has() -> None:
    page = (REPOSITORY / "docs" / "gitops.md").read_text()
    assert "".join(f"      {line}\n" if line else "\n" for line in SCRIPT.read_text().splitlines()) in page
