"""Whether a pod is one of a workload of the operator: by its controller, because anyone may choose a pod's labels.

A user who may create pods may write any owner reference into them. So this check, which needs no rights, is not enough
alone. The controllers of Kubernetes know the uids of the workloads and do the rest:

- The garbage collector deletes a pod, or removes its reference, if no owner has the uid that the reference names.
- A ReplicaSet, StatefulSet or Job counts a pod with its uid as its own. It deletes what exceeds its number, pods that
  are not ready first, and a StatefulSet gives up a pod that has none of its names.

What remains possible is in docs/security.md.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from pdinference.api import names
from pdinference.api.names import Role

Json = Mapping[str, Any]

_TEMPLATE_HASH: Final = "pod-template-hash"
"""Label that the Deployment controller sets. Its value ends the name of the ReplicaSet."""
_JOB_NAME: Final = "batch.kubernetes.io/job-name"
"""Label that the Job controller sets."""


class _Controller(NamedTuple):
    """What an owner reference says of a controller, without the uid."""

    api_version: str
    kind: str
    name: str


def is_of_workload(pod: Json) -> bool:
    """Whether the controller of a pod is the workload that the pod's labels name.

    Args:
        pod: A pod as the API server has it.

    Returns:
        False also for a pod without a role, and for one that its controller has given up.
    """
    metadata = pod["metadata"]
    named = _named(metadata.get("labels") or {})
    return named is not None and named == _controller(metadata)


def _controller(metadata: Json) -> _Controller | None:
    """The controller of a pod. The API server refuses a second one."""
    for reference in metadata.get("ownerReferences") or ():
        if reference.get("controller"):
            return _Controller(reference["apiVersion"], reference["kind"], reference["name"])
    return None


def _named(labels: Mapping[str, str]) -> _Controller | None:
    """The controller of the pods with these labels; None if they are of no workload."""
    if (batch := labels.get(names.LABEL_BATCH)) is not None:
        return _Controller("batch/v1", "Job", names.batch_object(batch))
    name, node = labels.get(names.LABEL_NAME), names.node_of(labels)
    if name is None or node is None:
        return None
    role, node_rank = node
    revision = labels.get(names.LABEL_REVISION, "")
    own = names.revision_object(name, role, revision)
    if role is Role.PARAMETER or names.LABEL_NODE_RANK in labels:
        workload = names.node_workload(name, role, node_rank, revision) if node_rank else own
        return _Controller("apps/v1", "StatefulSet", workload)
    if role is Role.MODEL:
        job = labels.get(_JOB_NAME, "")
        return _Controller("batch/v1", "Job", job) if job.startswith(names.model_job(name, "")) else None
    deployment = own if role is Role.DECODE else names.role_object(name, role)
    return _Controller("apps/v1", "ReplicaSet", f"{deployment}-{labels.get(_TEMPLATE_HASH, '')}")
