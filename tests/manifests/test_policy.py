"""What an installation does not allow is refused, with the field and whom to ask."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdinference.api.v1alpha1 import PDInference
from pdinference.api.validation import InvalidResourceError
from pdinference.manifests import RenderSettings, render


def mounting(resource: Callable[..., PDInference], path: str) -> PDInference:
    return resource(model={"source": {"hostPath": {"path": path}}})


@pytest.mark.parametrize("path", ["/data/models", "/data/models/llama"])
def test_folders_below_an_allowed_one_may_be_mounted(resource: Callable[..., PDInference], path: str) -> None:
    assert render(mounting(resource, path), RenderSettings(allowed_host_paths=("/data/models",))).objects


@pytest.mark.parametrize("path", ["/", "/data", "/data/models-of-others", "/etc", "/data/models/../../etc"])
def test_no_other_folder_may(resource: Callable[..., PDInference], path: str) -> None:
    with pytest.raises(ValueError, match=r"allowed|absolute path"):
        render(mounting(resource, path), RenderSettings(allowed_host_paths=("/data/models",)))


def test_without_an_allowance_none_may(resource: Callable[..., PDInference]) -> None:
    with pytest.raises(InvalidResourceError) as caught:
        render(mounting(resource, "/data"), RenderSettings())
    (problem,) = caught.value.problems
    assert problem.field == "spec.model.source.hostPath.path"
    assert "allowedHostPaths" in problem.message


def refused(resource: Callable[..., PDInference], template: dict[str, Any], role: str = "decode") -> dict[str, str]:
    with pytest.raises(InvalidResourceError) as caught:
        render(resource(**{role: {"podTemplate": template}}), RenderSettings(allowed_host_paths=("/data",)))
    return {problem.field: problem.message for problem in caught.value.problems}


@pytest.mark.parametrize("role", ["parameter", "decode", "router"])
@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"hostNetwork": True}, "hostNetwork"),
        ({"hostPID": True}, "hostPID"),
        ({"serviceAccountName": "admin"}, "serviceAccountName"),
        ({"automountServiceAccountToken": True}, "automountServiceAccountToken"),
        ({"nodeName": "node-1"}, "nodeName"),
        ({"securityContext": {"runAsUser": 0}}, "securityContext.runAsUser"),
        ({"securityContext": {"sysctls": [{"name": "a", "value": "b"}]}}, "securityContext.sysctls"),
        ({"securityContext": None}, "securityContext"),
        ({"volumes": [{"name": "v", "hostPath": {"path": "/etc"}}]}, "volumes[v].hostPath.path"),
        ({"volumes": [{"name": "v", "hostPath": {"path": "/data/../etc"}}]}, "volumes[v].hostPath.path"),
        ({"containers": [{"name": "vllm", "command": ["sh"]}]}, "containers[vllm].command"),
        ({"containers": [{"name": "vllm", "args": ["--model=x"]}]}, "containers[vllm].args"),
        ({"containers": [{"name": "vllm", "image": "x"}]}, "containers[vllm].image"),
        (
            {"containers": [{"name": "vllm", "env": [{"name": "VLLM_SERVER_DEV_MODE", "value": "1"}]}]},
            "containers[vllm].env[VLLM_SERVER_DEV_MODE]",
        ),
        (
            {"containers": [{"name": "s", "securityContext": {"privileged": True}}]},
            "containers[s].securityContext.privileged",
        ),
        (
            {"initContainers": [{"name": "i", "securityContext": {"capabilities": {"add": ["SYS_ADMIN"]}}}]},
            "initContainers[i].securityContext.capabilities.add",
        ),
        ({"containers": [{"name": "s", "ports": [{"containerPort": 1, "hostPort": 1}]}]}, "containers[s].ports"),
    ],
)
def test_an_overlay_cannot_reach_out_of_the_pod(
    resource: Callable[..., PDInference], role: str, spec: dict[str, Any], field: str
) -> None:
    assert f"spec.{role}.podTemplate.spec.{field}" in refused(resource, {"spec": spec}, role)


def test_an_overlay_cannot_take_labels_that_selectors_depend_on(resource: Callable[..., PDInference]) -> None:
    found = refused(resource, {"metadata": {"labels": {"pdinference.io/role": "router"}}})
    assert "pdinference.io/role" in found["spec.decode.podTemplate.metadata.labels"]


def test_all_problems_are_named_at_once(resource: Callable[..., PDInference]) -> None:
    assert len(refused(resource, {"spec": {"hostPID": True, "hostIPC": True}, "kind": "Pod"})) == 3


def test_what_stays_within_the_pod_is_allowed(resource: Callable[..., PDInference]) -> None:
    template = {
        "metadata": {"annotations": {"team": "search"}, "labels": {"team": "search"}},
        "spec": {
            "imagePullSecrets": [{"name": "registry"}],
            "volumes": [{"name": "adapters", "persistentVolumeClaim": {"claimName": "adapters"}}],
            "containers": [
                {
                    "name": "vllm",
                    "resources": {"limits": {"rdma/ib": "1"}},
                    "securityContext": {"capabilities": {"add": ["IPC_LOCK"]}},
                    "volumeMounts": [{"name": "adapters", "mountPath": "/adapters"}],
                },
                {"name": "side-car", "image": "registry.example/side-car:1"},
            ],
        },
    }
    rendered = render(resource(decode={"podTemplate": template}), RenderSettings())
    (decode,) = (o for o in rendered.objects if o["metadata"]["name"].startswith("llama-decode-"))
    pod = decode["spec"]["template"]
    assert pod["metadata"]["labels"]["team"] == "search"
    vllm, side_car = pod["spec"]["containers"]
    assert vllm["securityContext"]["capabilities"] == {"drop": ["ALL"], "add": ["IPC_LOCK"]}
    assert vllm["resources"]["limits"] == {"nvidia.com/gpu": "1", "rdma/ib": "1"}
    assert side_car["name"] == "side-car"
    assert rendered.revision != render(resource(), RenderSettings()).revision


@given(
    st.recursive(
        st.none() | st.booleans() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    ["spec", "metadata", "labels", "containers", "name", "env", "securityContext", "volumes"]
                ),
                inner,
                max_size=4,
            )
        ),
        max_leaves=12,
    ).filter(lambda value: isinstance(value, dict))
)
def test_whatever_an_overlay_holds_it_is_rendered_or_refused(template: dict[str, Any]) -> None:
    document = {
        "metadata": {"name": "x"},
        "spec": {"model": {"source": {"path": "/m"}}, "decode": {"podTemplate": template}},
        "apiVersion": "pdinference.io/v1alpha1",
        "kind": "PDInference",
    }
    try:
        assert render(PDInference.model_validate(document), RenderSettings()).objects
    except InvalidResourceError as error:
        assert error.problems  # noqa: PT017 - either outcome is right
