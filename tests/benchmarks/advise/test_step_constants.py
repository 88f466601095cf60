"""The constants of the H200 that come from measured steps."""

import pytest

from benchmarks.advise.step_constants import constants_of, determined
from pdinference.performance.calibration import H200


def test_the_built_in_constants_are_those_of_the_measured_steps() -> None:
    found, built_in = dict(constants_of(determined())), dict(constants_of(H200))
    assert built_in == pytest.approx(found, rel=0.01)
