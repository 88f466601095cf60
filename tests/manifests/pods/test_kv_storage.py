"""Volumes, memory, ports and the sidecar for tiers and connectors."""

from collections.abc import Callable
from typing import Any

import pytest

from pdinference.api.v1alpha1 import PDInference
from pdinference.api.validation import InvalidResourceError
from pdinference.manifests import Manifest, RenderSettings, render
from tests.conftest import allowing
from tests.manifests.rendering import only, pod_spec

Make = Callable[..., PDInference]


def with_disk(resource: Make, **disk: Any) -> PDInference:
    return resource(decode={"kvTiers": {"cpu": {"size": "2Gi"}, "disk": {"size": "10Gi", **disk}}})


def decode(resource: PDInference) -> dict[str, Any]:
    return pod_spec(only(resource, "Deployment", "decode"))


def volume(pod: dict[str, Any], name: str) -> Manifest:
    (found,) = (volume for volume in pod["volumes"] if volume["name"] == name)
    return {key: value for key, value in found.items() if key != "name"}


@pytest.mark.parametrize(
    ("disk", "source"),
    [
        ({}, {"emptyDir": {"sizeLimit": "20480Mi"}}),
        ({"persistentVolumeClaim": "kv"}, {"persistentVolumeClaim": {"claimName": "kv"}}),
        ({"hostPath": "/data/kv"}, {"hostPath": {"path": "/data/kv", "type": "Directory"}}),
        (
            {"storageClass": "nvme"},
            {
                "ephemeral": {
                    "volumeClaimTemplate": {
                        "spec": {
                            "accessModes": ["ReadWriteOnce"],
                            "storageClassName": "nvme",
                            "resources": {"requests": {"storage": "10Gi"}},
                        }
                    }
                }
            },
        ),
    ],
    ids=["emptyDir", "claim", "hostPath", "ephemeral"],
)
def test_a_disk_tier_lies_on_the_volume_of_choice(resource: Make, disk: dict[str, Any], source: Manifest) -> None:
    pod = decode(with_disk(resource, **disk))
    assert volume(pod, "kv-disk") == source
    for container in (*pod["initContainers"], *pod["containers"]):
        assert {"name": "kv-disk", "mountPath": "/kv-disk"} in container["volumeMounts"]


@pytest.mark.parametrize(
    ("disk", "group"),
    [({}, None), ({"persistentVolumeClaim": "kv"}, 65532), ({"storageClass": "nvme"}, 65532)],
    ids=str,
)
def test_a_fresh_volume_is_given_to_the_pods_group(resource: Make, disk: dict[str, Any], group: int | None) -> None:
    assert decode(with_disk(resource, **disk))["securityContext"].get("fsGroup") == group


def test_a_folder_of_the_node_has_to_be_allowed(resource: Make) -> None:
    with pytest.raises(InvalidResourceError) as caught:
        render(with_disk(resource, hostPath="/var/kv"), RenderSettings(policy=allowing("/data")))
    assert [problem.field for problem in caught.value.problems] == ["spec.decode.kvTiers.disk.hostPath"]


def test_the_side_car_runs_beside_vllm_and_knows_the_size(resource: Make) -> None:
    (side_car,) = decode(with_disk(resource))["initContainers"]
    assert side_car["restartPolicy"] == "Always"
    assert side_car["image"] == resource().spec.engine.image
    assert side_car["command"] == ["python3", "-I", "/etc/pdinference/scripts/bound_disk_tier.py"]
    assert side_car["args"] == ["/kv-disk", str(10 * 2**30), "/dev/shm"]  # noqa: S108
    assert side_car["securityContext"]["readOnlyRootFilesystem"] is True


def test_the_cpu_tier_has_room_in_shared_memory_and_a_node_that_has_it(resource: Make) -> None:
    pod = decode(resource(decode={"kvTiers": {"cpu": {"size": "100Gi"}}}))
    assert volume(pod, "shm")["emptyDir"] == {"medium": "Memory", "sizeLimit": "110592Mi"}
    assert pod["containers"][0]["resources"]["requests"]["memory"] == "100Gi"
    assert "initContainers" not in pod


@pytest.mark.parametrize("kind", ["requests", "limits"])
def test_memory_that_the_user_sets_stays(resource: Make, kind: str) -> None:
    pod = decode(resource(decode={"resources": {kind: {"memory": "200Gi"}}, "kvTiers": {"cpu": {"size": "100Gi"}}}))
    resources = pod["containers"][0]["resources"]
    assert resources[kind]["memory"] == "200Gi"
    assert resources["requests"].get("memory") == ("200Gi" if kind == "requests" else None)


def test_an_edit_of_a_tier_reaches_the_pods(resource: Make) -> None:
    revisions = {
        render(r, RenderSettings()).revision
        for r in (
            resource(),
            resource(decode={"kvTiers": {"cpu": {"size": "2Gi"}}}),
            with_disk(resource),
            with_disk(resource, size="20Gi"),
            with_disk(resource, persistentVolumeClaim="kv"),
        )
    }
    assert len(revisions) == 5


def test_the_command_of_the_side_car_is_the_operators(resource: Make) -> None:
    overlay = {"spec": {"initContainers": [{"name": "kv-disk-tier", "args": ["-c", "evil"]}]}}
    tiers = {"cpu": {"size": "2Gi"}, "disk": {"size": "10Gi"}}
    with pytest.raises(InvalidResourceError):
        render(resource(decode={"kvTiers": tiers, "podTemplate": overlay}), RenderSettings())


def test_the_router_may_connect_to_mooncakes_bootstrap_server(resource: Make) -> None:
    r = resource(transfer={"connector": "Mooncake"})
    pod = only(r, "StatefulSet", "parameter")["spec"]["template"]
    assert [port["containerPort"] for port in pod["spec"]["containers"][0]["ports"]] == [8000, 8998]
    router, _ = only(r, "NetworkPolicy", "parameter")["spec"]["ingress"]
    assert [port["port"] for port in router["ports"]] == ["http", "kv-bootstrap"]
    router, _ = only(r, "NetworkPolicy", "decode")["spec"]["ingress"]
    assert [(port["port"], port["endPort"]) for port in router["ports"]] == [(8000, 8015)]


def test_shared_storage_is_mounted_by_both_roles(resource: Make) -> None:
    r = resource(transfer={"connector": "SharedStorage", "sharedStorage": {"claimName": "kv"}})
    for kind, role in (("StatefulSet", "parameter"), ("Deployment", "decode")):
        pod = pod_spec(only(r, kind, role))
        assert volume(pod, "kv-shared") == {"persistentVolumeClaim": {"claimName": "kv"}}
        assert {"name": "kv-shared", "mountPath": "/kv-shared"} in pod["containers"][0]["volumeMounts"]
        assert pod["securityContext"]["fsGroup"] == 65532
