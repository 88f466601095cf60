"""The real KEDA, and its definition of a ScaledObject."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

import aiohttp

from e2e.cluster.build import binary
from e2e.go_modules import yaml_of
from pdinference.api.names import Role, keda_autoscaler
from pdinference.cluster.client import Json
from pdinference.cluster.errors import ApiError
from pdinference.cluster.kinds import AUTOSCALER, SCALED_OBJECT
from tests.integration.external_metrics import ExternalMetrics
from tests.integration.world import World
from tests.ports import free_port
from tests.waiting import until

_MODULE = "github.com/kedacore/keda/v2@v2.21.0"
_SUM = "h1:R6z2HZvstK4RLUMxroNACzBj74xGxt3kG59b5Xc+Xps="
_CRD = "config/crd/bases/keda.sh_scaledobjects.yaml"
_CRD_PATH = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/scaledobjects.keda.sh"
KEDAS_HPA: Final = keda_autoscaler("llama", Role.DECODE)


WITH_KEDA: Final = (
    "--keda-prometheus=http://prometheus.monitoring:9090",
    "--keda-authentication=TriggerAuthentication/prom",
    "--keda-auth-mode=basic",
)
"""Options of an operator."""


async def install_keda(world: World) -> None:
    """KEDA's definition of a ScaledObject. It stays: no other test is affected by it."""
    await world.api.apply(_CRD_PATH, _definition(), manager="test")

    # Not only established: an operator that starts looks at what the API server says it serves, which comes later.
    async def served() -> bool:
        with suppress(ApiError):  # each of the two answers may come before the other
            groups = (await world.api.get("/apis"))["groups"]
            found = (await world.api.get(f"/apis/{SCALED_OBJECT.api_version}"))["resources"]
            return any(group["name"] == SCALED_OBJECT.group for group in groups) and any(
                resource["name"] == SCALED_OBJECT.plural for resource in found
            )
        return False

    await until(served, "ScaledObjects are served")


@asynccontextmanager
async def real_keda(world: World, folder: Path) -> AsyncIterator[ExternalMetrics]:
    """KEDA's controller and its metrics, in the place of the operator's metrics API.

    At the end the ScaledObject of D is deleted, and KEDA removes what it made of it.
    """
    await install_keda(world)
    port = free_port()
    async with ExternalMetrics(world, folder) as metrics:
        metrics.behind = f"http://127.0.0.1:{port}"
        with (folder / "keda.log").open("wb") as log:
            line = (str(binary("keda")), str(world.cluster.kubeconfig), world.namespace, f"127.0.0.1:{port}")
            process = await asyncio.create_subprocess_exec(*line, stdout=log, stderr=log)
        try:
            await until(lambda: _answers(metrics.behind), "KEDA serves metrics")
            yield metrics
            await remove_scaled_object(world)
        finally:
            process.terminate()
            await process.wait()
            print((folder / "keda.log").read_text())  # noqa: T201 - pytest shows it when the test fails


async def _answers(url: str) -> bool:
    with suppress(aiohttp.ClientError):
        async with aiohttp.ClientSession() as session, session.get(url):
            return True
    return False


async def remove_scaled_object(world: World) -> None:
    """Let KEDA remove its finalizer, and its HPA."""
    if await world.get(SCALED_OBJECT, "llama-decode") is not None:
        await world.delete(SCALED_OBJECT, "llama-decode")

    async def gone() -> bool:
        found = await world.get(SCALED_OBJECT, "llama-decode"), await world.get(AUTOSCALER, KEDAS_HPA)
        return found == (None, None)

    await until(gone, "the ScaledObject and its HPA are gone")


def _definition() -> Json:
    return yaml_of(_MODULE, _SUM, _CRD)
