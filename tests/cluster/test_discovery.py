"""Waiting for a kind whose CRD may be installed later."""

import asyncio

import pytest

from pdinference.cluster import discovery
from pdinference.cluster.discovery import ServedKinds
from pdinference.cluster.errors import ApiError
from pdinference.cluster.kinds import HTTP_ROUTE, SCALED_OBJECT
from tests.cluster.fake_api import FakeApi, Json
from tests.waiting import LONG_S

GROUP = "/apis/gateway.networking.k8s.io/v1"


class Discovery(FakeApi):
    """Answers discovery requests with these, in order, and then with the last one."""

    def __init__(self, *answers: Json | Exception) -> None:
        super().__init__()
        self.answers = list(answers)

    async def get(self, path: str, *, accept: str = "application/json", **query: str) -> Json:
        assert path == GROUP
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


def resources(*plurals: str) -> Json:
    return {"resources": [{"name": plural} for plural in plurals]}


@pytest.fixture(autouse=True)
def _without_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discovery, "_RETRY_S", 0)


async def test_a_kind_that_is_served_is_not_waited_for() -> None:
    await asyncio.wait_for(ServedKinds(Discovery(resources("httproutes"))).until_served(HTTP_ROUTE), LONG_S)


async def test_an_api_server_without_an_answer_is_asked_again() -> None:
    api = Discovery(ApiError(0, "Unreachable", "restarting"), ApiError(503, "", ""), resources("httproutes"))
    await asyncio.wait_for(ServedKinds(api).until_served(HTTP_ROUTE), LONG_S)


@pytest.mark.parametrize(
    "answer",
    [ApiError(404, "NotFound", "no such group"), {"resources": None}, resources("gateways", "httproutes/status")],
)
async def test_a_kind_that_is_not_served_is_asked_for_once_and_found_by_its_first_object(
    answer: Json | ApiError,
) -> None:
    api = Discovery(answer, AssertionError("asked twice"))
    kinds = ServedKinds(api)
    waiting = asyncio.create_task(kinds.until_served(HTTP_ROUTE))
    kinds.applied(SCALED_OBJECT.name)
    await asyncio.wait([waiting], timeout=0.05)
    assert not waiting.done()
    kinds.applied(HTTP_ROUTE.name)
    await asyncio.wait_for(waiting, LONG_S)
