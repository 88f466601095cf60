"""Resources that the installation policy does not allow are rejected, with the field and the chart value."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdinference.api.installation_policy import Policy, matches
from pdinference.api.v1alpha1 import PDInference
from pdinference.api.validation import InvalidResourceError
from pdinference.checks import examine, examine_batch
from pdinference.engine.refused import DEVICE_ENVIRONMENT
from pdinference.manifests import RenderSettings, render
from tests.conftest import allowing

Json = dict[str, Any]
Make = Callable[..., PDInference]
TOKEN = {"name": "hub", "key": "token"}
FOLDERS = allowing("/data/models", writable=["/srv/cache"])


def mounting(resource: Make, path: str) -> PDInference:
    return resource(model={"source": {"hostPath": {"path": path}}})


def caching(path: str) -> Json:
    return {"source": {"huggingFace": {"repository": "a/b"}}, "cache": {"hostPath": {"path": path}}}


def found(document: Json, policy: Policy | None = None) -> dict[str, str]:
    settings = RenderSettings(policy=policy or Policy())
    return {problem.field: problem.message for problem in examine(document, settings).problems}


def pods(resource: PDInference, policy: Policy) -> list[Json]:
    objects = render(resource, RenderSettings(policy=policy)).objects
    return [o["spec"]["template"] for o in objects if "template" in o.get("spec", {})]


@pytest.mark.parametrize("path", ["/data/models", "/data/models/llama"])
def test_folders_below_one_to_read_may_be_mounted(resource: Make, path: str) -> None:
    assert pods(mounting(resource, path), FOLDERS)


@pytest.mark.parametrize(
    "path", ["/", "/data", "/data/models-of-others", "/etc", "/data/models/../../etc", "/srv/cache/link"]
)
def test_no_other_folder_may(resource: Make, path: str) -> None:
    with pytest.raises(ValueError, match=r"allowed|absolute path"):
        pods(mounting(resource, path), FOLDERS)


def test_without_an_allowance_none_may(document: Callable[..., Json]) -> None:
    problems = found(document(model={"source": {"hostPath": {"path": "/data"}}}))
    assert "allowedHostPaths" in problems["spec.model.source.hostPath.path"]


def test_a_cache_needs_a_folder_to_write(document: Callable[..., Json], resource: Make) -> None:
    problems = found(document(model=caching("/data/models")), FOLDERS)
    assert "readOnly: false" in problems["spec.model.cache.hostPath.path"]
    assert pods(resource(model=caching("/srv/cache")), FOLDERS)


def test_a_disk_tier_needs_a_folder_to_write(document: Callable[..., Json]) -> None:
    tiers = {"cpu": {"size": "8Gi"}, "disk": {"size": "9Gi", "hostPath": "/data/models"}}
    problems = found(document(decode={"kvTiers": tiers}), FOLDERS)
    assert "readOnly: false" in problems["spec.decode.kvTiers.disk.hostPath"]


def test_a_folder_may_be_for_some_namespaces_only(document: Callable[..., Json]) -> None:
    policy = Policy.model_validate(
        {"allowedHostPaths": [{"path": "/data/b", "namespaces": ["b"]}, {"path": "/data/m", "namespaces": ["models"]}]}
    )
    own, others = ({"source": {"hostPath": {"path": path}}} for path in ("/data/m/x", "/data/b/x"))
    assert found(document(model=own), policy) == {}
    (message,) = found(document(model=others), policy).values()
    assert "/data/m" in message
    assert "/data/b and" not in message


@pytest.mark.parametrize("inner", ["/srv/models/cache", "/srv"])
def test_pods_write_into_no_folder_that_leads_to_another(inner: str) -> None:
    with pytest.raises(ValueError, match="link"):
        allowing("/srv/models", writable=[inner])
    with pytest.raises(ValueError, match="link"):
        allowing(writable=["/srv/models", inner])


@pytest.mark.parametrize("model", [{"source": {"hostPath": {"path": "/data/models/x"}}}, caching("/srv/cache")])
def test_overlays_mount_a_folder_of_models_read_only(resource: Make, model: Json) -> None:
    mounts = [{"name": "model", "mountPath": "/models"}, {"name": "model", "mountPath": "/m", "readOnly": False}]
    side_car = {"name": "s", "image": "s:1", "volumeMounts": mounts}
    overlay = {
        "containers": [{"name": "vllm", "volumeMounts": mounts}, side_car],
        "initContainers": [{**side_car, "name": "i"}],
    }
    made = resource(model=model, decode={"podTemplate": {"spec": overlay}})
    for pod in pods(made, FOLDERS):
        for container in (*pod["spec"]["containers"], *pod["spec"].get("initContainers", ())):
            for mount in container.get("volumeMounts", ()):
                writes = container["name"] == "pdinference-model" or mount["name"] != "model"
                assert writes or mount["readOnly"], (container["name"], mount)


@pytest.mark.parametrize(
    ("placement", "field", "value"),
    [
        ({"priorityClassName": "system-node-critical"}, "priorityClassName", "policy.priorityClasses"),
        ({"runtimeClassName": "runc-privileged"}, "runtimeClassName", "policy.runtimeClasses"),
        ({"tolerations": [{"operator": "Exists"}]}, "tolerations[0].key", "policy.tolerations"),
        (
            {"tolerations": [{"key": "node-role.kubernetes.io/control-plane", "operator": "Exists"}]},
            "tolerations[0].key",
            "policy.tolerations",
        ),
    ],
)
@pytest.mark.parametrize("part", ["parameter", "decode", "router"])
def test_placement_keeps_to_the_policy(
    document: Callable[..., Json], part: str, placement: Json, field: str, value: str
) -> None:
    assert value in found(document(**{part: {"placement": placement}}))[f"spec.{part}.placement.{field}"]


def test_a_batch_keeps_to_the_policy(batch_document: Callable[..., Json]) -> None:
    placement = {"priorityClassName": "system-x", "tolerations": [{"operator": "Exists"}]}
    problems = examine_batch(batch_document(placement=placement), RenderSettings()).problems
    assert [problem.field for problem in problems] == [
        "spec.placement.priorityClassName",
        "spec.placement.tolerations[0].key",
    ]


def test_the_router_has_an_image_of_the_installation(document: Callable[..., Json]) -> None:
    made = document(router={"image": "registry.example/router:2"})
    assert "policy.routerImages" in found(made)["spec.router.image"]
    assert found(made, allowing(routerImages=["registry.example/router:*"])) == {}
    own = RenderSettings(router_image="registry.example/router:2")
    assert not examine(made, own).problems


def test_the_service_takes_no_name_of_others(document: Callable[..., Json]) -> None:
    def asked(key: str, **policy: Any) -> dict[str, str]:
        service = {"type": "LoadBalancer", "annotations": {key: "bank.example"}}
        return found(document(router={"service": service}), allowing(**policy))

    for key in ("external-dns.alpha.kubernetes.io/hostname", "metallb.universe.tf/allow-shared-ip"):
        assert "policy.serviceAnnotations" in asked(key)[f"spec.router.service.annotations.{key}"]
        assert asked(key, serviceAnnotations=[key]) == {}
    assert asked("service.beta.kubernetes.io/aws-load-balancer-internal") == asked("team") == {}


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("HF_ENDPOINT", "https://evil.example"),
        ("HF_ENDPOINT", "http://huggingface.co"),
        ("HF_ENDPOINT", "https://huggingface.co@evil.example"),
        ("HF_ENDPOINT", "https://huggingface.co\\@evil.example/"),
        ("HF_ENDPOINT", "https://huggingface.co.evil.example"),
        ("HF_ENDPOINT", "https://evilhuggingface.co"),
        ("HF_ENDPOINT", "https://huggingface.co#@evil.example"),
        ("HF_ENDPOINT", " https://evil.example"),
        ("HF_INFERENCE_ENDPOINT", "https://evil.example"),
        ("HF_XET_CAS_ENDPOINT", "https://evil.example"),
        ("MODELSCOPE_DOMAIN", "evil.example"),
        ("MODELSCOPE_ENDPOINT", "https://evil.example"),
        ("HTTPS_PROXY", "http://evil.example:3128"),
        ("https_proxy", "http://evil.example:3128"),
        ("ALL_PROXY", "socks5://evil.example"),
        ("HTTPS_PROXY", "http://user:password@huggingface.co"),
    ],
)
@pytest.mark.parametrize("part", ["engine", "decode"])
def test_a_token_goes_to_no_other_host(document: Callable[..., Json], part: str, variable: str, value: str) -> None:
    source = {"huggingFace": {"repository": "a/b", "tokenSecret": TOKEN}}
    environment = {part: {"env": {variable: value}}}
    assert f"spec.{part}.env.{variable}" in found(document(model={"source": source}, **environment))
    without = {"huggingFace": {"repository": "a/b"}}
    if part == "engine":  # P and D must agree on it
        assert found(document(model={"source": without}, **environment)) == {}


@pytest.mark.parametrize(
    ("hosts", "environment"),
    [
        (None, {"HF_ENDPOINT": "https://huggingface.co"}),
        (None, {"HF_ENDPOINT": "https://huggingface.co/", "HF_HUB_ENABLE_HF_TRANSFER": "1", "NO_PROXY": "*"}),
        (["mirror.example"], {"HF_ENDPOINT": "https://mirror.example/hf"}),
        (["http://mirror.models.svc"], {"HF_ENDPOINT": "http://mirror.models.svc:8080"}),
        (["proxy.example"], {"HTTPS_PROXY": "http://proxy.example:3128"}),
    ],
)
def test_a_token_goes_to_hosts_that_are_allowed(
    document: Callable[..., Json], hosts: list[str] | None, environment: Mapping[str, str]
) -> None:
    source = {"huggingFace": {"repository": "a/b", "tokenSecret": TOKEN}}
    policy = allowing(hubHosts=hosts) if hosts else None
    assert found(document(model={"source": source}, engine={"env": environment}), policy) == {}


def test_a_refused_host_is_named_with_the_value_that_allows_it(document: Callable[..., Json]) -> None:
    source = {"huggingFace": {"repository": "a/b", "tokenSecret": TOKEN}}
    made = document(model={"source": source}, engine={"env": {"HF_ENDPOINT": "https://evil.example"}})
    (message,) = found(made).values()
    assert "evil.example" in message
    assert "policy.hubHosts" in message


def test_tokens_may_be_taken_from_some_secrets_only(document: Callable[..., Json]) -> None:
    made = document(model={"source": {"huggingFace": {"repository": "a/b", "tokenSecret": TOKEN}}})
    assert found(made) == {}
    assert "policy.tokenSecrets" in str(found(made, allowing(tokenSecrets=["hf-*"])))


@pytest.mark.parametrize(
    "name", ["HUGGING_FACE_HUB_TOKEN", "VLLM_ALLOW_INSECURE_SERIALIZATION", "MODELSCOPE_API_TOKEN"]
)
def test_variables_that_show_or_open_something_are_refused(document: Callable[..., Json], name: str) -> None:
    assert f"spec.decode.env.{name}" in found(document(decode={"env": {name: "1"}}))


def test_rdma_pins_memory_only_where_that_is_allowed(resource: Make) -> None:
    rdma = resource(transfer={"rdma": {"resourceName": "rdma/ib"}})
    for policy, added in ((Policy(), None), (allowing(capabilities=["IPC_LOCK"]), ["IPC_LOCK"])):
        vllm = pods(rdma, policy)[0]["spec"]["containers"][0]
        assert vllm["securityContext"]["capabilities"].get("add") == added


def test_pods_that_do_not_meet_the_standard_are_not_rendered(resource: Make) -> None:
    made = mounting(resource, "/data/models")
    with pytest.raises(InvalidResourceError, match="hostPath"):
        pods(made, Policy())


@pytest.mark.parametrize(
    ("pattern", "text", "fits"),
    [
        ("a", "a", True),
        ("a", "ab", False),
        ("*", "", True),
        ("a*", "abc", True),
        ("*c", "abc", True),
        ("a*c", "abc", True),
        ("a*b*c", "aXbYc", True),
        ("a*b*c", "acb", False),
        ("ab*ba", "aba", False),
        ("*.hf.co", "evilhf.co", False),
    ],
)
def test_a_star_stands_for_any_text(pattern: str, text: str, fits: bool) -> None:
    assert matches(pattern, text) is fits


def test_a_pattern_with_many_stars_ends() -> None:
    assert not matches("*a" * 200 + "b", "a" * 100_000)


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
def test_whatever_an_overlay_holds_it_is_rendered_or_refused(template: Json) -> None:
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


@pytest.mark.parametrize("depth", [50, 200])  # api/bounds.py refuses a document of more than 64 before
def test_an_overlay_of_any_depth_is_refused(resource: Make, depth: int) -> None:
    nested: Json = {}
    for _ in range(depth):
        nested = {"a": nested}
    with pytest.raises(InvalidResourceError, match="levels"):
        render(resource(decode={"podTemplate": {"spec": nested}}), RenderSettings())


@pytest.mark.parametrize("part", ["engine", "parameter", "decode"])
def test_no_variable_chooses_devices(document: Callable[..., Json], part: str) -> None:
    problems = found(document(**{part: {"env": dict.fromkeys(DEVICE_ENVIRONMENT, "0")}}))
    assert problems.keys() == {f"spec.{part}.env.{name}" for name in DEVICE_ENVIRONMENT}
    for words in ("parallelism", "accelerator.products", "accelerator.devices"):
        assert all(words in message for message in problems.values())


def test_the_order_in_which_devices_are_numbered_may_be_set(document: Callable[..., Json]) -> None:
    """vLLM itself asks for it where GPUs of a node differ."""
    assert found(document(engine={"env": {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}})) == {}
