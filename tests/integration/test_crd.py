"""The CRD on a real API server: accepted, and each rule refuses with the field that is wrong."""

from typing import Any

from pdinference.cluster.errors import ApiError
from pdinference.cluster.kinds import RESOURCE
from tests.api.modes import IN_NO_MODE, ONLY_WITHOUT_P
from tests.api.paths import WRONG_PATHS
from tests.api.routes import RIGHT_ROUTES, WRONG_ROUTES, routed
from tests.conftest import EXAMPLES, example_documents, together
from tests.integration.world import World

Spec = dict[str, Any]


def accelerator(**more: Any) -> Spec:
    return {"parameter": {"accelerator": more}}


def nodes(pools: list[Spec] | None = None, **parallelism: int) -> Spec:
    split = {"pipeline": 1 if "tensor" in parallelism else 2, "nodes": 2, **parallelism}
    return {"parameter": {"parallelism": split} | ({"nodePools": pools} if pools else {})}


def toleration(**more: Any) -> Spec:
    return {"parameter": {"placement": {"tolerations": [more]}}}


def affinity(**more: Any) -> Spec:
    term = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", **more}]}]}
    return {"decode": {"placement": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": term}}}}


def tiers(**more: Any) -> Spec:
    return {"decode": {"kvTiers": {"cpu": {"size": "1Gi"}, **more}}}


def keys(**more: Any) -> Spec:
    return {"router": {"apiKeys": {"secretName": "clients", **more}}}


def stored(**more: Any) -> Spec:
    return {"transfer": {"connector": "SharedStorage", "sharedStorage": {"claimName": "kv"}}, **more}


def compiled_on(claim: str, model: Spec) -> Spec:
    return {"engine": {"compileCache": {"persistentVolumeClaim": {"claimName": claim}}}, "model": model}


CLAIM = {"persistentVolumeClaim": {"claimName": "m"}}
HUB = {"huggingFace": {"repository": "a/b"}}

WRONG: list[tuple[Spec, str]] = [
    ({"engine": {"compileCache": {}}}, "spec.engine.compileCache"),
    ({"engine": {"compileCache": {**CLAIM, "hostPath": {"path": "/a"}}}}, "spec.engine.compileCache"),
    *(
        (compiled_on("m", model), "spec.engine.compileCache.persistentVolumeClaim.claimName")
        for model in ({"source": CLAIM}, {"source": HUB, "cache": CLAIM})
    ),
    ({"engine": {"expertTransport": "deepep"}}, "spec.engine.expertTransport"),
    ({"traces": {"endpoint": "otel-collector:4317"}}, "spec.traces.endpoint"),
    ({"autoscaling": {"ratio": {"min": {}}}}, "spec.autoscaling.ratio"),
    (together(ratio={}), "spec.autoscaling.ratio"),
    (together(ratio={"min": {"parameter": 0}}), "spec.autoscaling.ratio.min.parameter"),
    (together(ratio={"min": {"parameter": 2}, "max": {}}), "spec.autoscaling.ratio.max"),
    (together(d={"minReplicas": 3}, ratio={"min": {"parameter": 2}}), "spec.autoscaling.ratio.min"),
    (
        together(p={"minReplicas": 4}, d={"maxReplicas": 1}, ratio={"max": {"parameter": 3}}),
        "spec.autoscaling.ratio.max",
    ),
    (together(p={"minReplicas": 2}, gpuBudget=2), "spec.autoscaling.gpuBudget"),
    ({"decode": {"replicas": 4}, "autoscaling": {"gpuBudget": 4}}, "spec.autoscaling.gpuBudget"),
    (
        {role: {"accelerator": {"type": "CPU"}} for role in ("parameter", "decode")}
        | {"autoscaling": {"gpuBudget": 4}},
        "spec.autoscaling.gpuBudget",
    ),
    ({"model": {}}, "spec.model.source"),
    ({"model": {"source": {}}}, "spec.model.source"),
    ({"model": {"source": {"path": "/a", "huggingFace": {"repository": "a/b"}}}}, "spec.model.source"),
    ({"model": {"source": {"path": "relative"}}}, "spec.model.source.path"),
    ({"model": {"source": {"bucket": {"uri": "s3://a/../b"}}}}, "spec.model.source.bucket.uri"),
    (
        {"model": {"source": {"bucket": {"uri": "s3://abc"}}, "load": {"format": "safetensors"}}},
        "spec.model.load.format",
    ),
    ({"model": {"source": {"path": "/a"}, "load": {"concurrency": 4}}}, "spec.model.load"),
    ({"model": {"source": {"path": "/a/../b"}}}, "spec.model.source.path"),
    ({"engine": {"args": {"model": "other"}}}, "spec.engine.args"),
    ({"decode": {"args": {"kv-transfer-config": {}}}}, "spec.decode.args"),
    ({"decode": {"replicas": -1}}, "spec.decode.replicas"),
    ({"decode": {"replicas": "many"}}, "spec.decode.replicas"),
    ({"parameter": {"parallelism": {"tensor": 0}}}, "spec.parameter.parallelism.tensor"),
    ({"parameter": {"parallelism": {"tensor": 2}}}, "spec.decode.parallelism.tensor"),
    ({"decode": {"parallelism": {"pipeline": 2}}}, "spec.decode.parallelism.pipeline"),
    ({"parameter": {"parallelism": {"layerPartition": [1, 2]}}}, "spec.parameter.parallelism.layerPartition"),
    (nodes(tensor=3), "spec.parameter.parallelism.nodes"),
    (nodes(data=2), "spec.parameter.parallelism.data"),
    (nodes(tensor=2, data=3, expert=True), "spec.parameter.parallelism.data"),
    (nodes(pools=[{}]), "spec.parameter.nodePools"),
    (nodes(pools=[{}, {"products": ["A100"]}]), "spec.parameter.nodePools"),
    ({"decode": {"parallelism": {"tensor": 2, "nodes": 2}}}, "spec.decode.parallelism.nodes"),
    ({"decode": {"placement": {"domain": "rack"}}}, "spec.decode.placement.domain"),
    ({"engine": {"args": {"dtype": "half"}}}, "spec.engine.args"),
    ({"engine": {"env": {"HF_TOKEN": "x"}}}, "spec.engine"),
    ({"engine": {"gpuMemoryUtilization": 2}}, "spec.engine.gpuMemoryUtilization"),
    ({"engine": {"kvCache": {"blockSize": 100}}}, "spec.engine.kvCache.blockSize"),
    ({"model": {"source": {"path": "/a"}, "chatTemplate": {}}}, "spec.model.chatTemplate"),
    ({"model": {"source": {"path": "/a"}, "lora": {"maxRank": 7}}}, "spec.model.lora.maxRank"),
    ({"colocation": {"topologyKey": "a b"}}, "spec.colocation.topologyKey"),
    ({"decode": {"resources": {"limits": {"nvidia.com/gpu": 1}}}}, "spec.decode.resources"),
    ({"decode": {"resources": {"limits": {"memory": "4 GB"}}}}, "spec.decode.resources.limits.memory"),
    (accelerator(type="TPU"), "spec.parameter.accelerator.type"),
    (accelerator(type="CPU", products=["A100"]), "spec.parameter.accelerator.products"),
    (accelerator(resourceName="gpu"), "spec.parameter.accelerator.resourceName"),
    (accelerator(type="CPU", devices={"deviceClassName": "a"}), "spec.parameter.accelerator.devices"),
    (accelerator(resourceName="a/b", devices={"deviceClassName": "a"}), "spec.parameter.accelerator.resourceName"),
    (accelerator(products=["a"], devices={"deviceClassName": "a"}), "spec.parameter.accelerator.products"),
    (accelerator(devices={"deviceClassName": "a", "matchAttribute": "b"}), "spec.parameter.accelerator.devices"),
    (
        {"decode": {"parallelism": {"data": 33}, "accelerator": {"devices": {"deviceClassName": "a"}}}},
        "spec.decode.parallelism",
    ),
    ({"transfer": {"rdma": {"resourceName": "ib"}}}, "spec.transfer.rdma.resourceName"),
    ({"transfer": {"rdma": {"resourceName": "rdma/ib", "netDevices": ["a b"]}}}, "spec.transfer.rdma.netDevices[0]"),
    (toleration(operator="Equal"), "spec.parameter.placement.tolerations[0].operator"),
    (toleration(operator="Exists", value="x"), "spec.parameter.placement.tolerations[0].value"),
    (toleration(key="a", tolerationSeconds=5), "spec.parameter.placement.tolerations[0].tolerationSeconds"),
    (affinity(operator="In"), "matchExpressions[0].values"),
    (affinity(operator="Exists", values=["a"]), "matchExpressions[0].values"),
    (affinity(operator="Gt", values=["many"]), "matchExpressions[0].values"),
    ({"router": {"policy": "best"}}, "spec.router.policy"),
    ({"router": {"service": {"port": 0}}}, "spec.router.service.port"),
    ({"router": {"service": {"port": 65536}}}, "spec.router.service.port"),
    ({"router": {"clients": [{"cidr": "10.0.0.0"}]}}, "spec.router.clients[0].cidr"),
    ({"router": {"clients": [{"cidr": "10.0.0.0/08"}]}}, "spec.router.clients[0].cidr"),
    ({"router": {"clients": [{"cidr": "10.0.0.0/8", "podLabels": {"app": "a"}}]}}, "spec.router.clients[0].cidr"),
    ({"router": {"clients": [{"cidr": "10.0.0.0/8", "namespace": "a"}]}}, "spec.router.clients[0].cidr"),
    ({"router": {"clients": [{"namespace": "Team A"}]}}, "spec.router.clients[0].namespace"),
    ({"router": {"clients": [{"podLabels": {"a b": "c"}}]}}, "spec.router.clients[0].podLabels"),
    ({"router": {"clients": [{"podLabels": {"a": "b c"}}]}}, "spec.router.clients[0].podLabels"),
    ({"router": {"clients": [{}] * 33}}, "spec.router.clients"),
    ({"router": {"apiKeys": {}}}, "spec.router.apiKeys.secretName"),
    ({"router": {"apiKeys": {"secretName": "Clients"}}}, "spec.router.apiKeys.secretName"),
    (keys(limits=[{"name": "a b"}]), "spec.router.apiKeys.limits[0].name"),
    (keys(limits=[{"requestsPerMinute": 1}]), "spec.router.apiKeys.limits[0].name"),
    (keys(limits=[{"name": "a", "requestsPerMinute": 0}]), "spec.router.apiKeys.limits[0].requestsPerMinute"),
    (keys(limits=[{"name": "a", "tokensPerMinute": 0}]), "spec.router.apiKeys.limits[0].tokensPerMinute"),
    (keys(limits=[{"name": "a", "priority": "high"}], order="FairShares"), "spec.router.apiKeys.limits[0].priority"),
    (keys(limits=[{"name": "a", "share": 0}], order="FairShares"), "spec.router.apiKeys.limits[0].share"),
    (keys(order="Fair"), "spec.router.apiKeys.order"),
    (keys(limits=[{"name": "a", "share": 2}]), "spec.router.apiKeys.order"),
    (keys(limits=[{"name": "a", "concurrentRequests": 0}]), "spec.router.apiKeys.limits[0].concurrentRequests"),
    (keys(limits=[{"name": "a"}, {"name": "a"}]), "spec.router.apiKeys.limits[1]"),
    ({"router": {"tls": {}}}, "spec.router.tls.secretName"),
    *((routed(**wrong), f"spec.router.route{field}") for wrong, field in WRONG_ROUTES),
    *(({**wrong, "mode": "Aggregated"}, field) for field, wrong in IN_NO_MODE.items()),
    *((wrong, "spec.") for wrong in ONLY_WITHOUT_P.values()),
    *((wrong, f"spec.{field}") for wrong, field in WRONG_PATHS),
    ({"transfer": {"hostLocal": {"decode": 9}}}, "spec.transfer.hostLocal.decode"),
    ({"transfer": {"hostLocal": {"decode": 2}}, "autoscaling": {"gpuBudget": 2}}, "spec.autoscaling.gpuBudget"),
    ({"mode": "Both"}, "spec.mode"),
    ({"rollout": {"strategy": "Yolo"}}, "spec.rollout.strategy"),
    (tiers(cpu={}), "spec.decode.kvTiers.cpu.size"),
    (tiers(cpu={"size": "500m"}), "spec.decode.kvTiers.cpu.size"),
    (tiers(cpu={"size": 1024}), "spec.decode.kvTiers.cpu.size"),
    (tiers(disk={"size": "1Gi", "hostPath": "/a", "storageClass": "b"}), "spec.decode.kvTiers.disk"),
    ({"decode": {**tiers()["decode"], "resources": {"limits": {"memory": "1Gi"}}}}, "spec.decode.resources.limits"),
    ({"decode": {**tiers()["decode"], "enablePrefixCaching": False}}, "spec.decode.kvTiers"),
    (tiers() | {"engine": {"enablePrefixCaching": False}}, "spec.decode.kvTiers"),
    ({"transfer": {"connector": "Carrier"}}, "spec.transfer.connector"),
    ({"transfer": {"connector": "LMCache"}}, "spec.transfer.lmCache"),
    ({"transfer": {"connector": "SharedStorage"}}, "spec.transfer.sharedStorage"),
    ({"transfer": {"lmCache": {"remoteUrl": "lm://a:1"}}}, "spec.transfer.lmCache"),
    (
        {"transfer": {"connector": "LMCache", "lmCache": {"remoteUrl": "redis://:secret@a:1"}}},
        "spec.transfer.lmCache.remoteUrl",
    ),
    (accelerator(type="CPU") | {"transfer": {"connector": "Mooncake"}}, "spec.transfer.connector"),
    (stored(**accelerator(type="CPU")), "spec.transfer.connector"),
    (stored(decode={"parallelism": {"tensor": 2}}), "spec.decode.parallelism.tensor"),
    (stored(parameter={"parallelism": {"pipeline": 2}}), "spec.parameter.parallelism"),
    (stored(engine={"enableChunkedPrefill": True}), "spec.transfer.connector"),
    (stored(**tiers()), "spec.transfer.connector"),
    ({"parameter": {"parallelism": {"pipeline": 2}, **tiers()["decode"]}}, "spec.parameter.kvTiers"),
]


async def refusal(world: World, name: str, spec: Spec) -> str:
    """The API server's message for a resource that breaks a rule."""
    try:
        await world.api.create(RESOURCE.path(world.namespace), world.resource(name, **spec))
    except ApiError as error:
        return error.message if error.status in {400, 422} else f"{error.status}"
    return "accepted"


async def test_what_is_wrong_is_refused_by_the_name_of_its_field(world: World) -> None:
    said = [(spec, field, await refusal(world, f"llama-{n}", spec)) for n, (spec, field) in enumerate(WRONG)]
    assert not [(spec, field, message) for spec, field, message in said if field not in message]


async def test_each_form_of_a_route_is_accepted(world: World) -> None:
    for number, route in enumerate(RIGHT_ROUTES):
        assert await refusal(world, f"llama-{number}", routed(**route)) == "accepted", route


async def test_rules_between_p_and_d_need_p(world: World) -> None:
    for number, spec in enumerate(ONLY_WITHOUT_P.values()):
        assert await refusal(world, f"llama-{number}", {**spec, "mode": "Aggregated"}) == "accepted", spec


async def test_a_name_that_no_service_could_have_is_refused(world: World) -> None:
    for name in ("1llama", "lla.ma", "x" * 34):
        assert "metadata.name" in await refusal(world, name, {})


async def test_every_example_is_accepted(world: World) -> None:
    for document in (document for path in EXAMPLES for document in example_documents(path)):
        document["metadata"]["namespace"] = world.namespace
        await world.api.create(RESOURCE.path(world.namespace), document)


async def test_defaults_are_filled_in_by_the_api_server(world: World) -> None:
    spec = (await world.apply())["spec"]
    assert spec["decode"]["replicas"] == 1
    assert spec["router"]["service"] == {"type": "ClusterIP"}
    assert spec["rollout"]["strategy"] == "BlueGreen"


async def test_scaling_means_decode(world: World) -> None:
    await world.apply()
    path = RESOURCE.path(world.namespace, "llama")
    await world.api.merge(path + "/scale", {"spec": {"replicas": 4}})
    found = await world.api.get(path)
    assert found["spec"]["decode"]["replicas"] == 4
    assert found["spec"]["parameter"]["replicas"] == 1


async def test_a_status_leaves_the_generation_alone(world: World) -> None:
    generation = (await world.apply())["metadata"]["generation"]
    path = RESOURCE.path(world.namespace, "llama")
    written = await world.api.merge(path + "/status", {"status": {"url": "http://x"}, "spec": {"model": {}}})
    assert written["metadata"]["generation"] == generation
    assert written["status"]["url"] == "http://x"
