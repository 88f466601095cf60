"""The annotation of a Job's pod is used unchanged, or not at all."""

import pytest

from pdinference.api import names
from pdinference.cluster.state.jobs import job_state
from pdinference.planning.model_report import LONGEST_REPORT


@pytest.mark.parametrize(("length", "kept"), [(LONGEST_REPORT, LONGEST_REPORT), (LONGEST_REPORT + 1, 0)])
def test_a_report_that_is_too_long_is_not_kept(length: int, kept: int) -> None:
    annotations = {names.ANNOTATION_MODEL: "x" * length}
    state = job_state({"metadata": {"name": "x-model-1", "uid": "u", "annotations": annotations}, "spec": {}})
    assert len(state.report) == kept
