"""How long D pods waited for their first canary, as the router exports it."""

from pdinference.api.names import Role
from pdinference.router.admission_metrics import MOST, AdmissionMetrics
from pdinference.router.pod import Admission, Observed
from pdinference.router.pods import Pods


class Fleet:
    """Pods whose readiness and admissions happen at given times."""

    def __init__(self) -> None:
        self.now = 0.0
        self.pods = Pods(lambda: self.now)

    def observe(self, *names: str, ready: bool, at: float) -> None:
        self.now = at
        self.pods.observe({name: Observed(name, name, Role.DECODE, name, ready=ready) for name in names})

    def admit(self, at: float, admission: Admission = Admission.PROVEN) -> None:
        self.now = at
        for pod in self.pods:
            self.pods.admit(pod, admission)

    def exported(self) -> dict[str, float]:
        (family,) = AdmissionMetrics(self.pods).collect()
        return {sample.labels["decode"]: sample.value for sample in family.samples}


def test_it_is_the_time_from_readiness_to_the_first_admission() -> None:
    fleet = Fleet()
    fleet.observe("d", ready=False, at=0)
    fleet.observe("d", ready=True, at=10)
    assert fleet.exported() == {}
    fleet.admit(at=11, admission=Admission.HELD)
    assert fleet.exported() == {}
    fleet.admit(at=12.5)
    fleet.admit(at=20)
    fleet.observe("d", ready=True, at=30)
    assert fleet.exported() == {"d": 2.5}


def test_a_pod_that_becomes_ready_once_more_waits_once_more() -> None:
    fleet = Fleet()
    for ready, at in ((False, 0), (True, 10)):
        fleet.observe("d", ready=ready, at=at)
    fleet.admit(at=12)
    for ready, at in ((False, 20), (True, 30)):
        fleet.observe("d", ready=ready, at=at)
    assert fleet.exported() == {}
    fleet.admit(at=34)
    assert fleet.exported() == {"d": 4}


def test_of_a_pod_that_was_ready_before_this_router_nothing_is_known() -> None:
    fleet = Fleet()
    fleet.observe("d", ready=True, at=0)
    fleet.admit(at=1)
    assert fleet.exported() == {}


def test_the_number_of_series_is_bounded() -> None:
    fleet, names = Fleet(), [f"d-{number}" for number in range(MOST + 1)]
    fleet.observe(*names, ready=False, at=0)
    fleet.observe(*names, ready=True, at=2)
    fleet.admit(at=3)
    assert len(fleet.exported()) == MOST
