"""A cluster without dynamic resource allocation (before Kubernetes 1.34) and KEDA: both are reported as missing."""

import os
from collections.abc import Iterator

import pytest

from e2e.cluster import Cluster
from pdinference.cluster.errors import ApiError
from pdinference.cluster.kinds import AUTOSCALER, DEPLOYMENT, RESOURCE_CLAIM_TEMPLATE, SCALED_OBJECT
from tests.integration.operators import Operators
from tests.integration.world import World
from tests.waiting import until


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    name = f"{os.environ.get('PDINFERENCE_CLUSTER', 'integration')}-old"
    with Cluster.fresh(name, nodes=0, dra=False) as cluster:
        yield cluster


async def test_claims_are_refused_in_plain_words_and_all_else_works(world: World, operators: Operators) -> None:
    with pytest.raises(ApiError):
        await world.api.get(RESOURCE_CLAIM_TEMPLATE.path(world.namespace))
    operator = await operators.start()
    await world.apply()
    first = await world.serving()

    await world.apply(decode={"accelerator": {"devices": {"deviceClassName": "gpu.nvidia.com"}}})

    async def told() -> bool:
        condition = await world.condition("Progressing")
        return condition.get("reason") == "NotServed" and "Kubernetes 1.34" in condition["message"]

    await until(told, "the condition says what the cluster lacks")
    status = await world.status()
    assert (status["servingRevision"], status["revision"] == first) == (first, False)
    assert await world.get(DEPLOYMENT, f"llama-decode-{status['revision']}") is None
    assert await world.get(DEPLOYMENT, f"llama-decode-{first}") is not None

    await world.apply()
    await world.serving()
    await world.rolled_out()
    assert await operator.healthy()


async def test_scaled_objects_are_refused_in_plain_words_and_all_else_works(world: World, operators: Operators) -> None:
    with pytest.raises(ApiError):
        await world.api.get(SCALED_OBJECT.path(world.namespace))
    operator = await operators.start("--keda-prometheus=http://prometheus.monitoring:9090")
    scaled = {"replicas": 3, "autoscaling": {"maxReplicas": 6}}
    await world.apply(decode=scaled, autoscaling={"source": "KEDA"})
    revision = await world.serving()

    async def told() -> bool:
        condition = await world.condition("Progressing")
        return condition.get("reason") == "NotServed" and "Install KEDA" in condition["message"]

    await until(told, "the condition says what the cluster lacks")
    deployment = await world.get(DEPLOYMENT, f"llama-decode-{revision}") or {}
    assert deployment["spec"]["replicas"] == 3
    await world.apply(decode=scaled, autoscaling={"source": "Builtin"})

    async def followed() -> bool:
        return await world.get(AUTOSCALER, "llama-decode") is not None

    await until(followed, "another source works")
    assert await operator.healthy()
