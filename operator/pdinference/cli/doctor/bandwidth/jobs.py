"""Manifests of the Jobs that measure: pods like those of P and D, with another program.

All objects of a run belong to its first Job, which Kubernetes deletes by itself once it has ended. So nothing remains,
even if the command is killed.
"""

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pdinference.api import names
from pdinference.api.engines import runs_engines
from pdinference.api.names import ENGINE_ROLES, Role
from pdinference.cli.measuring_container import measuring_container
from pdinference.cluster.client import Json
from pdinference.cluster.kinds import JOB, RESOURCE_CLAIM_TEMPLATE
from pdinference.engine.transfer_measurement import KVShape, measuring_program
from pdinference.manifests.pods.devices import name_template

LABEL_RUN: Final = f"{names.GROUP}/doctor"
"""On all objects of a run."""
AT_ONCE: Final = (1, 4)
SECONDS: Final = 2.0
_LIMIT_S: Final = 120
"""Seconds that the measurement itself may take."""
_GRACE_S: Final = 60
"""Seconds after its timeout that the command has to read why pods did not start, before Kubernetes deletes them."""
_KEPT_S: Final = 60
"""Seconds until Kubernetes deletes a Job that has ended, if the command does not."""
_NOT_OF_WORKLOADS: Final = frozenset({names.LABEL_MANAGED_BY, names.LABEL_REVISION, names.LABEL_POD_INDEX})
"""Labels by which the operator, routers and workloads would take the pods for those of the resource."""
_KEPT_VOLUMES: Final = ("emptyDir", "hostPath")


@dataclass(frozen=True)
class Run:
    """One measurement.

    Attributes:
        id: Random name of the run.
        namespace: Where the pods run.
        templates: Pod templates of P and D.
        claims: `spec.devices` of their device claims.
        words: What the pods of each template are in the place of (`Subject.names_of_roles`).
        shape: KV cache of a transfer.
        gpu: Whether the KV cache is in the memory of GPUs.
        port: Port of P's side channel.
        timeout: Seconds for the measurement, with the start of the pods.
        variables: Variables of each role, if P and D share a pod; else empty.
    """

    id: str
    namespace: str
    templates: Mapping[Role, Json]
    claims: Mapping[Role, Json]
    words: Mapping[Role, str]
    shape: KVShape
    gpu: bool
    port: int
    timeout: int
    variables: Mapping[Role, Mapping[str, str]] = field(default_factory=dict)

    @property
    def roles(self) -> tuple[Role, ...]:
        """Roles that have a Job, in the order in which these start. Pods that P and D share are those of D."""
        return tuple(role for role in ENGINE_ROLES if role in self.templates)

    @property
    def selector(self) -> str:
        """Selects all objects of the run."""
        return f"{LABEL_RUN}={self.id}"

    def name(self, role: Role) -> str:
        """Name of a role's Job and claim template."""
        return f"doctor-{self.id}-{role}"


def job(run: Run, role: Role, *, peer: str = "", owner: Json | None = None) -> Json:
    """The Job of a role.

    Args:
        run: The measurement.
        role: P or D.
        peer: Address of P's pod, for that of D.
        owner: The first Job, for another one.
    """
    return {
        "apiVersion": JOB.api_version,
        "kind": JOB.name,
        "metadata": _metadata(run, role, owner),
        "spec": {
            "backoffLimit": 0,
            "activeDeadlineSeconds": run.timeout + _GRACE_S,
            "ttlSecondsAfterFinished": _KEPT_S,
            "template": _pod(run, role, peer),
        },
    }


def claim_template(run: Run, role: Role, owner: Json) -> Json:
    """The template of the device claim of a role's pod."""
    return {
        "apiVersion": RESOURCE_CLAIM_TEMPLATE.api_version,
        "kind": RESOURCE_CLAIM_TEMPLATE.name,
        "metadata": _metadata(run, role, owner),
        "spec": {"spec": {"devices": run.claims[role]}},
    }


def _metadata(run: Run, role: Role, owner: Json | None) -> Json:
    metadata: Json = {"name": run.name(role), "namespace": run.namespace, "labels": {LABEL_RUN: run.id}}
    if owner is not None:
        identity = {"apiVersion": JOB.api_version, "kind": JOB.name}
        metadata["ownerReferences"] = [{**identity, "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"]}]
    return metadata


def _pod(run: Run, role: Role, peer: str) -> Json:
    """The pod: image, placement, devices, variables, labels and annotations of the real one, without its model."""
    template = _of_this_run(copy.deepcopy(run.templates[role]))
    labels = {k: v for k, v in template["metadata"]["labels"].items() if k not in _NOT_OF_WORKLOADS}
    spec = template["spec"]
    spec.pop("initContainers", None)
    spec["volumes"] = [volume for volume in spec.get("volumes", ()) if any(kind in volume for kind in _KEPT_VOLUMES)]
    volumes = {volume["name"] for volume in spec["volumes"]}
    engine = next(c for c in spec["containers"] if runs_engines(c["name"]))
    env = [variable for variable in engine.get("env", ()) if _is_harmless(variable)]
    spec["containers"] = [measuring_container(engine, _program(run, peer), env, volumes)]
    spec |= {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1}
    # An annotation may attach a network with the RDMA devices (Multus), or keep a sidecar out.
    metadata = {"labels": {**labels, LABEL_RUN: run.id}, "annotations": template["metadata"].get("annotations", {})}
    pod = {"metadata": metadata, "spec": spec}
    name_template(pod, run.name(role))
    return pod


def _program(run: Run, peer: str) -> tuple[str, ...]:
    return measuring_program(
        run.shape,
        token=run.id,
        port=run.port,
        gpu=run.gpu,
        at_once=AT_ONCE,
        seconds=SECONDS,
        limit=_LIMIT_S if peer or run.variables else run.timeout,  # P alone waits for the pod of D
        peer=peer,
        variables=run.variables,
    )


def _is_harmless(variable: Json) -> bool:
    """Whether a variable comes from the pod itself. Credentials from Secrets are not needed."""
    return set(variable.get("valueFrom", ())) <= {"fieldRef", "resourceFieldRef"}


def _of_this_run(part: Any) -> Any:
    """The same, where pods are compared by run in place of the revision. So D's pod is placed near P's."""
    if isinstance(part, list):
        return [_of_this_run(each) for each in part]
    if not isinstance(part, dict):
        return part
    found = {name: _of_this_run(value) for name, value in part.items()}
    if names.LABEL_REVISION in (found.get("matchLabelKeys") or ()):
        found["matchLabelKeys"] = [LABEL_RUN if key == names.LABEL_REVISION else key for key in found["matchLabelKeys"]]
    return found
