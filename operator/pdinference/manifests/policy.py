"""Checks of a resource against the installation policy. Messages name the chart value that can allow a field."""

from collections.abc import Iterator, Mapping

from pdinference.api.installation_policy import Policy, allowed_by
from pdinference.api.v1alpha1 import PDBatch, PDInference, RoleSpec, Spec
from pdinference.api.v1alpha1.engine import OWNED_ENVIRONMENT
from pdinference.api.v1alpha1.roles.role import Placement, Toleration
from pdinference.api.validation import InvalidResourceError, Problem
from pdinference.engine.refused import refused_variable
from pdinference.manifests.host_paths import host_path_problems
from pdinference.manifests.hub_access import leads_elsewhere, redirects, runs_code
from pdinference.manifests.keda import metric_problems
from pdinference.manifests.pod_rules import (
    BUCKET_SECRET,
    TOKEN_SECRET,
    Allowance,
    not_allowed,
    overlay_problems,
)
from pdinference.manifests.pod_rules.metadata import service_annotation
from pdinference.manifests.pod_rules.scheduling import PRIORITY_CLASS, RUNTIME_CLASS, SCHEDULER_NAME, tolerated_key
from pdinference.manifests.pods.engine_containers import has_container_per_engine
from pdinference.manifests.pods.own_volumes import own_volume_problems
from pdinference.manifests.settings import RenderSettings


def require_allowed(resource: PDInference, settings: RenderSettings) -> None:
    """Reject a resource that the installation policy does not allow.

    Args:
        resource: A valid resource.
        settings: Settings of the operator.

    Raises:
        InvalidResourceError: The policy does not allow the resource.
    """
    if problems := tuple(policy_problems(resource, settings)):
        raise InvalidResourceError(problems)


def policy_problems(resource: PDInference, settings: RenderSettings) -> Iterator[Problem]:
    """Fields that the installation policy does not allow, or that the installation does not support."""
    spec, policy = resource.spec, settings.policy
    if spec.metrics_source == "KEDA" and settings.keda is None:
        yield Problem(
            "spec.autoscaling.source",
            "KEDA is not enabled for the operator. Use another source, or ask the administrator to set the chart "
            "values autoscaling.keda.enabled and autoscaling.keda.prometheus.",
        )
    if spec.metrics_source == "KEDA":
        yield from metric_problems(resource, settings.operator_namespace)
    secret = _secret_field(resource)
    yield from host_path_problems(resource, policy)
    yield from _hub_problems(resource, settings)
    yield from _bucket_problems(resource, settings)
    yield from _variable_problems(resource)
    image = spec.router.image
    if image not in {None, settings.router_image} and not allowed_by(policy.router_images, str(image)):
        yield Problem("spec.router.image", not_allowed(f"the image {image}", "routerImages", policy.router_images))
    for part, placement in (("parameter", spec.parameter), ("decode", spec.decode), ("router", spec.router)):
        yield from _placement_problems(f"spec.{part}.placement", placement.placement, policy)
    for key in spec.router.service.annotations:
        yield from service_annotation(key, f"spec.router.service.annotations.{key}", Allowance(policy))
    for part, role in (("parameter", spec.parameter), ("decode", spec.decode)):
        allowance = Allowance(
            policy,
            secret,
            _requested(resource.spec, role),
            has_container_per_engine(resource.spec),
            policy.root,
        )
        yield from overlay_problems(f"spec.{part}.podTemplate", role.pod_template, allowance)
    yield from overlay_problems("spec.router.podTemplate", spec.router.pod_template, Allowance(policy))
    yield from own_volume_problems("spec.router.podTemplate", spec.router.pod_template)


def batch_policy_problems(batch: PDBatch, settings: RenderSettings) -> Iterator[Problem]:
    """Fields of a PDBatch that the installation policy does not allow."""
    placement = batch.spec.placement
    yield from _class_problems("spec.placement", "priorityClassName", placement.priority_class_name, settings.policy)
    yield from _toleration_problems("spec.placement", placement.tolerations, settings.policy)


_CLASSES = {"priorityClassName": PRIORITY_CLASS, "runtimeClassName": RUNTIME_CLASS, "schedulerName": SCHEDULER_NAME}


def _class_problems(field: str, member: str, value: str | None, policy: Policy) -> Iterator[Problem]:
    if value is not None:
        yield from _CLASSES[member](value, f"{field}.{member}", Allowance(policy))


def _toleration_problems(field: str, tolerations: list[Toleration], policy: Policy) -> Iterator[Problem]:
    for index, toleration in enumerate(tolerations):
        yield from tolerated_key(toleration.key, f"{field}.tolerations[{index}]", Allowance(policy))


def _placement_problems(field: str, placement: Placement, policy: Policy) -> Iterator[Problem]:
    yield from _class_problems(field, "priorityClassName", placement.priority_class_name, policy)
    yield from _class_problems(field, "runtimeClassName", placement.runtime_class_name, policy)
    yield from _class_problems(field, "schedulerName", placement.scheduler_name, policy)
    yield from _toleration_problems(field, placement.tolerations, policy)


def _requested(spec: Spec, role: RoleSpec) -> frozenset[str]:
    """Extended resources that the vLLM container requests through fields of the resource."""
    accelerator, rdma = role.accelerator, spec.transfer.rdma
    device = set() if accelerator.type == "CPU" or accelerator.devices is not None else {accelerator.resource_name}
    return frozenset(device | (set() if rdma is None else {rdma.resource_name}))


def _secret_field(resource: PDInference) -> str:
    """Field of the Secret of which P and D get the content; empty without one. With a claim, only the Job has a key."""
    model = resource.spec.model
    if model.source.hugging_face is not None and model.source.hugging_face.token_secret is not None:
        return TOKEN_SECRET
    by_job = model.cache is not None and model.cache.host_path is None
    return BUCKET_SECRET if model.source.bucket and model.source.bucket.secret_name and not by_job else ""


def _environments(resource: PDInference) -> Iterator[tuple[str, Mapping[str, str]]]:
    spec = resource.spec
    for part, options in (("engine", spec.engine), ("parameter", spec.parameter), ("decode", spec.decode)):
        yield f"spec.{part}.env", options.env


def _hub_problems(resource: PDInference, settings: RenderSettings) -> Iterator[Problem]:
    """Settings that could send the token of a hub to a host that the policy does not allow."""
    source, policy = resource.spec.model.source.hugging_face, settings.policy
    if source is None or source.token_secret is None:
        return
    name = source.token_secret.name
    if not allowed_by(policy.token_secrets, name):
        yield Problem(
            "spec.model.source.huggingFace.tokenSecret.name",
            not_allowed(f"tokens from the Secret {name}", "tokenSecrets", policy.token_secrets),
        )
    for field, variables in _environments(resource):
        for variable, value in variables.items():
            if why := redirects(variable):
                yield Problem(f"{field}.{variable}", f"This variable cannot be set beside tokenSecret: {why}.")
            elif problem := leads_elsewhere(variable, value, policy):
                yield Problem(f"{field}.{variable}", problem)


def _bucket_problems(resource: PDInference, settings: RenderSettings) -> Iterator[Problem]:
    """A Secret that the policy does not allow, and variables with which other programs could have the key."""
    bucket, policy = resource.spec.model.source.bucket, settings.policy
    if bucket is None or bucket.secret_name is None:
        return
    if not allowed_by(policy.token_secrets, bucket.secret_name):
        yield Problem(
            "spec.model.source.bucket.secretName",
            not_allowed(f"keys from the Secret {bucket.secret_name}", "tokenSecrets", policy.token_secrets),
        )
    for field, variables in _environments(resource) if resource.spec.model.streams else ():
        for variable in variables:
            if why := runs_code(variable):
                yield Problem(f"{field}.{variable}", f"This variable cannot be set beside {BUCKET_SECRET}: {why}.")


def _variable_problems(resource: PDInference) -> Iterator[Problem]:
    """Variables that the schema does not reject."""
    for field, variables in _environments(resource):
        for name in sorted(variables.keys() - OWNED_ENVIRONMENT.keys()):
            if why := refused_variable(name):
                yield Problem(f"{field}.{name}", f"This variable cannot be set: {why}.")
