"""When requests first went to D pods, as the router exports it."""

from typing import Any

import pytest

from pdinference.api.names import Role
from pdinference.router.admission_metrics import MOST, AdmissionMetrics
from pdinference.router.pod import Admission, Observed
from pdinference.router.pods import Pods


class Fleet:
    """Pods whose readiness and admissions happen at given times."""

    def __init__(self) -> None:
        self.now = 0.0
        self.pods = Pods(wall_clock=lambda: self.now)

    def observe(self, *names: str, ready: bool, restarts: int = 0) -> None:
        self.pods.observe(
            {name: Observed(name, name, Role.DECODE, name, ready=ready, restarts=restarts) for name in names}
        )

    def admit(self, at: float, admission: Admission = Admission.PROVEN) -> None:
        self.now = at
        for pod in self.pods:
            self.pods.admit(pod, admission)

    def exported(self) -> dict[str, float]:
        (family,) = AdmissionMetrics(self.pods).collect()
        return {sample.labels["decode"]: sample.value for sample in family.samples}


def test_it_is_the_first_admission_after_a_start() -> None:
    fleet = Fleet()
    fleet.observe("d", ready=False)
    fleet.observe("d", ready=True)
    fleet.admit(at=11, admission=Admission.HELD)
    assert fleet.exported() == {}
    fleet.admit(at=12.5)
    fleet.admit(at=20)
    fleet.observe("d", ready=True)
    assert fleet.exported() == {"d": 12.5}


@pytest.mark.parametrize("again", [{"ready": False}, {"ready": True, "restarts": 1}])
def test_a_pod_that_starts_once_more_is_admitted_once_more(again: dict[str, Any]) -> None:
    """A restart may be all that the router sees of it."""
    fleet = Fleet()
    fleet.observe("d", ready=False)
    fleet.observe("d", ready=True)
    fleet.admit(at=12)
    fleet.observe("d", **again)
    assert fleet.exported() == {}
    fleet.observe("d", **again | {"ready": True})
    fleet.admit(at=34)
    assert fleet.exported() == {"d": 34}


def test_of_a_pod_that_was_ready_before_this_router_nothing_is_known() -> None:
    fleet = Fleet()
    fleet.observe("d", ready=True)
    fleet.admit(at=1)
    assert fleet.exported() == {}


def test_the_number_of_series_is_bounded() -> None:
    fleet, names = Fleet(), [f"d-{number}" for number in range(MOST + 1)]
    fleet.observe(*names, ready=False)
    fleet.observe(*names, ready=True)
    fleet.admit(at=3)
    assert len(fleet.exported()) == MOST
