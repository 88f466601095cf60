"""`spec.engine.compileCache`: what P and D run, and which of them share compiled code."""

from collections.abc import Callable
from typing import Any

import pytest

from pdinference.api.engines import runs_engines
from pdinference.api.installation_policy import Policy
from pdinference.api.names import Role
from pdinference.api.v1alpha1 import PDInference
from pdinference.checks import examine
from pdinference.engine.compile_cache import COMPILE_CACHE_MOUNT
from pdinference.engine.vllm import engine_command
from pdinference.manifests import RenderSettings, render
from tests.conftest import allowing

Json = dict[str, Any]
Make = Callable[..., PDInference]
CLAIM = {"persistentVolumeClaim": {"claimName": "compiled"}}
HUB = {"huggingFace": {"repository": "a/b"}}


def program(resource: PDInference, role: Role = Role.DECODE, node_rank: int = 0) -> tuple[str, ...]:
    return engine_command(resource, role, node_rank).program


def key(resource: PDInference, role: Role = Role.DECODE) -> str:
    words = program(resource, role)
    return words[words.index(COMPILE_CACHE_MOUNT) + 1]


def cached(resource: Make, **spec: Any) -> PDInference:
    return resource(**{**spec, "engine": {"compileCache": CLAIM, **spec.get("engine", {})}})


def pods(resource: PDInference, policy: Policy | None = None) -> list[Json]:
    objects = render(resource, RenderSettings(policy=policy or Policy())).objects
    found = [o["spec"]["template"]["spec"] for o in objects if "template" in o.get("spec", {})]
    return [pod for pod in found if any(runs_engines(container["name"]) for container in pod["containers"])]


def problems(document: Json, policy: Policy | None = None) -> dict[str, str]:
    return {p.field: p.message for p in examine(document, RenderSettings(policy=policy or Policy())).problems}


def overlay(variable: str) -> Json:
    container = {"name": "vllm", "env": [{"name": variable, "value": "/elsewhere"}]}
    return {"podTemplate": {"spec": {"containers": [container]}}}


def test_vllm_starts_through_the_program_which_has_the_claim(resource: Make) -> None:
    for pod in pods(cached(resource)):
        (vllm,) = pod["containers"]
        assert vllm["command"][:4] == ["python3", "-I", "/etc/pdinference/scripts/compile_cache.py", "/compile-cache"]
        assert vllm["command"][5:7] == ["8000", "python3"]
        assert {"name": "compile-cache", "mountPath": "/compile-cache"} in vllm["volumeMounts"]
        assert {"name": "compile-cache", **claim("compiled")} in pod["volumes"]
        assert pod["securityContext"]["fsGroup"] == 65532


def test_kernels_are_compiled_where_they_are_kept(resource: Make) -> None:
    """vLLM 0.26 sets Triton's folder only while it compiles the model: the next start would not find its kernels."""
    found = {e["name"]: e["value"] for e in engine_command(cached(resource), Role.DECODE).environment if "value" in e}
    assert found["HOME"] == found["FLASHINFER_WORKSPACE_BASE"] == "/cache"
    assert (found["VLLM_CACHE_ROOT"], found["TRITON_CACHE_DIR"]) == ("/cache/vllm", "/cache/triton")


def claim(name: str) -> Json:
    return {"persistentVolumeClaim": {"claimName": name}}


def test_without_the_field_nothing_of_it_is_there(resource: Make) -> None:
    assert COMPILE_CACHE_MOUNT not in str(pods(resource()))


def test_a_node_that_serves_nothing_has_no_port_to_ask(resource: Make) -> None:
    nodes = {"parallelism": {"nodes": 2, "tensor": 2}}
    made = cached(resource, parameter=nodes, decode={"parallelism": {"tensor": 2}})
    (key_of_first, port), (key_of_second, none) = (program(made, Role.PARAMETER, rank)[4:6] for rank in range(2))
    assert (port, none) == ("8000", "0")
    assert key_of_first != key_of_second, "their ranks differ, and so may their products"


def test_engines_of_one_pod_keep_what_they_compile_apart(resource: Make) -> None:
    shared = {"path": "HostLocal", "hostLocal": {"parameter": 1, "decode": 2}}
    (pod,) = pods(cached(resource, transfer=shared))
    words = [str(word) for container in pod["containers"] for word in (*container["command"], *container["args"])]
    folders = {word for word in words if word.startswith("TRITON_CACHE_DIR=")}
    assert len(folders) == 3
    keys = {words[place + 1] for place, word in enumerate(words) if word == COMPILE_CACHE_MOUNT}
    assert len(keys) == 3


@pytest.mark.parametrize(
    "spec",
    [
        {"rollout": {"drainSeconds": 77}},
        {"model": {"name": "other", "source": HUB}},
        {"decode": {"replicas": 5}},
        {"transfer": {"connector": "Mooncake"}},
    ],
)
def test_what_does_not_change_code_does_not_change_the_key(resource: Make, spec: Json) -> None:
    assert key(cached(resource, **{"model": {"source": HUB}, **spec})) == key(cached(resource, model={"source": HUB}))


@pytest.mark.parametrize(
    "spec",
    [
        {"model": {"source": {"huggingFace": {"repository": "a/c"}}}},
        {"model": {"source": HUB, "dtype": "half"}},
        {"engine": {"image": "registry.example/vllm:v0.32.0"}},
        {"engine": {"env": {"VLLM_X": "1"}}},
        {"decode": {"maxNumSeqs": 7}},
        {"decode": {"parallelism": {"tensor": 2}}},
        {"decode": {"accelerator": {"products": ["NVIDIA-H200"]}}},
    ],
)
def test_what_may_change_code_changes_the_key(resource: Make, spec: Json) -> None:
    assert key(cached(resource, **{"model": {"source": HUB}, **spec})) != key(cached(resource, model={"source": HUB}))


def test_roles_with_the_same_options_share_and_others_do_not(resource: Make) -> None:
    same = cached(resource, engine={"maxNumBatchedTokens": 4096})
    assert key(same, Role.PARAMETER) == key(same, Role.DECODE)
    apart = cached(resource, parameter={"maxNumBatchedTokens": 8192}, decode={"maxNumBatchedTokens": 512})
    assert key(apart, Role.PARAMETER) != key(apart, Role.DECODE)


@pytest.mark.parametrize(
    "model",
    [
        {"source": HUB, "cache": {"persistentVolumeClaim": {"claimName": "models"}}},
        {"source": {"persistentVolumeClaim": {"claimName": "models"}}},
    ],
)
def test_it_lies_where_no_models_are(document: Callable[..., Json], model: Json) -> None:
    engine = {"compileCache": {"persistentVolumeClaim": {"claimName": "models"}}}
    (field,) = problems(document(model=model, engine=engine))
    assert field == "spec.engine.compileCache.persistentVolumeClaim.claimName"


def test_a_folder_of_nodes_is_for_one_namespace(document: Callable[..., Json]) -> None:
    spec: Json = {"engine": {"compileCache": {"hostPath": {"path": "/srv/code"}}}}
    field = "spec.engine.compileCache.hostPath.path"
    wanted = "add {path: /srv/code, readOnly: false, namespaces: [models]} to the chart value allowedHostPaths"
    for policy in (Policy(), allowing("/srv/code"), allowing(writable=["/srv/code"])):
        assert wanted in problems(document(**spec), policy)[field]
    own = allowing(code={"/srv/code": "models"})
    assert problems(document(**spec), own) == {}
    for more in ({}, {"namespaces": ["others"]}, {"namespaces": ["models", "others"]}):
        entries = [{"path": "/srv/code", "readOnly": False, **each} for each in ({"namespaces": ["models"]}, more)]
        assert wanted in problems(document(**spec), Policy.model_validate({"allowedHostPaths": entries}))[field]
    there = {"source": HUB, "cache": {"hostPath": {"path": "/srv/code"}}}
    assert "holds models" in problems(document(model=there, **spec), own)[field]


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"engine": {"env": {"TRITON_CACHE_DIR": "/compile-cache"}}}, "spec.engine.env.TRITON_CACHE_DIR"),
        ({"decode": {"env": {"VLLM_CACHE_ROOT": "/elsewhere"}}}, "spec.decode.env.VLLM_CACHE_ROOT"),
        (
            {"parameter": overlay("FLASHINFER_WORKSPACE_BASE")},
            "spec.parameter.podTemplate.spec.containers[0].env.FLASHINFER_WORKSPACE_BASE",
        ),
    ],
)
def test_nobody_moves_compiled_code_elsewhere(document: Callable[..., Json], spec: Json, field: str) -> None:
    """The program empties these folders after a start that failed."""
    assert problems(document(**spec)) == {}, "without a compile cache they are the user's"
    engine = {"compileCache": CLAIM, **spec.get("engine", {})}
    assert problems(document(**{**spec, "engine": engine}))[field] == (
        "With spec.engine.compileCache the operator sets this variable. Remove it."
    )


@pytest.mark.parametrize(
    "spec",
    [
        [1],
        "text",
        {"containers": "text"},
        {"containers": [1, {"env": 5}]},
        {"containers": [{"name": [], "env": ["text", {"name": "VLLM_DISABLE_COMPILE_CACHE", "value": []}]}]},
    ],
)
def test_a_pod_template_of_any_form_is_refused_and_breaks_nothing(document: Callable[..., Json], spec: object) -> None:
    made = document(engine={"compileCache": CLAIM}, decode={"podTemplate": {"spec": spec}})
    assert all(field.startswith("spec.decode.podTemplate") for field in problems(made))
    assert problems(made)


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"engine": {"enforceEager": True}}, "spec.engine.compileCache"),
        ({"engine": {"env": {"VLLM_DISABLE_COMPILE_CACHE": "1"}}}, "spec.engine.env.VLLM_DISABLE_COMPILE_CACHE"),
    ],
)
def test_where_there_is_nothing_to_keep_a_warning_says_so(
    document: Callable[..., Json], spec: Json, field: str
) -> None:
    made = document(engine={"compileCache": CLAIM, **spec["engine"]})
    assert field in {warning.field for warning in examine(made, RenderSettings()).warnings}
    assert field not in {warning.field for warning in examine(document(**spec), RenderSettings()).warnings}
