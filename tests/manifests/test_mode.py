"""What `spec.mode: Aggregated` leaves out of the children."""

from collections.abc import Callable
from typing import Any

import pytest

from pdinference.api.v1alpha1 import PDInference
from pdinference.manifests import render
from tests.manifests.rendering import SETTINGS, children, only, pod_spec

Make = Callable[..., PDInference]
SCALED = {"replicas": 2, "autoscaling": {"maxReplicas": 4}}
EVERYTHING_OF_P: dict[str, Any] = {
    "parameter": {**SCALED, "parallelism": {"nodes": 2, "pipeline": 2}, "placement": {"nodeSelector": {"p": "1"}}},
    "decode": {**SCALED, "placement": {"nodeSelector": {"d": "1"}}},
    "transfer": {"rdma": {"resourceName": "rdma/ib", "netDevices": ["mlx5_0:1"]}},
    "colocation": {"topologyKey": "kubernetes.io/hostname", "required": True},
    "autoscaling": {"ratio": {"min": {"parameter": 1}}},
}


def arguments(resource: PDInference, role: str) -> list[str]:
    (container,) = pod_spec(only(resource, "Deployment", role))["containers"]
    found: list[str] = container["args"]
    return found


def test_d_is_an_ordinary_vllm(resource: Make) -> None:
    aggregated = resource(**EVERYTHING_OF_P, mode="Aggregated")
    (container,) = pod_spec(only(aggregated, "Deployment", "decode"))["containers"]
    options = {argument.partition("=")[0] for argument in container["args"]}
    assert options.isdisjoint({"--kv-transfer-config", "--block-size", "--max-num-batched-tokens"})
    assert not [entry["name"] for entry in container["env"] if entry["name"].startswith(("VLLM_NIXL", "UCX"))]
    assert [port["name"] for port in container["ports"]] == ["http"]
    assert "rdma/ib" not in container["resources"]["limits"]
    assert "podAffinity" not in pod_spec(only(aggregated, "Deployment", "decode")).get("affinity", {})
    assert "--handover=none" in arguments(aggregated, "router")


def test_nothing_is_of_p(resource: Make) -> None:
    found = children(resource(**EVERYTHING_OF_P, mode="Aggregated"))
    assert not [name for _, name in found if "parameter" in name or "node1" in name]
    assert {kind for kind, name in found if name == "llama-decode"} >= {"PDScaler", "HorizontalPodAutoscaler"}


def test_d_lets_p_of_the_other_mode_connect_until_it_has_gone(resource: Make) -> None:
    policies = [
        only(resource(mode=mode), "NetworkPolicy", "decode")["spec"] for mode in ("Aggregated", "Disaggregated")
    ]
    assert policies[0] == policies[1]


def test_the_mode_is_part_of_the_revision(resource: Make) -> None:
    """Also where the pods of D are alike."""
    cpu = {"decode": {"accelerator": {"type": "CPU"}}}
    revisions = {render(resource(**cpu, mode=mode), SETTINGS).revision for mode in ("Aggregated", "Disaggregated")}
    assert len(revisions) == 2


def test_an_edit_of_p_restarts_nothing(resource: Make) -> None:
    image = {"placement": {"nodeSelector": {"a": "b"}}, "replicas": 5}
    assert children(resource(mode="Aggregated", parameter=image)) == children(resource(mode="Aggregated"))


def test_tiers_of_d_stay(resource: Make) -> None:
    tiers = {"kvTiers": {"cpu": {"size": "1Gi"}}}
    (config,) = (a for a in arguments(resource(mode="Aggregated", decode=tiers), "decode") if "kv-transfer" in a)
    assert '"kv_connector":"OffloadingConnector"' in config
    assert "Nixl" not in config


@pytest.mark.parametrize(("mode", "label"), [("Aggregated", {"d": "1"}), ("Disaggregated", {"p": "1"})])
def test_the_model_is_downloaded_where_it_is_used(resource: Make, mode: str, label: dict[str, str]) -> None:
    model = {
        "source": {"huggingFace": {"repository": "a/b"}},
        "cache": {"persistentVolumeClaim": {"claimName": "models"}},
    }
    aggregated = resource(**EVERYTHING_OF_P, mode=mode, model=model)
    assert pod_spec(only(aggregated, "Job", "model"))["nodeSelector"] == label
