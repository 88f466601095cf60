"""PDScalers, and autoscalers that scale them."""

from collections.abc import Callable

import pytest

from pdinference.api.names import Role, instance_labels
from pdinference.api.v1alpha1 import PDInference
from pdinference.manifests import RenderSettings
from pdinference.manifests.autoscaler import autoscalers
from pdinference.manifests.scaler import scalers
from pdinference.manifests.settings import KedaSettings

Make = Callable[..., PDInference]
SCALED = {"autoscaling": {"minReplicas": 2, "maxReplicas": 5}}
WITH_KEDA = RenderSettings(keda=KedaSettings(prometheus="http://prometheus:9090"))


def test_each_autoscaled_role_has_a_scaler_and_no_other(resource: Make) -> None:
    assert scalers(resource()) == {}
    assert set(scalers(resource(decode=SCALED))) == {Role.DECODE}
    assert set(scalers(resource(parameter=SCALED, decode=SCALED))) == {Role.PARAMETER, Role.DECODE}
    assert scalers(resource(decode={**SCALED, "replicas": 0})) == {}


def test_a_scaler_belongs_to_the_resource_and_says_nothing_about_replicas(resource: Make) -> None:
    owner = resource(decode=SCALED)
    scaler = scalers(owner)[Role.DECODE]
    assert scaler["spec"] == {}, "server-side apply would own spec.replicas"
    assert scaler["metadata"]["name"] == f"{owner.metadata.name}-decode"
    assert instance_labels(owner.metadata.name).items() <= scaler["metadata"]["labels"].items()
    (reference,) = scaler["metadata"]["ownerReferences"]
    assert (reference["kind"], reference["uid"], reference["controller"]) == ("PDInference", owner.metadata.uid, True)


@pytest.mark.parametrize(
    ("settings", "source", "kind"),
    [(RenderSettings(), {}, "HorizontalPodAutoscaler"), (WITH_KEDA, {"source": "KEDA"}, "ScaledObject")],
    ids=["hpa", "keda"],
)
def test_an_autoscaler_scales_the_scaler_of_its_role(
    resource: Make, settings: RenderSettings, source: dict[str, str], kind: str
) -> None:
    owner = resource(parameter=SCALED, decode=SCALED, **({"autoscaling": source} if source else {}))
    for role, manifest in autoscalers(owner, settings).items():
        scaler = scalers(owner)[role]
        assert manifest["kind"] == kind
        assert manifest["spec"]["scaleTargetRef"] == {
            "apiVersion": scaler["apiVersion"],
            "kind": scaler["kind"],
            "name": scaler["metadata"]["name"],
        }
