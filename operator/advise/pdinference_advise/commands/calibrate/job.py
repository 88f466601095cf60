"""The manifest of the Job that measures: a pod like that of D, with another program and without the model.

Tests: tests/advise/commands/calibrate/test_calibrate.py
"""

from typing import Final

from pdinference.api import names
from pdinference.cli.measuring_container import Json, measuring_container
from pdinference.cluster.kinds import JOB, RESOURCE_CLAIM_TEMPLATE
from pdinference.engine.command import inline_program, literal
from pdinference_advise.commands.calibrate.step_measurement import SCRIPT

_LABEL: Final = f"{names.GROUP}/calibrate"
_LIMIT_S: Final = 1800
_KEPT_S: Final = 86_400
_PLACEMENT: Final = (
    "nodeSelector", "affinity", "tolerations", "runtimeClassName", "priorityClassName", "securityContext",
    "imagePullSecrets", "resourceClaims",
)  # fmt: skip


def manifests(name: str, namespace: str, template: Json, claim: Json | None, options: list[str]) -> list[Json]:
    """The Job, and the template of its device claim if it has one.

    Args:
        name: Name of the resource.
        namespace: Namespace of the Job.
        template: The pod template of D.
        claim: `spec.devices` of D's device claim.
        options: Options of the measuring program.
    """
    own = job_name(name)
    spec = template["spec"]
    engine = next(each for each in spec["containers"] if each["name"] == names.ENGINE_CONTAINER)
    volumes = [volume for volume in spec.get("volumes", ()) if "emptyDir" in volume]
    program = (*inline_program(*SCRIPT), *map(literal, options))
    env = [each for each in engine.get("env", ()) if "secretKeyRef" not in each.get("valueFrom", {})]
    container = measuring_container(engine, program, env, {volume["name"] for volume in volumes})
    pod = {field: spec[field] for field in _PLACEMENT if field in spec} | {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "containers": [container],
        "volumes": volumes,
    }
    objects: list[Json] = []
    if claim is not None:
        pod["resourceClaims"] = [{**each, "resourceClaimTemplateName": own} for each in spec.get("resourceClaims", ())]
        identity = {"apiVersion": RESOURCE_CLAIM_TEMPLATE.api_version, "kind": RESOURCE_CLAIM_TEMPLATE.name}
        objects.append({**identity, "metadata": _metadata(own, namespace), "spec": {"spec": {"devices": claim}}})
    job = {
        "apiVersion": JOB.api_version,
        "kind": JOB.name,
        "metadata": _metadata(own, namespace),
        "spec": {
            "backoffLimit": 0,
            "activeDeadlineSeconds": _LIMIT_S,
            "ttlSecondsAfterFinished": _KEPT_S,
            "template": {"metadata": {"labels": {_LABEL: name}}, "spec": pod},
        },
    }
    return [*objects, job]


def job_name(name: str) -> str:
    """Name of the Job of a resource."""
    return f"calibrate-{name}"


def _metadata(own: str, namespace: str) -> Json:
    return {"name": own, "namespace": namespace, "labels": {_LABEL: own.removeprefix("calibrate-")}}
