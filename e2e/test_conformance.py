"""`make conformance` on the cluster of the other tests: what its checks see, without those that other tests repeat."""

from pathlib import Path

import pytest

from e2e.conformance.bench import Bench
from e2e.conformance.checklist import REQUIREMENTS
from e2e.conformance.checks import examine
from e2e.conformance.evidence import Verdict
from e2e.conftest import Serving

pytestmark = pytest.mark.timeout(600)


@pytest.mark.parametrize(
    ("requirement", "verdict"),
    [
        ("robust_controller", Verdict.MET),
        ("disaggregated_inference", Verdict.MET),
        ("ai_service_metrics", Verdict.NOT_SHOWN),
        ("dra_support", Verdict.MET),
        ("secure_accelerator_access", Verdict.NEEDS_ACCELERATOR),
    ],
)
def test_a_check_shows_what_this_cluster_can_show(
    serving: Serving, tmp_path: Path, requirement: str, verdict: Verdict
) -> None:
    """test_autoscaling.py scales, and no Kueue is built for tests."""
    (one,) = (found for found in REQUIREMENTS if found.id == requirement)
    evidence = examine(one, Bench(serving.kubectl, serving.example, serving.images.operator), tmp_path)
    assert evidence.verdict is verdict, evidence.why
    assert all(observation.seen for observation in evidence.observations)
    assert all((tmp_path / file).stat().st_size for file in evidence.files)
