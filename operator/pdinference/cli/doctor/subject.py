"""The resource that is checked, with its pods as the operator renders them.

Tests: tests/cli/doctor/test_way.py, tests/cli/doctor/bandwidth/test_jobs.py
"""

from collections.abc import Mapping
from typing import Any

from pdinference.api.names import ENGINE_ROLES, LABEL_ROLE, Role
from pdinference.api.v1alpha1 import Spec
from pdinference.api.validation import validated
from pdinference.checks.facts import facts_of
from pdinference.cli.doctor.facts import Subject
from pdinference.cli.stored_status import stored_status
from pdinference.cluster.client import Json
from pdinference.cluster.kinds import RESOURCE_CLAIM_TEMPLATE, WORKLOADS
from pdinference.manifests import RenderSettings, render
from pdinference.memory import Inputs, RolePlan, UnusableSpecError, plan_role


def subject_of(document: Json, settings: RenderSettings, *, stored: bool) -> Subject:
    """Render the pods of a resource.

    Args:
        document: The resource as JSON.
        settings: Settings of the operator's installation.
        stored: Whether it comes from the cluster, and so has a status.

    Raises:
        InvalidResourceError: The resource is not valid.
    """
    resource = validated(document, admitted=stored)
    objects = [(o, o["metadata"]["labels"].get(LABEL_ROLE)) for o in render(resource, settings).objects]
    roles = {str(role): role for role in ENGINE_ROLES}  # pods of further nodes have another label
    status = document.get("status") or {}
    return Subject(
        resource=resource,
        templates={roles[r]: o["spec"]["template"] for o, r in objects if o["kind"] in WORKLOADS and r in roles},
        claims={
            roles[r]: o["spec"]["spec"]["devices"]
            for o, r in objects
            if o["kind"] == RESOURCE_CLAIM_TEMPLATE.name and r in roles
        },
        plan=_plan(resource.spec, status.get("model")),
        status=stored_status(status) if stored else None,
        generation=int(document["metadata"].get("generation") or 0),
    )


def _plan(spec: Spec, model: Mapping[str, Any] | None) -> RolePlan | None:
    facts = facts_of(spec, model)
    if facts.shape is None:
        return None
    try:
        return plan_role(Inputs(spec, facts.shape, facts.checkpoint), Role.DECODE)
    except UnusableSpecError:
        return None
