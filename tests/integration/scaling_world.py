"""The operator's metrics API behind the API server, and pods with a load."""

import socket
from contextlib import suppress
from dataclasses import replace
from typing import Any

import aiohttp
import yaml
from prometheus_client.parser import text_string_to_metric_families

from pdinference.api import names
from pdinference.api.names import Role
from pdinference.cluster.client import Json
from pdinference.cluster.errors import ApiError
from pdinference.cluster.kinds import AUTOSCALER, DEPLOYMENT, POD, SCALER
from pdinference.loadmetrics.metrics_api.api import GROUP, VERSION
from pdinference.loadmetrics.metrics_api.registration import API_SERVICE
from tests.integration.operator_process import OperatorProcess
from tests.integration.operators import Operators
from tests.integration.vllm_metrics import FakeVllm, Load
from tests.integration.world import READY_STATUS, World, until

SERVICE = "metrics"
_API_SERVICE_PATH = f"/apis/apiregistration.k8s.io/v1/apiservices/{API_SERVICE}"
_QUICK = {"stabilizationWindowSeconds": 0, "policies": [{"type": "Pods", "value": 4, "periodSeconds": 1}]}
SCALED = {
    "autoscaling": {"maxReplicas": 3, "targets": {"kvDemand": 80}, "behavior": {"scaleUp": _QUICK, "scaleDown": _QUICK}}
}


class ScalingWorld:
    """A world with the metrics API in it."""

    def __init__(self, world: World, operators: Operators) -> None:
        self.world = world
        self._operators = operators
        self._pods: dict[str, FakeVllm] = {}
        with socket.create_server(("", 0)) as free:
            self.port = free.getsockname()[1]

    async def install(self) -> None:
        """What the chart would: Secret, Service and APIService; the Service leads to this host."""
        namespace, core = self.world.namespace, f"/api/v1/namespaces/{self.world.namespace}"
        metadata = {"name": SERVICE, "namespace": namespace}
        await self.world.api.create(f"{core}/secrets", {"apiVersion": "v1", "kind": "Secret", "metadata": metadata})
        ports = [{"name": "https", "port": 443}]
        await self.world.api.create(f"{core}/services", {"metadata": metadata, "spec": {"ports": ports}})
        address = {"addresses": [self.world.cluster.host_address], "conditions": {"ready": True}}
        labels = {"kubernetes.io/service-name": SERVICE}
        endpoints = {
            "metadata": {**metadata, "labels": labels},
            "addressType": "IPv4",
            "endpoints": [address],
            "ports": [{"name": "https", "port": self.port}],
        }
        await self.world.api.create(f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices", endpoints)
        await self.register(namespace, SERVICE)

    async def register(self, namespace: str, service: str) -> None:
        """Assign the API group to a Service."""
        await self.unregister()
        spec = {
            "service": {"namespace": namespace, "name": service, "port": 443},
            "group": GROUP,
            "version": VERSION,
            "groupPriorityMinimum": 100,
            "versionPriority": 100,
        }
        body = {"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "spec": spec}
        await self.world.api.apply(_API_SERVICE_PATH, {**body, "metadata": {"name": API_SERVICE}}, manager="test")

    async def unregister(self) -> None:
        with suppress(ApiError):
            found = await self.world.api.get(_API_SERVICE_PATH)
            await self.world.api.delete(_API_SERVICE_PATH, uid=found["metadata"]["uid"])

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

    async def available(self) -> None:
        async def seen() -> bool:
            found = await self.world.api.get(_API_SERVICE_PATH)
            conditions = (found.get("status") or {}).get("conditions", [])
            return any(c["type"] == "Available" and c["status"] == "True" for c in conditions)

        await until(seen, "the API server reaches the metrics API")

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
            await self.world.api.merge(POD.path(self.world.namespace, name) + "/status", {"status": status})
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

    async def looks(self, count: int) -> None:
        """Wait until the HPA controller has looked a few times more, whatever it saw."""
        await hpa_looks(self.world, count)

    async def close(self) -> None:
        for pod in self._pods.values():
            await pod.stop()
        await self.unregister()


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
        families = text_string_to_metric_families(await response.text())
    name = "horizontal_pod_autoscaler_controller_reconciliations_total"
    return sum(sample.value for family in families for sample in family.samples if sample.name == name)
