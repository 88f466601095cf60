"""Advice on a pod that fits on no node, from the scheduler's message.

Tests: tests/planning/test_pod_diagnosis.py
"""

import re
from collections.abc import Iterator

from pdinference.api.names import Role

_INSUFFICIENT = re.compile(r"Insufficient ([A-Za-z0-9.-]+/[A-Za-z0-9._-]*[A-Za-z0-9])")
_PREEMPTION = re.compile(r"[. ]+((still not schedulable|no new claims to deallocate), )?preemption: .*", re.DOTALL)
_ADVICE = (
    (
        ("cannot allocate all claims",),
        "No node has the free devices of {role}.accelerator.devices; see `kubectl get resourceslices -o yaml`.",
    ),
    (
        ("device class", "does not exist"),
        "See `kubectl get deviceclasses`, and correct {role}.accelerator.devices.deviceClassName.",
    ),
    (
        ("didn't match Pod's node affinity/selector",),
        (
            "Compare {role}.accelerator.products and {role}.placement with `kubectl get nodes --show-labels`. D "
            "without products uses those of P."
        ),
    ),
    (("untolerated taint",), "If these pods may run on the tainted nodes, add {role}.placement.tolerations."),
    (
        ('persistentvolumeclaim "', '" not found'),
        (
            "Create the claim in the namespace of the pods, because a pod cannot use one of another namespace; or "
            "correct its name."
        ),
    ),
    (
        ("unbound immediate PersistentVolumeClaims",),
        "A claim has no volume yet: `kubectl describe pvc` says why.",
    ),
    (
        ("didn't match PersistentVolume's node affinity",),
        (
            "The volume of a claim is reachable from other nodes only: compare `kubectl describe pv` with "
            "{role}.accelerator.products and {role}.placement."
        ),
    ),
    (
        ("didn't match pod affinity rules",),
        "spec.colocation.required places D pods near P pods, and no such node has room.",
    ),
    (
        ("didn't match pod topology spread constraints",),
        "No node satisfies {role}.placement.topologySpread. ScheduleAnyway makes it a preference.",
    ),
)


def scheduling_advice(message: str, role: Role) -> str:
    """Sentences to append to the scheduler's message; empty for an unknown message."""
    return " ".join(_advice(message, f"spec.{role}"))


def without_preemption(message: str) -> str:
    """The scheduler's message without its part on preemption, which does not explain the reasons."""
    return _PREEMPTION.sub("", message)


def _advice(message: str, role: str) -> Iterator[str]:
    if missing := sorted(set(_INSUFFICIENT.findall(message))):
        yield f"No node has enough free {' and '.join(missing)} (all devices of a pod must be on one node)."
    for words, advice in _ADVICE:
        if all(word in message for word in words):
            yield advice.format(role=role)
