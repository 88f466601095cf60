"""The operator's metrics API behind the API server, and pods with a load."""

from dataclasses import replace
from http import HTTPStatus
from typing import Any

import aiohttp
import yaml

from pdinference.api import names
from pdinference.api.names import Role
from pdinference.cluster.client import Json
from pdinference.cluster.errors import ApiError
from pdinference.cluster.kinds import AUTOSCALER, DEPLOYMENT, POD, SCALER
from pdinference.loadmetrics.metrics_api.group import GROUP, VERSION
from tests.integration import aggregated
from tests.integration.operator_process import OperatorProcess
from tests.integration.operators import Operators
from tests.integration.vllm_metrics import FakeVllm, Load
from tests.integration.world import READY_STATUS, World
from tests.ports import free_port
from tests.waiting import until

SERVICE = "metrics"
_AT_ONCE = {"stabilizationWindowSeconds": 0, "policies": [{"type": "Pods", "value": 8, "periodSeconds": 1}]}
QUICK = {"scaleUp": _AT_ONCE, "scaleDown": _AT_ONCE}
"""A `behavior` without waiting."""
SCALED = {"autoscaling": {"maxReplicas": 3, "targets": {"kvDemand": 80}, "behavior": QUICK}}


class ScalingWorld:
    """A world with the metrics API in it."""

    def __init__(self, world: World, operators: Operators) -> None:
        self.world = world
        self._operators = operators
        self._pods: dict[str, FakeVllm] = {}
        self.port = free_port()

    async def install(self) -> None:
        """What the chart would: Secret, Service and APIService."""
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": SERVICE}}
        await self.world.api.create(f"/api/v1/namespaces/{self.world.namespace}/secrets", secret)
        await aggregated.create_service(self.world, SERVICE, self.port)
        await self.register()

    async def register(self) -> None:
        """Make the operator the server of the API group."""
        await aggregated.register(self.world, self.world.namespace, SERVICE)

    async def start(self, *flags: str, elect: bool = False) -> OperatorProcess:
        """Start an operator that serves the metrics API."""
        return await self._operators.start(
            *flags,
            f"--lease-namespace={self.world.namespace}",
            f"--tls-secret={SERVICE}",
            f"--tls-port={self.port}",
            f"--tls-host={SERVICE}.{self.world.namespace}.svc",
            "--tls-check-seconds=1",
            "--tls-drain-seconds=0",
            f"--metrics-service={self.world.namespace}/{SERVICE}",
            "--scrape-seconds=0.5",
            elect=elect,
        )

    async def follow(self, *flags: str) -> OperatorProcess:
        """Start one more operator, which reads the pods and serves no metrics API."""
        return await self._operators.start(*flags, "--scrape-seconds=0.5", elect=True)

    async def query(self, metric: str = "pdinference_kv_demand") -> Json:
        """Read a metric of D from the API server, as an administrator."""
        selector = f"{names.LABEL_NAME}=llama,{names.LABEL_ROLE}=decode"
        path = f"/apis/{GROUP}/{VERSION}/namespaces/{self.world.namespace}/{metric}"
        return await self.world.api.get(path, labelSelector=selector)

    async def value(self, metric: str = "pdinference_kv_demand") -> str:
        """The value that the HPA gets; the reason where there is none."""
        try:
            (item,) = (await self.query(metric))["items"]
        except ApiError as error:
            return error.reason
        value: str = item["value"]
        return value

    async def bring_up(self, load: Load, role: Role = Role.DECODE) -> list[FakeVllm]:
        """Play the kubelet for every pod of a role: it runs, is ready, and reports a load."""
        pods = await self.world.pods(role)
        for pod in pods:
            name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]  # pods of StatefulSets come back by their names
            if uid in self._pods:
                continue
            self._pods[uid] = await FakeVllm(replace(load)).start()
            address = self._pods[uid].address
            status = {**READY_STATUS, "podIP": address, "podIPs": [{"ip": address}]}
            try:
                await self.world.api.merge(POD.path(self.world.namespace, name) + "/status", {"status": status})
            except ApiError as error:
                if error.status != HTTPStatus.NOT_FOUND:  # a scale-down may have taken it meanwhile
                    raise
        return [self._pods[pod["metadata"]["uid"]] for pod in pods]

    async def pods_wanted(self) -> int:
        revision = (await self.world.status())["revision"]
        deployment = await self.world.get(DEPLOYMENT, f"llama-decode-{revision}") or {}
        count: int = deployment["spec"]["replicas"]
        return count

    async def scaled_to(self, count: int) -> None:
        async def scaled() -> bool:
            return await self.pods_wanted() == count and len(await self.world.pods(Role.DECODE)) == count

        await until(scaled, f"the HPA has made it {count} pods")

    async def hpa(self, role: Role = Role.DECODE) -> Json:
        return await self.world.get(AUTOSCALER, f"llama-{role}") or {}

    async def scaler(self, role: Role = Role.DECODE) -> Json:
        """The scale target of a role."""
        return await self.world.get(SCALER, f"llama-{role}") or {}

    async def sees(self, status: str = "True", *roles: Role) -> None:
        """Wait until the HPAs of these roles, or that of D, see the load, or do not."""

        async def so() -> bool:
            hpas = [await self.hpa(role) for role in roles or (Role.DECODE,)]
            return all(condition(hpa, "ScalingActive").get("status") == status for hpa in hpas)

        await until(so, f"ScalingActive is {status}")

    async def stays(self, count: int) -> None:
        """Expect the same number of D pods after the HPA controller has looked a few times more."""
        await hpa_looks(self.world, 3)
        assert await self.pods_wanted() == count

    async def close(self) -> None:
        for pod in self._pods.values():
            await pod.stop()
        await aggregated.unregister(self.world)


async def served(scaling: ScalingWorld, value: str, metric: str = "pdinference_kv_demand") -> None:
    """Wait until the metrics API has this value."""

    async def so() -> bool:
        return await scaling.value(metric) == value

    await until(so, f"{metric} is {value}")


def condition(body: Json, type_: str) -> Any:
    """A condition of an object."""
    return next((c for c in (body.get("status") or {}).get("conditions", []) if c["type"] == type_), {})


async def hpa_looks(world: World, count: int) -> None:
    """Wait until the HPA controller has looked at each HPA a few times more, whatever it saw.

    It counts over all HPAs, those of earlier tests too, and looks at each as often as at the others.
    """
    everywhere = len((await world.api.get(AUTOSCALER.path(None)))["items"])
    enough = await _reconciliations(world) + (count + 1) * everywhere

    async def looked() -> bool:
        return await _reconciliations(world) >= enough

    await until(looked, "the HPA controller has looked")


async def _reconciliations(world: World) -> float:
    config = yaml.safe_load(world.cluster.kubeconfig.read_text())
    headers = {"Authorization": f"Bearer {config['users'][0]['user']['token']}"}
    url = f"https://{world.cluster.spec.address}:10257/metrics"
    async with aiohttp.ClientSession() as session, session.get(url, headers=headers, ssl=False) as response:
        response.raise_for_status()
        lines = (await response.text()).splitlines()
    name = "horizontal_pod_autoscaler_controller_reconciliations_total{"
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name))
