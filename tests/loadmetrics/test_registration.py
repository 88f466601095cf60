"""Detection of the server of external metrics in the cluster."""

from typing import Any

import pytest

from pdinference.cluster.errors import ApiError
from pdinference.loadmetrics.metrics_api.registration import API_SERVICE, OFF, Registration, problem_of
from pdinference.serving import api_service
from tests.cluster.fake_api import FakeApi

OURS = ("system", "pdinference-operator-tls")
PATH = f"/apis/apiregistration.k8s.io/v1/apiservices/{API_SERVICE}"


def registered(namespace: str = OURS[0], name: str = OURS[1], **status: Any) -> dict[str, Any]:
    service = {"namespace": namespace, "name": name}
    return {"metadata": {"name": API_SERVICE}, "spec": {"service": service}, "status": status}


def available(status: str, message: str = "") -> dict[str, Any]:
    return registered(conditions=[{"type": "Available", "status": status, "message": message}])


@pytest.mark.parametrize(
    ("live", "reason", "word"),
    [
        (None, "MetricsApiMissing", "helm upgrade"),
        (registered("keda", "keda-metrics"), "MetricsApiElsewhere", "keda/keda-metrics"),
        (available("False", "no endpoints"), "MetricsApiUnavailable", "no endpoints"),
    ],
)
def test_what_is_wrong_is_named(live: Any, reason: str, word: str) -> None:
    problem = problem_of(live, OURS)
    assert problem is not None
    assert problem[0] == reason
    assert word in problem[1]


@pytest.mark.parametrize("live", [registered(), available("True"), available("Unknown")])
def test_ours_is_no_problem(live: Any) -> None:
    assert problem_of(live, OURS) is None


async def test_a_change_is_told_once() -> None:
    api, changes = FakeApi(), []
    registration = Registration(api, OURS, on_change=lambda: changes.append(1))
    await registration.refresh()
    await registration.refresh()
    assert registration.problem is not None
    api.put(PATH, registered())
    await registration.refresh()
    assert registration.problem is None
    assert len(changes) == 2


async def test_an_api_server_that_is_away_changes_nothing() -> None:
    api = FakeApi()
    api.put(PATH, registered())
    registration = Registration(api, OURS)
    await registration.refresh()
    api.fail("get", PATH, ApiError(0, "Unreachable", "gone"))
    await registration.refresh()
    assert registration.problem is None


def test_an_operator_without_the_api_says_so() -> None:
    assert Registration(FakeApi(), None).problem == OFF


def test_the_ca_bundle_of_somebody_elses_api_service_is_left_alone() -> None:
    holder = api_service(API_SERVICE, OURS)
    assert holder.filled(registered(), {"caBundle": "Q0E="}) == {"spec": {"caBundle": "Q0E="}}
    assert holder.filled(registered("keda", "keda-metrics"), {"caBundle": "Q0E="}) == {}
