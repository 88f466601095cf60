"""The children of a resource, pinned by golden files and properties."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes.aio import client

from pdinference.api import names
from pdinference.api.v1alpha1 import PDInference
from pdinference.cli.plain_yaml import BlockDumper
from pdinference.manifests import Manifest, RenderSettings, render
from tests.conftest import EXAMPLES, FOR_EVERY_FIELD, Golden, example_documents
from tests.manifests.rendering import SETTINGS, children, only, pod_spec
from tests.manifests.summary import summary

Make = Callable[..., PDInference]
GOLDEN = Path(__file__).parent / "golden"
WHOLE = [path for path in EXAMPLES if path.stem in {"llama-8b", "llama-70b-two-nodes"}]
"""Each part of a manifest is in one of these. Of other examples, golden files say what pods run, and what changed."""


def everything(resource: PDInference, settings: RenderSettings = SETTINGS) -> list[Manifest]:
    """All children, HPAs among them."""
    return list(render(resource, settings).objects)


def of_example(path: Path) -> list[Manifest]:
    return [o for d in example_documents(path) for o in everything(PDInference.model_validate(d))]


WORKLOADS = [("StatefulSet", "parameter"), ("Deployment", "decode"), ("Deployment", "router")]


@pytest.mark.parametrize("path", WHOLE, ids=lambda path: path.stem)
def test_two_examples_render_as_pinned(path: Path, golden: Golden) -> None:
    golden(GOLDEN / path.name, yaml.dump_all(of_example(path), Dumper=BlockDumper, sort_keys=False, width=120))


def test_what_the_other_examples_run_and_a_digest_of_each_child_are_pinned(golden: Golden) -> None:
    found = {path.stem: summary(of_example(path)) for path in EXAMPLES if path not in WHOLE}
    golden(GOLDEN / "examples.yaml", yaml.safe_dump(found, sort_keys=False, width=120))


def test_commands_of_pods_and_digests_of_children_are_pinned(
    document: Callable[..., dict[str, Any]], golden: Golden
) -> None:
    specs = yaml.safe_load((Path(__file__).parent / "every_field.yaml").read_text())
    settings = RenderSettings(router_image=SETTINGS.router_image, policy=FOR_EVERY_FIELD)
    found = {
        name: summary(everything(PDInference.model_validate({**document(), "spec": spec}), settings))
        for name, spec in specs.items()
    }
    golden(GOLDEN / "every_field.yaml", yaml.safe_dump(found, sort_keys=False, width=120))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_no_field_is_misspelt(example: Path) -> None:
    """The official client's models refuse what the API does not know."""
    for document in example_documents(example):
        for manifest in everything(PDInference.model_validate(document)):
            if manifest["apiVersion"] == names.API_VERSION:  # of our own CRD
                continue
            version = "V2" if manifest["apiVersion"] == "autoscaling/v2" else "V1"
            model = getattr(client, f"{version}{manifest['kind']}")
            model.model_validate(manifest)


def test_rendering_is_deterministic(resource: Make) -> None:
    assert render(resource(), SETTINGS) == render(resource(), SETTINGS)


def test_every_child_is_owned_labelled_and_in_the_resources_namespace(resource: Make) -> None:
    for manifest in render(resource(), SETTINGS).objects:
        metadata = manifest["metadata"]
        (owner,) = metadata["ownerReferences"]
        assert (owner["uid"], owner["controller"]) == ("6f1c", True)
        assert metadata["namespace"] == "models"
        assert metadata["labels"].items() >= names.instance_labels("llama").items()


def test_no_two_children_share_a_name(resource: Make) -> None:
    objects = render(resource(), SETTINGS).objects
    assert len({(o["kind"], o["metadata"]["name"]) for o in objects}) == len(objects)


@pytest.mark.parametrize(("kind", "role"), WORKLOADS)
def test_selectors_match_the_pods_and_nothing_else(resource: Make, kind: str, role: str) -> None:
    workload = only(resource(), kind, role)
    labels = workload["spec"]["template"]["metadata"]["labels"]
    selector = workload["spec"]["selector"]["matchLabels"]
    assert selector.items() <= labels.items()
    assert selector[names.LABEL_NAME] == "llama"
    assert selector[names.LABEL_ROLE] == role


@pytest.mark.parametrize(("kind", "role"), WORKLOADS)
def test_pods_meet_the_restricted_pod_security_standard(resource: Make, kind: str, role: str) -> None:
    spec = pod_spec(only(resource(), kind, role))
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not {"hostNetwork", "hostPID", "hostIPC"} & spec.keys()
    assert all({"emptyDir", "persistentVolumeClaim", "projected"} & volume.keys() for volume in spec["volumes"])
    for container in spec["containers"]:
        context = container["securityContext"]
        assert context["allowPrivilegeEscalation"] is False
        assert context["capabilities"] == {"drop": ["ALL"]}
        assert context["readOnlyRootFilesystem"] is True


@pytest.mark.parametrize(("kind", "role"), WORKLOADS)
def test_pods_stop_in_order(resource: Make, kind: str, role: str) -> None:
    spec = pod_spec(only(resource(rollout={"drainSeconds": 100}), kind, role))
    (container,) = spec["containers"]
    pre_stop = container["lifecycle"]["preStop"]["sleep"]["seconds"]
    drain = 300 if role == "router" else 100
    ends = 10  # seconds that a process needs after its own deadline: to report, to free GPUs, to exit
    assert spec["terminationGracePeriodSeconds"] >= pre_stop + drain + ends


@pytest.mark.parametrize(("kind", "role"), WORKLOADS)
def test_services_do_not_leak_into_the_environment(resource: Make, kind: str, role: str) -> None:
    assert pod_spec(only(resource(), kind, role))["enableServiceLinks"] is False


def test_vllm_is_reached_by_the_router_and_the_other_role_only(resource: Make) -> None:
    policy = only(resource(), "NetworkPolicy", "parameter")
    from_router, from_peer = policy["spec"]["ingress"]
    (router,) = from_router["from"]
    (peer,) = from_peer["from"]
    assert router["podSelector"]["matchLabels"] == names.role_selector("llama", names.Role.ROUTER)
    assert peer["podSelector"]["matchLabels"] == names.role_selector("llama", names.Role.DECODE)
    assert from_router["ports"] == [{"port": "http", "protocol": "TCP"}]


def test_start_up_may_take_an_hour(resource: Make) -> None:
    (container,) = pod_spec(only(resource(), "StatefulSet", "parameter"))["containers"]
    probe = container["startupProbe"]
    assert probe["periodSeconds"] * probe["failureThreshold"] == 3600


def test_a_router_may_start_slowly_and_is_noticed_at_once(resource: Make) -> None:
    (container,) = pod_spec(only(resource(), "Deployment", "router"))["containers"]
    start, ready, live = (container[f"{kind}Probe"] for kind in ("startup", "readiness", "liveness"))
    assert start["periodSeconds"] * start["failureThreshold"] == 300
    assert start["httpGet"] == live["httpGet"], "not /readyz, which waits for P and D"
    assert start["periodSeconds"] == ready["periodSeconds"] == 2


class TestDevices:
    """GPUs are requested, chosen by product, and their nodes' taint tolerated."""

    def test_one_device_for_each_tensor_parallel_rank(self, resource: Make) -> None:
        r = resource(
            decode={
                "parallelism": {"tensor": 4},
                "accelerator": {"resourceName": "amd.com/gpu"},
                "resources": {"requests": {"cpu": 8}},
            }
        )
        (container,) = pod_spec(only(r, "Deployment", "decode"))["containers"]
        assert container["resources"] == {
            "requests": {"cpu": "8", "amd.com/gpu": "4"},
            "limits": {"amd.com/gpu": "4"},
        }

    def test_all_dimensions_of_parallelism_count(self, resource: Make) -> None:
        r = resource(
            parameter={"parallelism": {"tensor": 2, "pipeline": 2, "data": 3}}, decode={"parallelism": {"tensor": 2}}
        )
        (container,) = pod_spec(only(r, "StatefulSet", "parameter"))["containers"]
        assert container["resources"]["limits"] == {"nvidia.com/gpu": "12"}

    def test_cpu_pods_request_none(self, resource: Make) -> None:
        spec = pod_spec(only(resource(decode={"accelerator": {"type": "CPU"}}), "Deployment", "decode"))
        assert "resources" not in spec["containers"][0]
        assert "tolerations" not in spec

    def test_the_devices_taint_is_tolerated(self, resource: Make) -> None:
        (toleration,) = pod_spec(only(resource(), "Deployment", "decode"))["tolerations"]
        assert toleration == {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}

    def test_products_become_a_required_node_affinity(self, resource: Make) -> None:
        r = resource(decode={"accelerator": {"products": ["A100", "H100"]}})
        required = pod_spec(only(r, "Deployment", "decode"))["affinity"]["nodeAffinity"][
            "requiredDuringSchedulingIgnoredDuringExecution"
        ]
        wanted = {"key": "nvidia.com/gpu.product", "operator": "In", "values": ["A100", "H100"]}
        assert required == {"nodeSelectorTerms": [{"matchExpressions": [wanted]}]}

    def test_d_without_products_has_those_of_p(self, resource: Make) -> None:
        r = resource(parameter={"accelerator": {"products": ["H100"]}})
        of_p, of_d = (
            pod_spec(only(r, kind, role))["affinity"]["nodeAffinity"]
            for kind, role in (("StatefulSet", "parameter"), ("Deployment", "decode"))
        )
        assert of_d == of_p

    def test_d_with_a_node_selector_of_its_own_takes_no_products(self, resource: Make) -> None:
        anywhere = {"placement": {"nodeSelector": {"kubernetes.io/os": "linux"}}}
        r = resource(parameter={"accelerator": {"products": ["H100"]}}, decode=anywhere)
        assert "affinity" not in pod_spec(only(r, "Deployment", "decode"))

    def test_products_hold_in_every_alternative_of_the_users_affinity(self, resource: Make) -> None:
        terms = [{"matchExpressions": [{"key": key, "operator": "Exists"}]} for key in ("a", "b")]
        affinity = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        r = resource(decode={"accelerator": {"products": ["H100"]}, "placement": {"nodeAffinity": affinity}})
        required = pod_spec(only(r, "Deployment", "decode"))["affinity"]["nodeAffinity"][
            "requiredDuringSchedulingIgnoredDuringExecution"
        ]
        assert [[e["key"] for e in t["matchExpressions"]] for t in required["nodeSelectorTerms"]] == [
            ["a", "nvidia.com/gpu.product"],
            ["b", "nvidia.com/gpu.product"],
        ]


class TestModelVolume:
    """A volume with the model is mounted read-only in both roles."""

    @pytest.mark.parametrize(("kind", "role"), WORKLOADS[:2])
    @pytest.mark.parametrize(
        ("source", "volume"),
        [
            (
                {"persistentVolumeClaim": {"claimName": "weights"}},
                {"persistentVolumeClaim": {"claimName": "weights", "readOnly": True}},
            ),
            (
                {"image": {"reference": "registry.example/llama:8b"}},
                {"image": {"reference": "registry.example/llama:8b", "pullPolicy": "IfNotPresent"}},
            ),
            ({"hostPath": {"path": "/data/llama"}}, {"hostPath": {"path": "/data/llama", "type": "Directory"}}),
        ],
    )
    def test_it_is_mounted_read_only(
        self, resource: Make, kind: str, role: str, source: dict[str, Any], volume: dict[str, Any]
    ) -> None:
        spec = pod_spec(only(resource(model={"source": source}), kind, role))
        assert {"name": "model", **volume} in spec["volumes"]
        (container,) = spec["containers"]
        assert {"name": "model", "mountPath": "/models", "readOnly": True} in container["volumeMounts"]


class TestPlacement:
    """Where pods run beyond devices."""

    def test_classes_scheduler_and_queue_reach_the_pods(self, resource: Make) -> None:
        placement = {
            "priorityClassName": "high",
            "runtimeClassName": "nvidia",
            "schedulerName": "bin-packer",
            "queueName": "gpus",
        }
        r = resource(decode={"placement": placement})
        spec = pod_spec(only(r, "Deployment", "decode"))
        assert (spec["priorityClassName"], spec["runtimeClassName"], spec["schedulerName"]) == (
            "high",
            "nvidia",
            "bin-packer",
        )
        labels = only(r, "Deployment", "decode")["spec"]["template"]["metadata"]["labels"]
        assert labels["kueue.x-k8s.io/queue-name"] == "gpus"
        assert (
            "kueue.x-k8s.io/queue-name"
            not in only(r, "StatefulSet", "parameter")["spec"]["template"]["metadata"]["labels"]
        )

    def test_router_pods_of_a_revision_avoid_each_others_nodes(self, resource: Make) -> None:
        products = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
        own = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [products]}}
        deployment = only(resource(router={"placement": {"nodeAffinity": own}}), "Deployment", "router")
        affinity = pod_spec(deployment)["affinity"]
        (preference,) = affinity["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
        assert preference["podAffinityTerm"]["topologyKey"] == "kubernetes.io/hostname"
        labels = deployment["spec"]["template"]["metadata"]["labels"]
        selected = preference["podAffinityTerm"]["labelSelector"]["matchLabels"]
        assert selected.items() <= labels.items()
        assert names.LABEL_REVISION in selected, "pods of another revision end soon"
        assert affinity["nodeAffinity"] == own

    @pytest.mark.parametrize("required", [True, False])
    def test_d_is_drawn_to_p_of_its_revision(self, resource: Make, required: bool) -> None:
        r = resource(colocation={"topologyKey": "kubernetes.io/hostname", "required": required})
        (terms,) = pod_spec(only(r, "Deployment", "decode"))["affinity"]["podAffinity"].values()
        (term,) = (t.get("podAffinityTerm", t) for t in terms)
        assert term["labelSelector"]["matchLabels"] == names.role_selector("llama", names.Role.PARAMETER)
        assert term["matchLabelKeys"] == [names.LABEL_REVISION]
        assert "affinity" not in pod_spec(only(r, "StatefulSet", "parameter"))


class TestRevision:
    """A revision is the identity of a pair of pods."""

    @pytest.mark.parametrize(
        "change",
        [
            {"engine": {"image": "other:1"}},
            {"engine": {"seed": 1}},
            {"decode": {"env": {"A": "b"}}},
            {"parameter": {"resources": {"requests": {"cpu": 1}}}},
            {"model": {"source": {"path": "/models/other"}}},
        ],
    )
    def test_it_changes_with_the_pods(self, resource: Make, change: dict[str, Any]) -> None:
        assert render(resource(**change), SETTINGS).revision != render(resource(), SETTINGS).revision

    @pytest.mark.parametrize(
        "change",
        [
            {"decode": {"replicas": 5}},
            {"parameter": {"replicas": 0}},
            {"router": {"policy": "random", "replicas": 2, "image": "registry.example/router:2"}},
            {"router": {"service": {"port": 8080}}},
            {"rollout": {"strategy": "Recreate"}},
        ],
    )
    def test_it_stays_with_them(self, resource: Make, change: dict[str, Any]) -> None:
        assert render(resource(**change), SETTINGS).revision == render(resource(), SETTINGS).revision

    def test_it_is_never_taken_for_a_number(self, resource: Make) -> None:
        for seed in range(50):
            assert render(resource(engine={"seed": seed}), SETTINGS).revision.isalpha()

    def test_workloads_carry_it_in_name_labels_and_selector(self, resource: Make) -> None:
        rendered = render(resource(), SETTINGS)
        for kind, role in WORKLOADS[:2]:
            workload = only(resource(), kind, role)
            assert workload["metadata"]["name"] == f"llama-{role}-{rendered.revision}"
            assert workload["spec"]["selector"]["matchLabels"][names.LABEL_REVISION] == rendered.revision


def test_the_router_image_is_the_resources_or_the_installations(resource: Make) -> None:
    (default,) = pod_spec(only(resource(), "Deployment", "router"))["containers"]
    (chosen,) = pod_spec(only(resource(router={"image": "registry.example/router:2"}), "Deployment", "router"))[
        "containers"
    ]
    assert (default["image"], chosen["image"]) == ("registry.example/router:1", "registry.example/router:2")


def test_the_service_is_the_users(resource: Make) -> None:
    service = {"type": "LoadBalancer", "port": 8080, "annotations": {"example.com/internal": 'yes "quoted"\n: x'}}
    manifest = children(resource(router={"service": service}))["Service", "llama"]
    assert manifest["metadata"]["annotations"] == service["annotations"]
    assert manifest["spec"]["type"] == "LoadBalancer"
    assert manifest["spec"]["ports"][0]["port"] == 8080
