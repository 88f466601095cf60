"""The pods that measure are like those of P and D, and nobody takes them for these."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from pdinference.api import names
from pdinference.api.installation_policy import Policy
from pdinference.api.names import LABEL_NAME, LABEL_REVISION, LABEL_ROLE, Role
from pdinference.api.v1alpha1 import PDInference
from pdinference.cli.doctor.bandwidth.jobs import LABEL_RUN, Run, claim_template, job
from pdinference.cli.doctor.subject import subject_of
from pdinference.cli.doctor.way import shape_of
from pdinference.engine.host_local import devices_of_first
from pdinference.manifests import RenderSettings

Resource = Callable[..., PDInference]


def run_of(resource: PDInference) -> Run:
    document = resource.model_dump(by_alias=True, exclude_unset=True, mode="json")
    settings = RenderSettings(policy=Policy(annotations=["example.com/*"]))
    subject = subject_of({"apiVersion": names.API_VERSION, "kind": names.KIND, **document}, settings, stored=False)
    shape, variables = shape_of(None, gpu=True), devices_of_first(subject.resource.spec)
    words = subject.names_of_roles
    return Run("abc", "default", subject.templates, subject.claims, words, shape, True, 5600, 300, variables)


def pod_of(run: Run, role: Role, peer: str = "") -> dict[str, Any]:
    template: dict[str, Any] = job(run, role, peer=peer)["spec"]["template"]
    return template


def test_image_devices_placement_and_security_are_those_of_the_role(resource: Resource) -> None:
    role = {"parallelism": {"tensor": 2}, "placement": {"nodeSelector": {"pool": "gpus"}}}
    run = run_of(resource(decode=role, transfer={"rdma": {"resourceName": "rdma/ib", "netDevices": ["mlx5_0:1"]}}))
    real, pod = run.templates[Role.DECODE]["spec"], pod_of(run, Role.DECODE, "10.0.0.1")["spec"]
    for field in ("nodeSelector", "tolerations", "securityContext", "automountServiceAccountToken"):
        assert pod[field] == real[field]
    (container,) = pod["containers"]
    for field in ("image", "resources", "securityContext"):
        assert container[field] == real["containers"][0][field]
    assert {"name": "UCX_NET_DEVICES", "value": "mlx5_0:1"} in container["env"]
    assert container["resources"]["limits"] == {"nvidia.com/gpu": "2", "rdma/ib": "1"}


def test_annotations_of_the_role_apply_since_they_may_attach_its_network(resource: Resource) -> None:
    networks = {"example.com/networks": "rdma"}
    run = run_of(resource(decode={"podTemplate": {"metadata": {"annotations": networks}}}))
    assert pod_of(run, Role.DECODE, "10.0.0.1")["metadata"]["annotations"].items() >= networks.items()
    assert "example.com/networks" not in pod_of(run, Role.PARAMETER)["metadata"]["annotations"]


def test_nothing_of_the_model_and_no_secret_is_needed(resource: Resource) -> None:
    hub = {"repository": "a/b", "revision": "c" * 40, "tokenSecret": {"name": "hub", "key": "token"}}
    cache = {"persistentVolumeClaim": {"claimName": "models"}}
    run = run_of(resource(model={"source": {"huggingFace": hub}, "cache": cache}))
    assert any("persistentVolumeClaim" in volume for volume in run.templates[Role.DECODE]["spec"]["volumes"])
    pod = pod_of(run, Role.DECODE)["spec"]
    assert "initContainers" not in pod
    assert {kind for volume in pod["volumes"] for kind in volume} == {"name", "emptyDir"}
    (container,) = pod["containers"]
    assert {mount["name"] for mount in container["volumeMounts"]} <= {volume["name"] for volume in pod["volumes"]}
    assert not [variable for variable in container["env"] if "secretKeyRef" in variable.get("valueFrom", {})]
    assert not {"startupProbe", "readinessProbe", "livenessProbe", "lifecycle", "args"} & container.keys()


def test_policies_select_the_pods_and_workloads_routers_and_operator_do_not(resource: Resource) -> None:
    labels = pod_of(run_of(resource()), Role.PARAMETER)["metadata"]["labels"]
    assert (labels[LABEL_NAME], labels[LABEL_ROLE], labels[LABEL_RUN]) == ("llama", "parameter", "abc")
    assert not {LABEL_REVISION, names.LABEL_MANAGED_BY} & labels.keys()


def test_d_is_placed_near_p_of_the_same_run(resource: Resource) -> None:
    near = {"topologyKey": "kubernetes.io/hostname", "required": True}
    affinity = pod_of(run_of(resource(colocation=near)), Role.DECODE)["spec"]["affinity"]["podAffinity"]
    (term,) = affinity["requiredDuringSchedulingIgnoredDuringExecution"]
    assert term["matchLabelKeys"] == [LABEL_RUN]


def test_everything_ends_by_itself_and_belongs_to_the_job_of_p(resource: Resource) -> None:
    claims = {"accelerator": {"devices": {"deviceClassName": "gpu.nvidia.com"}}}
    run = run_of(resource(parameter=claims, decode=claims))
    owner = {"metadata": {"name": run.name(Role.PARAMETER), "uid": "u"}}
    of_d = job(run, Role.DECODE, peer="10.0.0.1", owner=owner)
    assert of_d["spec"]["activeDeadlineSeconds"] > run.timeout, "or the pods are gone before the command has read why"
    assert of_d["spec"]["backoffLimit"] == 0
    assert of_d["spec"]["ttlSecondsAfterFinished"] > 0
    template = claim_template(run, Role.DECODE, owner)
    for manifest in (of_d, template):
        (reference,) = manifest["metadata"]["ownerReferences"]
        assert (reference["name"], reference["uid"]) == (run.name(Role.PARAMETER), "u")
    (claim,) = of_d["spec"]["template"]["spec"]["resourceClaims"]
    assert claim["resourceClaimTemplateName"] == template["metadata"]["name"]
    assert "ownerReferences" not in job(run, Role.PARAMETER)["metadata"]


@pytest.mark.parametrize(("role", "peer"), [(Role.PARAMETER, ""), (Role.DECODE, "10.0.0.1")])
def test_the_program_gets_its_settings_and_the_kubelet_expands_nothing(
    resource: Resource, role: Role, peer: str
) -> None:
    command = pod_of(run_of(resource()), role, peer)["spec"]["containers"][0]["command"]
    assert command[:3] == ["python3", "-I", "-c"]
    compile(command[3].replace("$$", "$"), "script", "exec")
    assert "$(" not in command[3].replace("$$", "")
    settings = json.loads(command[4])
    assert (settings["peer"], settings["token"], settings["port"], settings["gpu"]) == (peer, "abc", 5600, True)


CLAIM = {"deviceClassName": "gpu.nvidia.com"}


@pytest.mark.parametrize("accelerator", [{}, {"devices": CLAIM}], ids=["extended resource", "claim"])
def test_p_and_d_that_share_pods_are_measured_in_one_container_with_all_devices(
    resource: Resource, accelerator: dict[str, Any]
) -> None:
    role = {"parallelism": {"tensor": 2}, "accelerator": accelerator}
    run = run_of(resource(parameter=role, decode=role, transfer={"hostLocal": {"parameter": 1, "decode": 2}}))
    assert run.roles == (Role.DECODE,)
    real, pod = run.templates[Role.DECODE]["spec"], pod_of(run, Role.DECODE)["spec"]
    (container,) = pod["containers"]
    assert container["resources"] == real["containers"][0]["resources"]
    settings = json.loads(container["command"][4])
    numbers = {role: variables["CUDA_VISIBLE_DEVICES"] for role, variables in settings["variables"].items()}
    assert numbers == {"decode": "0,1", "parameter": "4,5"}
    if accelerator:
        assert run.claims.keys() == {Role.DECODE}
        assert run.claims[Role.DECODE]["requests"][0]["exactly"]["count"] == 6
    else:
        assert container["resources"]["limits"] == {"nvidia.com/gpu": "6"}
