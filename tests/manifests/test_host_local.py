"""The children of the path HostLocal, where P and D share pods."""

from collections.abc import Callable
from typing import Any

import pytest

from pdinference.api.engines import engines_of
from pdinference.api.names import Role
from pdinference.api.v1alpha1 import PDInference
from pdinference.api.validation import InvalidResourceError
from pdinference.cluster.state.devices import gpus_of
from pdinference.engine.scripts.host_engines import definitions
from pdinference.manifests import RenderSettings, render
from tests.manifests.rendering import SETTINGS, children, only, pod_spec

Make = Callable[..., PDInference]
Json = dict[str, Any]

SHARED: Json = {"transfer": {"hostLocal": {"parameter": 1, "decode": 2}}}
CLAIM = {"accelerator": {"devices": {"deviceClassName": "gpu.nvidia.com"}}}
CLAIMED: Json = {
    **SHARED,
    "parameter": {**CLAIM, "parallelism": {"tensor": 2}},
    "decode": {**CLAIM, "parallelism": {"tensor": 4}},
}
CPU = {role: {"accelerator": {"type": "CPU"}} for role in ("parameter", "decode")}


def decode_pod(resource: PDInference) -> Json:
    return pod_spec(only(resource, "Deployment", "decode"))


def containers(resource: PDInference) -> dict[str, Json]:
    return {container["name"]: container for container in decode_pod(resource)["containers"]}


def environment(container: Json) -> dict[str, str]:
    return {entry["name"]: entry["value"] for entry in container["env"] if "value" in entry}


def launched(resource: PDInference) -> dict[str, tuple[dict[str, str], list[str]]]:
    """Environment and command of each engine of the launcher."""
    container = containers(resource)["vllm"]
    found = definitions(container["args"])
    return {one.name: ({**environment(container), **one.environment}, one.command) for one in found}


def test_p_has_no_objects_of_its_own(resource: Make) -> None:
    found = children(resource(**SHARED, colocation={"topologyKey": "rack", "required": True}))
    assert not [name for _, name in found if "parameter" in name]
    assert "podAffinity" not in decode_pod(resource(**SHARED, colocation={"topologyKey": "rack"})).get("affinity", {})


def test_with_a_claim_each_engine_has_a_container_and_its_part_of_the_devices(resource: Make) -> None:
    claimed = resource(**CLAIMED)
    found = containers(claimed)
    assert list(found) == ["decode-0", "decode-1", "parameter-0"]
    assert decode_pod(claimed)["shareProcessNamespace"] is True
    assert [environment(one)["CUDA_VISIBLE_DEVICES"] for one in found.values()] == ["0,1,2,3", "4,5,6,7", "8,9"]
    assert {environment(one)["CUDA_DEVICE_ORDER"] for one in found.values()} == {"PCI_BUS_ID"}
    assert all(one["resources"]["claims"] == [{"name": "accelerators"}] for one in found.values())
    template = only(claimed, "ResourceClaimTemplate", "decode")["spec"]["spec"]["devices"]["requests"]
    assert [request["exactly"]["count"] for request in template] == [10]
    assert gpus_of(decode_pod(claimed)) == 10


def test_with_a_device_plug_in_one_container_has_all_devices_and_a_launcher(resource: Make) -> None:
    shared = resource(**SHARED, parameter={"parallelism": {"tensor": 2}}, decode={"parallelism": {"tensor": 2}})
    (vllm,) = containers(shared).values()
    assert vllm["resources"]["limits"] == {"nvidia.com/gpu": "6"}
    assert "shareProcessNamespace" not in decode_pod(shared)
    engines = launched(shared)
    devices = {name: environment["CUDA_VISIBLE_DEVICES"] for name, (environment, _) in engines.items()}
    assert devices == {"decode-0": "0,1", "decode-1": "2,3", "parameter-0": "4,5"}
    assert gpus_of(decode_pod(shared)) == 6
    probes = {name: vllm[f"{name}Probe"]["httpGet"] for name in ("startup", "readiness", "liveness")}
    assert probes == {name: {"path": f"/{name}", "port": "launcher"} for name in probes}


@pytest.mark.parametrize("spec", [SHARED, CLAIMED, {**SHARED, **CPU}], ids=["launcher", "claim", "cpu"])
def test_no_two_engines_use_the_same_port_or_folder(resource: Make, spec: Json) -> None:
    shared = resource(**spec)
    found = containers(shared)
    ports = [port for container in found.values() for port in container["ports"]]
    assert len({port["containerPort"] for port in ports}) == len({port["name"] for port in ports}) == len(ports)
    commands = (
        launched(shared)
        if "vllm" in found
        else {name: (environment(one), one["command"] + one["args"]) for name, one in found.items()}
    )
    engines = engines_of(only(shared, "Deployment", "decode")["spec"]["template"])
    for index, engine in enumerate(engines):
        variables, words = commands[engine.port_name]
        assert f"--port={engine.port}" in words
        assert f'"kv_role":"{"kv_consumer" if engine.role is Role.DECODE else "kv_producer"}"' in " ".join(words)
        assert variables["VLLM_NIXL_SIDE_CHANNEL_PORT"] == str(5600 + index)
        assert variables["VLLM_CACHE_ROOT"] == f"/cache/{engine.port_name}"
    assert [engine.port_name for engine in engines] == ["decode-0", "decode-1", "parameter-0"]


def test_each_role_has_its_own_flags_and_variables(resource: Make) -> None:
    parameter, decode = {"env": {"A": "p"}, "maxNumSeqs": 7}, {"env": {"A": "d", "B": "d"}}
    engines = launched(resource(**SHARED, parameter=parameter, decode=decode))
    assert {name: environment["A"] for name, (environment, _) in engines.items()} == {
        "decode-0": "d",
        "decode-1": "d",
        "parameter-0": "p",
    }
    assert "B" not in engines["parameter-0"][0]
    assert [name for name, (_, words) in engines.items() if "--max-num-seqs=7" in words] == ["parameter-0"]


def test_probes_of_containers_ask_their_engine(resource: Make) -> None:
    for name, container in containers(resource(**CLAIMED)).items():
        for probe in ("startup", "readiness", "liveness"):
            assert container[f"{probe}Probe"]["httpGet"] == {"path": "/health", "port": name}


def test_the_launchers_container_has_the_resources_of_all_engines(resource: Make) -> None:
    (vllm,) = containers(
        resource(
            **SHARED,
            parameter={"resources": {"requests": {"cpu": "500m", "memory": "16Gi"}, "limits": {"memory": "20Gi"}}},
            decode={"resources": {"requests": {"cpu": 2, "memory": "8Gi"}, "limits": {"memory": "9Gi", "cpu": 4}}},
        )
    ).values()
    # P has no limit of CPU, so there is none for all together.
    assert vllm["resources"] == {
        "requests": {"cpu": "4500m", "memory": "32Gi", "nvidia.com/gpu": "3"},
        "limits": {"memory": "38Gi", "nvidia.com/gpu": "3"},
    }


def test_containers_have_the_resources_of_their_role(resource: Make) -> None:
    roles = {
        role: {"accelerator": {"type": "CPU"}, "resources": {"requests": {"cpu": cpu}}}
        for role, cpu in (("parameter", 1), ("decode", 2))
    }
    found = containers(resource(**SHARED, **roles))
    assert {name: one["resources"] for name, one in found.items()} == {
        "decode-0": {"requests": {"cpu": "2"}},
        "decode-1": {"requests": {"cpu": "2"}},
        "parameter-0": {"requests": {"cpu": "1"}},
    }
    assert "CUDA_VISIBLE_DEVICES" not in environment(found["parameter-0"])


def test_shared_memory_is_enough_for_all(resource: Make) -> None:
    shm = next(volume for volume in decode_pod(resource(**SHARED))["volumes"] if volume["name"] == "shm")
    assert shm["emptyDir"]["sizeLimit"] == "24Gi"


def test_overlays_of_both_roles_apply_each_to_its_containers(resource: Make) -> None:
    def overlay(name: str, value: str) -> Json:
        container = {"name": "vllm", "env": [{"name": "A", "value": value}]}
        return {"podTemplate": {"spec": {"containers": [container], "imagePullSecrets": [{"name": name}]}}}

    roles = {"parameter": overlay("p", "1"), "decode": overlay("d", "2")}
    claimed = resource(**{**CLAIMED, **{role: {**CLAIMED[role], **roles[role]} for role in roles}})
    values = {name: environment(one)["A"] for name, one in containers(claimed).items()}
    assert values == {"decode-0": "2", "decode-1": "2", "parameter-0": "1"}
    assert decode_pod(claimed)["imagePullSecrets"] == [{"name": "p"}, {"name": "d"}]
    # One container has one environment: the last overlay wins.
    assert {found["A"] for found, _ in launched(resource(**SHARED, **roles)).values()} == {"2"}


@pytest.mark.parametrize("name", ["decode-0", "parameter-3"])
def test_a_sidecar_cannot_pass_for_an_engine(resource: Make, name: str) -> None:
    for spec in ({}, CLAIMED):
        sidecar = {"spec": {"containers": [{"name": name, "image": "registry.example/a"}]}}
        decode = {**spec.get("decode", {}), "podTemplate": sidecar}
        with pytest.raises(InvalidResourceError, match=f"The operator uses {name}"):
            render(resource(**{**spec, "decode": decode}), SETTINGS)


def test_a_sidecar_that_sees_vllms_processes_is_refused_beside_a_token(resource: Make) -> None:
    source = {"huggingFace": {"repository": "a/b", "tokenSecret": {"name": "hub", "key": "token"}}}
    settings = RenderSettings(policy=SETTINGS.policy.model_copy(update={"token_secrets": ["*"]}))

    def refused(spec: Json, **members: Any) -> bool:
        decode = {**spec.get("decode", {}), "podTemplate": {"spec": members}}
        try:
            render(resource(**{**spec, "decode": decode, "model": {"source": source}}), settings)
        except InvalidResourceError as error:
            assert "could read what tokenSecret names" in str(error)  # noqa: PT017 - the message of the one error that is expected
            return True
        return False

    sidecar = {"name": "log", "image": "registry.example/a"}
    assert refused(CLAIMED, containers=[sidecar])
    assert refused(CLAIMED, initContainers=[{**sidecar, "restartPolicy": "Always"}])
    assert not refused(CLAIMED, initContainers=[sidecar])
    assert not refused(CLAIMED, containers=[{"name": "vllm", "env": [{"name": "A", "value": "b"}]}])
    assert not refused(SHARED, containers=[sidecar])


def test_pods_of_the_other_path_stay_reachable_until_they_are_gone(resource: Make) -> None:
    policies = [
        only(resource(transfer={"path": path}), "NetworkPolicy", "decode")["spec"] for path in ("HostLocal", "Network")
    ]
    assert policies[0] == policies[1]
    router, *_ = policies[0]["ingress"]
    assert router["ports"] == [{"port": 8000, "endPort": 8015, "protocol": "TCP"}]
    most = resource(transfer={"hostLocal": {"parameter": 8, "decode": 8}})
    ports = [engine.port for engine in engines_of(only(most, "Deployment", "decode")["spec"]["template"])]
    assert (min(ports), max(ports)) == (8000, 8015)


def test_the_model_job_runs_where_the_pods_run(resource: Make) -> None:
    placed = {
        "parameter": {"placement": {"nodeSelector": {"pool": "p"}}},
        "decode": {"placement": {"nodeSelector": {"pool": "d"}}},
    }
    cache = {"persistentVolumeClaim": {"claimName": "cache"}}
    model = {"source": {"huggingFace": {"repository": "a/b", "revision": "0" * 40}}, "cache": cache}
    job = only(resource(**SHARED, **placed, model=model), "Job", "model")
    assert pod_spec(job)["nodeSelector"] == {"pool": "d"}


def test_replicas_count_pods(resource: Make) -> None:
    scaled = resource(**SHARED, parameter={"replicas": 5}, decode={"replicas": 3})
    assert only(scaled, "Deployment", "decode")["spec"]["replicas"] == 3
    autoscaling = {"autoscaling": {"maxReplicas": 4}}
    found = children(resource(**SHARED, parameter=autoscaling, decode=autoscaling))
    assert [name for kind, name in found if kind == "HorizontalPodAutoscaler"] == ["llama-decode"]
