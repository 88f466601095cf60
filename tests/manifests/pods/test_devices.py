"""Device claims, and devices for RDMA."""

from collections.abc import Callable
from typing import Any

import pytest

from pdinference.api.v1alpha1 import PDInference
from pdinference.api.validation import InvalidResourceError
from pdinference.manifests import Manifest, RenderSettings, render

Make = Callable[..., PDInference]
ROOT = "resource.kubernetes.io/pcieRoot"
EXACT = {"deviceClassName": "gpu.nvidia.com", "selectors": ["true"], "matchAttribute": ROOT}


def claiming(**more: Any) -> dict[str, Any]:
    return {"parallelism": {"tensor": 2}, "accelerator": {"devices": {**EXACT, **more}}}


def of_kind(resource: PDInference, kind: str) -> list[Manifest]:
    return [o for o in render(resource, RenderSettings()).objects if o["kind"] == kind]


def parameter_pod(resource: PDInference) -> dict[str, Any]:
    (workload,) = of_kind(resource, "StatefulSet")
    spec: dict[str, Any] = workload["spec"]["template"]["spec"]
    return spec


class TestClaims:
    """A template of claims for each role and revision, and pods that use it."""

    def test_the_template_asks_for_one_device_for_each_rank(self, resource: Make) -> None:
        r = resource(parameter=claiming(), decode={"parallelism": {"tensor": 2}})
        (template,) = of_kind(r, "ResourceClaimTemplate")
        assert template["spec"]["spec"]["devices"] == {
            "requests": [
                {
                    "name": "accelerators",
                    "exactly": {
                        "deviceClassName": "gpu.nvidia.com",
                        "allocationMode": "ExactCount",
                        "count": 2,
                        "selectors": [{"cel": {"expression": "true"}}],
                    },
                }
            ],
            "constraints": [{"matchAttribute": ROOT}],
        }

    def test_pods_claim_from_it_instead_of_requesting_a_resource(self, resource: Make) -> None:
        r = resource(parameter=claiming(), decode={"parallelism": {"tensor": 2}})
        (template,) = of_kind(r, "ResourceClaimTemplate")
        spec = parameter_pod(r)
        claim = {"name": "accelerators", "resourceClaimTemplateName": template["metadata"]["name"]}
        assert spec["resourceClaims"] == [claim]
        assert spec["containers"][0]["resources"] == {"claims": [{"name": "accelerators"}]}
        assert "tolerations" not in spec

    def test_each_revision_has_its_own_because_templates_cannot_be_changed(self, resource: Make) -> None:
        def template(selector: str) -> Manifest:
            (found,) = of_kind(resource(decode=claiming(selectors=[selector])), "ResourceClaimTemplate")
            return found

        one, other = template("true"), template("false")
        assert one["metadata"]["name"] != other["metadata"]["name"]
        revision = render(resource(decode=claiming(selectors=["true"])), RenderSettings()).revision
        assert one["metadata"]["name"] == f"llama-decode-{revision}"
        assert one["metadata"]["labels"]["pdinference.io/revision"] == revision

    def test_it_comes_before_the_pods_that_need_it(self, resource: Make) -> None:
        r = resource(parameter=claiming(), decode=claiming())
        kinds = [o["kind"] for o in render(r, RenderSettings()).objects]
        assert kinds.count("ResourceClaimTemplate") == 2
        assert kinds.index("StatefulSet") > max(i for i, k in enumerate(kinds) if k == "ResourceClaimTemplate")

    def test_an_overlay_may_claim_more_but_not_touch_ours(self, resource: Make) -> None:
        def overlay(name: str) -> dict[str, Any]:
            more = [{"name": name, "resourceClaimName": "nic"}]
            container = {"name": "vllm", "resources": {"claims": [{"name": name}]}}
            return {**claiming(), "podTemplate": {"spec": {"resourceClaims": more, "containers": [container]}}}

        spec = parameter_pod(resource(parameter=overlay("nic"), decode=claiming()))
        assert [claim["name"] for claim in spec["resourceClaims"]] == ["accelerators", "nic"]
        assert [claim["name"] for claim in spec["containers"][0]["resources"]["claims"]] == ["accelerators", "nic"]
        with pytest.raises(InvalidResourceError, match="configure accelerator"):
            render(resource(parameter=overlay("accelerators"), decode=claiming()), RenderSettings())

    @pytest.mark.parametrize("nonsense", ["x", ["x"], [{"name": []}], {"name": "accelerators"}])
    def test_nonsense_in_an_overlay_is_refused(self, resource: Make, nonsense: Any) -> None:
        role = {**claiming(), "podTemplate": {"spec": {"resourceClaims": nonsense}}}
        with pytest.raises(InvalidResourceError, match="resourceClaims"):
            render(resource(parameter=role, decode=claiming()), RenderSettings())


class TestRDMA:
    """P and D pods get the network devices."""

    @pytest.mark.parametrize("kind", ["StatefulSet", "Deployment"])
    def test_pods_request_it_and_stay_confined(self, resource: Make, kind: str) -> None:
        r = resource(transfer={"rdma": {"resourceName": "rdma/ib", "count": 2}})
        container = of_kind(r, kind)[0]["spec"]["template"]["spec"]["containers"][0]
        amounts = {"nvidia.com/gpu": "1", "rdma/ib": "2"}
        assert container["resources"] == {"requests": amounts, "limits": amounts}
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert container["securityContext"]["allowPrivilegeEscalation"] is False

    def test_the_router_needs_none_of_it(self, resource: Make) -> None:
        r = resource(transfer={"rdma": {"resourceName": "rdma/ib"}})
        router = of_kind(r, "Deployment")[-1]["spec"]["template"]["spec"]["containers"][0]
        assert router["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert "rdma/ib" not in router["resources"].get("limits", {})

    def test_cpu_pods_get_it_too(self, resource: Make) -> None:
        cpu = {"accelerator": {"type": "CPU"}}
        r = resource(transfer={"rdma": {"resourceName": "rdma/ib"}}, parameter=cpu, decode=cpu)
        assert parameter_pod(r)["containers"][0]["resources"]["limits"] == {"rdma/ib": "1"}
