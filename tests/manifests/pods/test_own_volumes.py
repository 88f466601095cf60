"""Only one container of a pod has the account's token, and no overlay mounts it in another."""

from collections.abc import Callable
from typing import Any

import pytest

from pdinference.api.v1alpha1 import PDBatch, PDInference
from pdinference.api.validation import InvalidResourceError
from pdinference.engine.batch import ServiceAccess
from pdinference.manifests import RenderSettings, render
from pdinference.manifests.batch import render_batch
from pdinference.manifests.pods.own_volumes import (
    API_ACCESS_MOUNT,
    API_ACCESS_VOLUME,
    API_KEYS_VOLUME,
    TLS_VOLUME,
    own_volume_problems,
)
from tests.conftest import EXAMPLES, example_documents

Make = Callable[..., Any]
Json = dict[str, Any]
SIDE_CAR = {
    "name": "proxy",
    "image": "registry.example/proxy:1",
    "volumeMounts": [{"name": "cache", "mountPath": "/cache"}],
}
CACHED = {
    "source": {"huggingFace": {"repository": "o/n"}},
    "cache": {"persistentVolumeClaim": {"claimName": "models"}},
}


def pods(objects: Any) -> dict[str, Json]:
    """The pods of all workloads that name an account, by the workload's name."""
    templates = {
        o["metadata"]["name"]: o["spec"]["template"]["spec"] for o in objects if "template" in o.get("spec", {})
    }
    return {name: pod for name, pod in templates.items() if "serviceAccountName" in pod}


def with_token(pod: Json) -> set[str]:
    """Containers with a token, of a pod that does not give it to all."""
    assert pod["automountServiceAccountToken"] is False
    (volume,) = [volume for volume in pod["volumes"] if "projected" in volume]
    assert volume["name"] == API_ACCESS_VOLUME
    token, authority, namespace = volume["projected"]["sources"]
    assert token == {"serviceAccountToken": {"path": "token", "expirationSeconds": 3600}}
    assert authority["configMap"]["name"] == "kube-root-ca.crt"
    assert namespace["downwardAPI"]["items"][0]["path"] == "namespace"
    mount = {"name": API_ACCESS_VOLUME, "mountPath": API_ACCESS_MOUNT, "readOnly": True}
    containers = [*pod["containers"], *pod.get("initContainers", ())]
    return {container["name"] for container in containers if mount in container.get("volumeMounts", ())}


def router_with(overlay: Json, resource: Make) -> Json:
    rendered = render(resource(router={"podTemplate": {"spec": overlay}}), RenderSettings())
    return pods(rendered.objects)["llama-router"]


def test_of_a_router_pod_only_the_router_has_the_token(resource: Make) -> None:
    overlay = {
        "volumes": [{"name": "cache", "emptyDir": {}}],
        "containers": [SIDE_CAR],
        "initContainers": [{**SIDE_CAR, "name": "first"}],
    }
    pod = router_with(overlay, resource)
    assert [container["name"] for container in pod["containers"]] == ["router", "proxy"]
    assert with_token(pod) == {"router"}


def test_the_router_mounts_the_secrets_that_the_spec_names(resource: Make) -> None:
    secrets = {"apiKeys": {"secretName": "keys"}, "tls": {"secretName": "certificate"}}
    pod = pods(render(resource(router=secrets), RenderSettings()).objects)["llama-router"]
    volumes = {v["name"]: v["secret"]["secretName"] for v in pod["volumes"] if "secret" in v}
    assert volumes == {"api-keys": "keys", "tls-certificate": "certificate"}
    (router,) = pod["containers"]
    mounts = {m["name"]: (m["mountPath"], m["readOnly"]) for m in router["volumeMounts"] if m["name"] in volumes}
    assert mounts == {
        "api-keys": ("/etc/pdinference/api-keys", True),
        "tls-certificate": ("/etc/pdinference/tls", True),
    }


def test_of_jobs_only_what_writes_has_it(resource: Make, batch_document: Make) -> None:
    job = next(o for o in render(resource(model=CACHED), RenderSettings()).objects if o["kind"] == "Job")
    assert with_token(job["spec"]["template"]["spec"]) == {"pdinference-model"}
    batch = PDBatch.model_validate(batch_document(output={"configMap": {"name": "answers"}}))
    (runner,) = pods(render_batch(batch, ServiceAccess("http://x", "m"), RenderSettings())).values()
    assert with_token(runner) == {"runner"}


@pytest.mark.parametrize("document", [d for path in EXAMPLES for d in example_documents(path)], ids=str)
def test_no_pod_has_a_token_that_nothing_needs(document: Json) -> None:
    for item in render(PDInference.model_validate(document), RenderSettings()).objects:
        pod = item.get("spec", {}).get("template", {}).get("spec")
        if pod is not None:
            assert pod["automountServiceAccountToken"] is False
            assert ("serviceAccountName" in pod) is any("projected" in volume for volume in pod.get("volumes", ()))


def mounting(container: str, path: str, volume: str = "cache") -> Json:
    return {"name": container, "volumeMounts": [{"name": volume, "mountPath": path}]}


@pytest.mark.parametrize(
    ("overlay", "field"),
    [
        *(
            ({kind: [mounting(name, "/x", volume)]}, f"{kind}[{name}].volumeMounts[{volume}]")
            for volume in (API_ACCESS_VOLUME, API_KEYS_VOLUME, TLS_VOLUME)
            for kind, name in (
                ("containers", "proxy"),
                ("containers", "router"),
                ("initContainers", "proxy"),
            )
        ),
        ({"volumes": [{"name": API_ACCESS_VOLUME, "emptyDir": {}}]}, f"volumes[{API_ACCESS_VOLUME}]"),
        ({"shareProcessNamespace": True}, "shareProcessNamespace"),
        ({"containers": [mounting("router", API_ACCESS_MOUNT)]}, "containers[router].volumeMounts"),
        ({"containers": [mounting("router", "/run")]}, "containers[router].volumeMounts"),
    ],
    ids=str,
)
def test_an_overlay_cannot_get_at_it(resource: Make, overlay: Json, field: str) -> None:
    with pytest.raises(InvalidResourceError) as refusal:
        router_with(overlay, resource)
    assert f"spec.router.podTemplate.spec.{field}" in {problem.field for problem in refusal.value.problems}


@pytest.mark.parametrize("odd", [5, "x", [5], [None], {"a": 1}, [{"name": ["api-access"]}], [{"name": {}}]], ids=str)
@pytest.mark.parametrize("member", ["volumes", "containers", "initContainers", "volumeMounts"])
def test_of_odd_overlays_nothing_is_said_here(odd: Any, member: str) -> None:
    spec = {"containers": [{"name": "router", member: odd}]} if member == "volumeMounts" else {member: odd}
    assert list(own_volume_problems("spec.router.podTemplate", {"spec": spec})) == []
    assert list(own_volume_problems("spec.router.podTemplate", {"spec": odd})) == []
