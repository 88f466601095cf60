"""Only users who may list a metric in a namespace get it."""

from typing import TYPE_CHECKING, Any, cast

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from prometheus_client import CollectorRegistry

from pdinference.cluster.cache import Cache
from pdinference.cluster.errors import ApiError
from pdinference.loadmetrics.metrics import ScrapeMetrics
from pdinference.loadmetrics.metrics_api.access import AccessChecker
from pdinference.loadmetrics.metrics_api.api import MetricsApi
from pdinference.loadmetrics.metrics_api.authentication import RequestHeaderAuthenticator, User
from pdinference.loadmetrics.metrics_api.group import API_VERSION
from pdinference.loadmetrics.policies import Policies
from pdinference.planning.scaling.signals import Signal
from tests.cluster.fake_api import FakeApi

if TYPE_CHECKING:
    from pdinference.loadmetrics.loads import Loads

Json = dict[str, Any]
METRIC = Signal.KV_DEMAND.value
PATH = f"/apis/{API_VERSION}/namespaces/team/{METRIC}"
SELECTED = {"labelSelector": "pdinference.io/name=llama,pdinference.io/role=decode"}


class Reviews(FakeApi):
    """An API server that allows one user one namespace, or does not answer."""

    away = False

    async def create(self, path: str, manifest: Json, **query: str) -> Json:
        assert path == "/apis/authorization.k8s.io/v1/subjectaccessreviews"
        if self.away:
            raise ApiError(0, "Unreachable", "away")
        spec = manifest["spec"]
        asked = {
            "verb": "list",
            "group": "external.metrics.k8s.io",
            "resource": Signal.KV_DEMAND.value,
            "namespace": "team",
        }
        return {"status": {"allowed": spec["user"] == "hpa" and spec["resourceAttributes"] == asked}}


class Passed(RequestHeaderAuthenticator):
    """An authenticator that accepted the client certificate; its header names the user."""

    def __init__(self) -> None:
        """Nothing is read: the certificate is the subject of tests/serving."""

    def user(self, request: web.Request) -> User | None:
        name = request.headers.get("X-Remote-User", "")
        return User(name) if name else None


async def ask(api: Reviews, user: str) -> tuple[int, str]:
    """The status of an answer, and its reason."""
    served = MetricsApi(
        loads=cast("Loads", None),
        policies=Policies(Cache()),
        authenticator=Passed(),
        access=AccessChecker(api),
        metrics=ScrapeMetrics(CollectorRegistry()),
    )
    app = web.Application()
    app.add_routes(served.routes())
    async with TestClient(TestServer(app)) as client:
        answer = await client.get(PATH, params=SELECTED, headers={"X-Remote-User": user} if user else {})
        return answer.status, (await answer.json())["reason"]


@pytest.mark.parametrize(
    ("user", "answer"), [("", (401, "Unauthorized")), ("jane", (403, "Forbidden")), ("hpa", (404, "NotFound"))]
)
async def test_who_may_not_list_a_metric_learns_nothing(user: str, answer: tuple[int, str]) -> None:
    """Not even whether the PDInference exists: `hpa` may know that it does not."""
    assert await ask(Reviews(), user) == answer


async def test_without_an_answer_about_rights_nobody_gets_a_metric() -> None:
    api = Reviews()
    api.away = True
    assert await ask(api, "hpa") == (500, "InternalError")
