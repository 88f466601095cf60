"""Waiting for a kind whose CRD may be installed later."""

import asyncio

import pytest

from pdinference.cluster import discovery
from pdinference.cluster.discovery import until_served
from pdinference.cluster.errors import ApiError
from pdinference.cluster.kinds import HTTP_ROUTE
from tests.cluster.fake_api import FakeApi, Json

GROUP = "/apis/gateway.networking.k8s.io/v1"


class Discovery(FakeApi):
    """Answers discovery requests with these, in order, and then with the last one."""

    def __init__(self, *answers: Json | ApiError) -> None:
        super().__init__()
        self.answers = list(answers)

    async def get(self, path: str, *, accept: str = "application/json", **query: str) -> Json:
        assert path == GROUP
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, ApiError):
            raise answer
        return answer


def resources(*plurals: str) -> Json:
    return {"resources": [{"name": plural} for plural in plurals]}


@pytest.fixture(autouse=True)
def _without_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discovery, "_INTERVAL_S", 0)


async def test_it_ends_once_the_kind_is_served() -> None:
    """Not with the group alone, and whatever the API server answers until then."""
    api = Discovery(
        ApiError(404, "NotFound", "no such group"),
        ApiError(0, "Unreachable", "restarting"),
        {"resources": None},
        resources("gateways", "httproutes/status"),
        resources("gateways", "httproutes"),
    )
    await asyncio.wait_for(until_served(api, HTTP_ROUTE), 10)
    assert api.answers == [resources("gateways", "httproutes")]


async def test_a_kind_that_is_served_is_not_waited_for() -> None:
    await asyncio.wait_for(until_served(Discovery(resources("httproutes")), HTTP_ROUTE), 10)
