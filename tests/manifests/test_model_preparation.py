"""Jobs and containers that download, check and inspect a model."""

from collections.abc import Callable
from typing import Any

import pytest

from pdinference.api import names
from pdinference.api.v1alpha1 import PDInference
from pdinference.api.validation import InvalidResourceError, validated
from pdinference.manifests import Manifest, RenderSettings, render
from tests.conftest import allowing

Make = Callable[..., PDInference]
SETTINGS = RenderSettings(
    policy=allowing("/data/llama", "/data/x", writable=["/data/models"]), model_image="registry.example/tool:1"
)
TOKEN = {"name": "hub", "key": "token"}
HUB = {"repository": "meta-llama/Llama-3.1-8B", "revision": "refs/pr/1", "tokenSecret": TOKEN}
FOLDER = "/models/huggingFace/meta-llama/Llama-3.1-8B/refs%2Fpr%2F1"


def model(source: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    return {"source": source or {"huggingFace": HUB}, **more}


CLAIM = {"persistentVolumeClaim": {"claimName": "models"}}
NODE = {"hostPath": {"path": "/data/models"}}


def found(resource: PDInference, kind: str) -> list[Manifest]:
    return [manifest for manifest in render(resource, SETTINGS).objects if manifest["kind"] == kind]


def job(resource: PDInference) -> Manifest:
    (manifest,) = found(resource, "Job")
    return manifest


def container(pod: dict[str, Any]) -> dict[str, Any]:
    (only,) = pod["containers"]
    return dict(only)


def engine_pods(resource: PDInference) -> list[dict[str, Any]]:
    workloads = [*found(resource, "StatefulSet"), *found(resource, "Deployment")]
    roles = {*names.ENGINE_ROLES}
    return [w["spec"]["template"]["spec"] for w in workloads if w["metadata"]["labels"][names.LABEL_ROLE] in roles]


def test_without_a_cache_nothing_runs_beside_vllm(resource: Make) -> None:
    plain = resource(model=model())
    assert not found(plain, "Job")
    assert all("initContainers" not in pod for pod in engine_pods(plain))


def test_a_job_downloads_into_the_claim(resource: Make) -> None:
    cached = resource(
        model=model(cache=CLAIM), engine={"env": {"HF_ENDPOINT": "https://hub.hf.co", "NCCL_DEBUG": "INFO"}}
    )
    pod = job(cached)["spec"]["template"]["spec"]
    fetch = container(pod)
    assert fetch["image"] == "registry.example/tool:1"
    assert fetch["command"] == ["pdinference", "model", "fetch"]
    assert fetch["args"] == [
        "--hub=huggingFace",
        "--repository=meta-llama/Llama-3.1-8B",
        "--revision=refs/pr/1",
        f"--folder={FOLDER}",
        f"--job=models/{job(cached)['metadata']['name']}",
    ]
    assert fetch["env"] == [
        {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": TOKEN}},
        {"name": "HF_ENDPOINT", "value": "https://hub.hf.co"},
    ]
    assert {"name": "model", "mountPath": "/models", "readOnly": False} in fetch["volumeMounts"]
    assert {"name": "model", "persistentVolumeClaim": {"claimName": "models", "readOnly": False}} in pod["volumes"]
    assert pod["securityContext"]["fsGroup"] == 65532


def test_p_and_d_check_the_claim_and_load_from_it(resource: Make) -> None:
    for pod in engine_pods(resource(model=model(cache=CLAIM))):
        (check,) = pod["initContainers"]
        assert (check["command"][-1], check["args"]) == ("check", [f"--folder={FOLDER}"])
        assert "env" not in check
        vllm = container(pod)
        assert vllm["args"][0] == FOLDER
        assert not [argument for argument in vllm["args"] if argument.startswith("--revision")]
        assert {"name": "HF_HUB_OFFLINE", "value": "1"} in vllm["env"]
        assert {"name": "model", "mountPath": "/models", "readOnly": True} in vllm["volumeMounts"]
        assert {"name": "model", "persistentVolumeClaim": {"claimName": "models", "readOnly": True}} in pod["volumes"]


def test_the_job_looks_at_adapters_too_and_the_pods_stay_as_they_are(resource: Make) -> None:
    lora = {"adapters": [{"name": "a", "path": "owner/a"}, {"name": "b", "path": "/models/b"}]}
    option = "--adapters=owner/a,/models/b"
    for settings in ({"cache": CLAIM}, {"inspect": True}):
        made = resource(model=model(lora=lora, **settings))
        assert option in container(job(made)["spec"]["template"]["spec"])["args"]
        for pod in engine_pods(made):
            assert not [c for c in pod.get("initContainers", ()) if option in c["args"]]
    for pod in engine_pods(resource(model=model(lora=lora, cache=NODE))):
        assert option not in pod["initContainers"][0]["args"]


def test_with_a_cache_on_nodes_pods_download_themselves(resource: Make) -> None:
    cached = resource(model=model(cache=NODE))
    assert not found(cached, "Job")
    for pod in engine_pods(cached):
        (fetch,) = pod["initContainers"]
        assert fetch["command"][-1] == "fetch"
        assert f"--folder={FOLDER}" in fetch["args"]
        assert not [argument for argument in fetch["args"] if argument.startswith("--job")]
        assert {"name": "model", "mountPath": "/models", "readOnly": False} in fetch["volumeMounts"]
        assert {"name": "model", "mountPath": "/models", "readOnly": True} in container(pod)["volumeMounts"]
        assert {"name": "model", "hostPath": {"path": "/data/models", "type": "Directory"}} in pod["volumes"]


VOLUMES = {
    "persistentVolumeClaim": {"claimName": "weights", "path": "llama/8b"},
    "image": {"reference": "registry.example/model:1"},
    "hostPath": {"path": "/data/llama"},
}


@pytest.mark.parametrize("kind", VOLUMES)
def test_p_and_d_look_at_what_somebody_else_put_there(resource: Make, kind: str) -> None:
    for pod in engine_pods(resource(model=model({kind: VOLUMES[kind]}))):
        (look,) = pod["initContainers"]
        folder = f"/models/{VOLUMES[kind]['path']}" if kind == "persistentVolumeClaim" else "/models"
        assert (look["image"], look["command"]) == ("registry.example/tool:1", ["pdinference", "model", "look"])
        assert look["args"] == [f"--folder={folder}", f"--field=spec.model.source.{kind}.path"]
        assert container(pod)["args"][0] == folder
        assert {"name": "model", "mountPath": "/models", "readOnly": True} in look["volumeMounts"]
        assert look["resources"]["requests"] == look["resources"]["limits"], "so that a pod may be Guaranteed"
        assert look["terminationMessagePolicy"] == "FallbackToLogsOnError"


def test_nothing_looks_into_the_engine_image(resource: Make) -> None:
    assert all("initContainers" not in pod for pod in engine_pods(resource(model=model({"path": "/models/llama"}))))


def test_it_looks_for_what_the_vllm_of_the_role_will_load(resource: Make) -> None:
    made = resource(
        model=model({"hostPath": {"path": "/data/x"}}),
        engine={"args": {"hf-config-path": "/other"}},
        decode={"args": {"load-format": "dummy"}},
    )
    p, d = engine_pods(made)
    common = ["--folder=/models", "--field=spec.model.source.hostPath.path"]
    assert p["initContainers"][0]["args"] == [*common, "--no-config"]
    assert d["initContainers"][0]["args"] == [*common, "--load-format=dummy", "--no-config"]


def test_it_looks_with_vllms_eyes_whatever_an_overlay_brings(resource: Make) -> None:
    other = {"name": "other", "mountPath": "/models", "subPath": "x"}
    overlay = {
        "initContainers": [{"name": "brings-it", "image": "x"}],
        "containers": [{"name": "vllm", "securityContext": {"runAsUser": 1000}, "volumeMounts": [other]}],
        "volumes": [{"name": "other", "emptyDir": {}}],
    }
    made = resource(model=model({"hostPath": {"path": "/data/x"}}), parameter={"podTemplate": {"spec": overlay}})
    pod = engine_pods(made)[0]
    brings, look = pod["initContainers"]
    assert (brings["name"], look["name"]) == ("brings-it", names.MODEL_CONTAINER)
    assert [mount["name"] for mount in look["volumeMounts"]] == ["tmp", "other"]
    assert look["volumeMounts"][1] in container(pod)["volumeMounts"]
    assert look["securityContext"]["runAsUser"] == 1000
    assert look["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def test_a_node_folder_has_to_be_allowed(resource: Make) -> None:
    with pytest.raises(InvalidResourceError, match=r"spec\.model\.cache\.hostPath\.path"):
        render(resource(model=model(cache=NODE)), RenderSettings())


def test_what_else_comes_from_the_hub_still_may(resource: Make) -> None:
    for more in ({"tokenizer": "owner/tokenizer"}, {"lora": {"adapters": [{"name": "a", "path": "owner/adapter"}]}}):
        vllm = container(engine_pods(resource(model=model(cache=CLAIM, **more)))[0])
        variables = {entry["name"] for entry in vllm["env"]}
        assert "HF_TOKEN" in variables
        assert "HF_HUB_OFFLINE" not in variables


def test_another_source_is_another_job_and_the_same_is_the_same(resource: Make) -> None:
    def name(**spec: Any) -> str:
        return str(job(resource(**spec))["metadata"]["name"])

    first = name(model=model(cache=CLAIM))
    assert first == name(model=model(cache=CLAIM, maxModelLength=1000), decode={"replicas": 3})
    other = {"huggingFace": {**HUB, "revision": "main"}}
    assert first != name(model=model(other, cache=CLAIM))
    assert len(name(model=model(cache=CLAIM))) <= names.NAME_MAX_LENGTH + 15


def test_the_jobs_account_may_write_its_job_only(resource: Make) -> None:
    cached = resource(model=model(cache=CLAIM))
    (role,) = (r for r in found(cached, "Role") if r["metadata"]["name"] == "llama-model")
    (rule,) = role["rules"]
    name = job(cached)["metadata"]["name"]
    assert rule == {"apiGroups": ["batch"], "resources": ["jobs"], "resourceNames": [name], "verbs": ["patch"]}
    assert job(cached)["spec"]["template"]["spec"]["serviceAccountName"] == "llama-model"


@pytest.mark.parametrize(
    ("source", "arguments", "volume"),
    [
        (
            {"huggingFace": HUB},
            ["--hub=huggingFace", "--repository=meta-llama/Llama-3.1-8B", "--revision=refs/pr/1"],
            None,
        ),
        (
            {"modelScope": {"repository": "Qwen/Qwen2.5-7B"}},
            ["--hub=modelScope", "--repository=Qwen/Qwen2.5-7B", "--revision=master"],
            None,
        ),
        (
            {"persistentVolumeClaim": {"claimName": "weights", "path": "llama/8b"}},
            ["--folder=/models/llama/8b"],
            {"persistentVolumeClaim": {"claimName": "weights", "readOnly": True}},
        ),
        (
            {"image": {"reference": "registry.example/model:1"}},
            ["--folder=/models"],
            {"image": {"reference": "registry.example/model:1", "pullPolicy": "IfNotPresent"}},
        ),
        (
            {"hostPath": {"path": "/data/x"}},
            ["--folder=/models"],
            {"hostPath": {"path": "/data/x", "type": "Directory"}},
        ),
    ],
)
def test_any_model_can_be_inspected(
    resource: Make, source: dict[str, Any], arguments: list[str], volume: dict[str, Any] | None
) -> None:
    pod = job(resource(model=model(source, inspect=True)))["spec"]["template"]["spec"]
    inspect = container(pod)
    assert inspect["command"][-1] == "inspect"
    assert inspect["args"][:-1] == arguments
    mounted = [
        {key: value for key, value in v.items() if key != "name"} for v in pod["volumes"] if v["name"] == "model"
    ]
    assert mounted == ([volume] if volume else [])


def test_pods_meet_the_restricted_pod_security_standard(resource: Make) -> None:
    cached, claimed = (resource(model=model(**given)) for given in ({"cache": CLAIM}, {"source": CLAIM}))
    pod = job(cached)["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for each in (container(pod), *(engine_pods(made)[0]["initContainers"][0] for made in (cached, claimed))):
        assert each["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }


@pytest.mark.parametrize(
    ("given", "field"),
    [
        (model({"path": "/models/llama"}, cache=CLAIM), "spec.model.cache"),
        (model(cache={}), "spec.model.cache"),
        (model(cache={**CLAIM, **NODE}), "spec.model.cache"),
        (model({"path": "/models/llama"}, inspect=True), "spec.model.inspect"),
        (model(architecture={"config": {"x": "y" * 70000}}), "spec.model.architecture.config"),
    ],
)
def test_what_makes_no_sense_is_refused(document: Callable[..., Any], given: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidResourceError) as caught:
        validated(document(model=given))
    assert [problem.field for problem in caught.value.problems] == [field]
