"""What is wrong with a pod and what to do about it, in plain English."""

import re
from collections.abc import Iterable
from typing import NamedTuple

from pdinference.api.names import GROUP_BROKEN_EXIT, Role
from pdinference.api.v1alpha1.conditions import CRASH_LOOPING, IMAGE_PULL, NO_MODEL, UNSCHEDULABLE
from pdinference.planning.observed import PREPARING_MODEL, PodSummary, PodTrouble
from pdinference.planning.scheduling import scheduling_advice, without_preemption

_PULL_REASONS = frozenset({IMAGE_PULL, "ErrImagePull", "RegistryUnavailable", "SignatureValidationFailed"})
"""What the kubelet says in turns while an image cannot be pulled (`pkg/kubelet/images`)."""
_IMAGE_REASONS = _PULL_REASONS | {"InvalidImageName", "ErrImageNeverPull"}
_PULL_AGAIN = re.compile(r'^Back-off pulling image "[^"]*"(: \w+)?(: |$)', re.ASCII)
_BACK_OFF = "CrashLoopBackOff"
_RESTARTS_OF_A_LOOP = 2
"""In back-off after so many restarts, a container has stopped three times within minutes."""
_CRASH_REASONS = frozenset({_BACK_OFF, "Error", "OOMKilled", "ContainerCannotRun", "StartError"})
_STARTING = frozenset({"ContainerCreating", "PodInitializing", PREPARING_MODEL, ""})


class Advice(NamedTuple):
    """A reason for a condition, and its message."""

    reason: str
    message: str


def worst(pods: Iterable[PodSummary], namespace: str) -> Advice | None:
    """The advice on the pod that needs a person most; None when every pod is well."""
    unwell = [pod for pod in pods if not pod.ready and not pod.terminating]
    if not unwell:
        return None
    return advise(max(unwell, key=lambda pod: (_severity(pod), pod.name)), namespace)


def advise(pod: PodSummary, namespace: str) -> Advice:
    """What keeps this pod from getting ready, and what to do."""
    trouble = pod.trouble
    if trouble is None:
        return Advice("Starting", f"Pod {pod.name} is starting; watch it with `{_logs(pod, namespace)}`.")
    if trouble.reason == UNSCHEDULABLE:
        # Of a batch runner the scheduler's own words are enough: it has few fields for where it may run.
        # The Job for the model is placed as P's pods are.
        placed = Role.PARAMETER if pod.role is Role.MODEL else pod.role
        advice = "" if placed is None else scheduling_advice(trouble.message, placed)
        said = f"Pod {pod.name} fits on no node: {_sentence(without_preemption(trouble.message))}"
        return Advice(UNSCHEDULABLE, f"{said} {advice}".rstrip())
    if trouble.reason in _IMAGE_REASONS:
        return Advice(
            IMAGE_PULL if trouble.reason in _PULL_REASONS else trouble.reason,
            f"Pod {pod.name} cannot get the image {trouble.image}{_because(_PULL_AGAIN.sub('', trouble.message))}. "
            "Check the image's name and tag, and that the nodes may pull from its registry.",
        )
    if trouble.reason in _CRASH_REASONS:
        return Advice(CRASH_LOOPING if loops(trouble) else trouble.reason, _crash(pod, trouble, namespace))
    if trouble.reason in _STARTING | {NO_MODEL}:
        return _before_it_runs(pod, trouble, namespace)
    return Advice(trouble.reason, f"Pod {pod.name}: {trouble.reason}{_because(trouble.message)}.")


def loops(trouble: PodTrouble) -> bool:
    """Whether a container has stopped often enough that the next try will end the same way."""
    return trouble.reason == _BACK_OFF and trouble.restarts >= _RESTARTS_OF_A_LOOP


def _before_it_runs(pod: PodSummary, trouble: PodTrouble, namespace: str) -> Advice:
    if trouble.reason == NO_MODEL:
        said = f"Pod {pod.name} has no model to load: {_sentence(trouble.last_words)} It tries again within 5 minutes."
        return Advice(NO_MODEL, said)
    if trouble.reason == PREPARING_MODEL:
        logs = _logs(pod, namespace, container=trouble.container)
        return Advice(PREPARING_MODEL, f"Pod {pod.name} downloads or checks its model; watch it with `{logs}`.")
    # What its volumes wait for is in Events alone, which the operator has no right to read.
    see = f"if this lasts, see `kubectl describe -n {namespace} pod {pod.name}`"
    return Advice("Starting", f"Pod {pod.name} is being created{_because(trouble.message)}; {see}.")


def _severity(pod: PodSummary) -> int:
    """Higher is worse: a crash says more than a slow start, and than the restarts of other nodes that follow it."""
    if pod.trouble is None or pod.trouble.reason in _STARTING:
        return 0
    if pod.trouble.exit_code == GROUP_BROKEN_EXIT:
        return 1
    return 3 if pod.trouble.reason in _CRASH_REASONS | {NO_MODEL} else 2


def _crash(pod: PodSummary, trouble: PodTrouble, namespace: str) -> str:
    previous = pod.restarts > 0
    see = f"See why: `{_logs(pod, namespace, container=trouble.container, previous=previous)}`."
    if "OOMKilled" in (trouble.reason, trouble.message):
        return f"Pod {pod.name} ran out of memory and was killed. Raise the memory limit in {_limits(pod)}. {see}"
    stopped = "stops again and again, last" if loops(trouble) else "stopped"
    code = "" if trouble.exit_code is None else f" with exit code {trouble.exit_code}"
    said = f"It said last: «{trouble.last_words}». " if trouble.last_words else ""
    return f"Pod {pod.name}: container {trouble.container} {stopped}{code}. {said}{see}"


def _limits(pod: PodSummary) -> str:
    if pod.role is None:
        return "spec.resources.limits"
    return f"spec.{pod.role}.resources.limits, or let vLLM use less"


def _logs(pod: PodSummary, namespace: str, *, container: str = "", previous: bool = False) -> str:
    parts = ["kubectl", "logs", "-n", namespace, pod.name]
    parts += ["-c", container] if container else []
    parts += ["--previous"] if previous else []
    return " ".join(parts)


def _because(message: str) -> str:
    return f" ({message.rstrip('. ')})" if message else ""


def _sentence(message: str) -> str:
    text = message.rstrip(". ") or "no reason was given"
    return f"{text}."
