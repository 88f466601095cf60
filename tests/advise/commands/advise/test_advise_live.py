"""`pdinference advise --live`: what it reads from the cluster."""

from typing import Any

import click
import pytest

from pdinference.api import names
from pdinference.api.names import Role
from pdinference.cluster.client import Json
from pdinference.loadmetrics.scraping.http_answer import LONGEST_BODY
from pdinference_advise.commands.advise.load import readings
from tests.controllers import owned

METRICS = b"""# TYPE pdinference_router_requests_total counter
pdinference_router_requests_total{path="/v1/completions",outcome="answered"} 40
"""


class Cluster:
    """Two router pods behind the API server's proxy."""

    def __init__(self, *pods: str) -> None:
        self._pods = pods
        self.asked: list[str] = []

    async def get(self, path: str, **query: str) -> Json:
        assert path == "/api/v1/namespaces/models/pods"
        assert query["labelSelector"] == "pdinference.io/name=llama,pdinference.io/role=router"
        labels = names.role_selector("llama", Role.ROUTER, "r1")
        stranger = {"metadata": {"name": "stranger", "labels": labels}}
        return {"items": [{"metadata": owned({"name": pod, "labels": labels})} for pod in self._pods] + [stranger]}

    async def page(self, path: str, *, most: int, **_: Any) -> bytes:
        assert most == LONGEST_BODY
        self.asked.append(path)
        return METRICS


async def test_each_router_pod_is_read_through_the_api_server() -> None:
    cluster = Cluster("llama-router-a", "llama-router-b")
    found = await readings(cluster, "models", "llama")
    assert {pod: reading.outcomes for pod, reading in found.items()} == {
        "llama-router-a": {"answered": 40.0},
        "llama-router-b": {"answered": 40.0},
    }
    assert cluster.asked[0] == "/api/v1/namespaces/models/pods/llama-router-a:29000/proxy/metrics"


async def test_without_a_router_pod_there_is_no_load() -> None:
    with pytest.raises(click.ClickException, match="models/llama has no running router pod"):
        await readings(Cluster(), "models", "llama")
