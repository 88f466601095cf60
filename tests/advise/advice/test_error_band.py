"""Which objectives are kept beyond, within and not within the error band of a prediction."""

from dataclasses import replace

import pytest

from pdinference.performance.calibration import TimeSource
from pdinference_advise.advice.errors import ERRORS
from pdinference_advise.advice.objectives import Objective, RequestObjectives
from pdinference_advise.advice.trial import Keeps, Task, run_trial
from pdinference_advise.advice.workload.trace import Trace
from pdinference_advise.simulation.arrivals import Arrival
from tests.advise.simulation.llama import TOGETHER

ERROR = 0.4
BAND = replace(ERRORS[TimeSource.EXTRAPOLATED], ttft_p99=ERROR)
LOAD = Trace.observed((Arrival(0.0, 1000, 50),), "one request")


def kept(ttft: float) -> Keeps:
    return run_trial(Task(TOGETHER, 1.0, 1.0, BAND), LOAD, RequestObjectives(99, Objective(ttft=ttft))).keeps


@pytest.mark.parametrize(
    ("times_the_prediction", "keeps"),
    [
        (1.01 / (1 - ERROR), Keeps.YES),
        (0.99 / (1 - ERROR), Keeps.PROBABLY),
        (0.99, Keeps.PERHAPS),
        (1.01 / (1 + ERROR), Keeps.PERHAPS),
        (0.99 / (1 + ERROR), Keeps.NO),
    ],
)
def test_an_error_is_a_share_of_the_measured_time(times_the_prediction: float, keeps: Keeps) -> None:
    predicted = run_trial(Task(TOGETHER, 1.0, 1.0, BAND), LOAD, RequestObjectives(99, Objective())).ttft[0]
    assert kept(times_the_prediction * predicted) is keeps
