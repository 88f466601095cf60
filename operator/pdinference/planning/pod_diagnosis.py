"""Diagnoses pods: what keeps a pod from becoming ready, and what to do."""

import re
import signal
from collections.abc import Iterable
from typing import NamedTuple

from pdinference.api.names import GROUP_BROKEN_EXIT, PodFault, Role
from pdinference.api.v1alpha1.conditions import (
    CONTAINER_CONFIG,
    CRASH_LOOPING,
    IMAGE_PULL,
    NO_MODEL,
    NOT_ANSWERING,
    UNSCHEDULABLE,
)
from pdinference.planning.observed import PREPARING_MODEL, PodProblem, PodSummary
from pdinference.planning.scheduling import scheduling_advice, without_preemption

_PULL_REASONS = frozenset({IMAGE_PULL, "ErrImagePull", "RegistryUnavailable", "SignatureValidationFailed"})
"""Reasons between which the kubelet alternates while an image cannot be pulled (`pkg/kubelet/images`)."""
_IMAGE_REASONS = _PULL_REASONS | {"InvalidImageName", "ErrImageNeverPull"}
_PULL_AGAIN = re.compile(r'^Back-off pulling image "[^"]*"(: \w+)?(: |$)', re.ASCII)
_ABSENT_REFERENCE = re.compile(r'^(secret|configmap) "[^"]*" not found|^couldn\'t find key ', re.ASCII)
"""The kubelet's words for a variable whose Secret or ConfigMap, or key in it, is absent (`pkg/kubelet`)."""
_NOT_A_REPOSITORY = re.compile(r"Repo id must be in the form .{1,60}: '(/[^']{1,300})'", re.ASCII)
"""huggingface_hub's words for a model whose name is a path."""
_POINTER = re.compile(
    r"root cause above|\bEngine(Core)? ?(Dead|died|core initialization failed|encountered an issue)"
    r"|WorkerProc init\w* failed"
    r"|^(CancelledError|KeyboardInterrupt|SystemExit|BrokenPipeError|EngineDeadError)\b",
    re.IGNORECASE | re.ASCII,
)
"""vLLM's words for the failure of another of its processes, which has logged the cause before."""
_SIGNALLED = range(128 + 1, 128 + 32)
"""Exit codes of a container whose process a signal ended: 128 and the signal's number."""
_OF_SIGNALS = {
    signal.SIGKILL: "It was killed from outside: by the kubelet (a failed liveness probe, the end of the grace "
    "period), or because the node had no memory left.",
    signal.SIGTERM: "It was asked to end.",
    signal.SIGILL: "The image has instructions that the CPU of this node lacks. Take a node with a newer CPU, or an "
    "image for this one.",
    signal.SIGBUS: "A frequent cause is full shared memory (/dev/shm).",
}
"""What a signal means, where its name does not say."""
_OF_FAULTS = {
    PodFault.REFUSES: ("accepts no connections", "it accepts one"),
    PodFault.HUNG: ("does not answer /health", "it does"),
    PodFault.STALLED: ("answers /health, but its engine takes no step although it has requests", "it takes one"),
    PodFault.STUCK: (
        "answers /health, but its engine has taken no step for minutes although it has requests",
        "it does",
    ),
}
"""What a router found of a pod, and until when the pod counts as not ready."""
_BACK_OFF = "CrashLoopBackOff"
_RESTARTS_OF_A_LOOP = 2
"""A container in back-off after this many restarts has stopped three times within minutes."""
_CRASH_REASONS = frozenset({_BACK_OFF, "Error", "OOMKilled", "ContainerCannotRun", "StartError"})
_STARTING = frozenset({"ContainerCreating", "PodInitializing", PREPARING_MODEL, ""})


class Diagnosis(NamedTuple):
    """A reason for a condition, and its message."""

    reason: str
    message: str


def most_severe(
    pods: Iterable[PodSummary], namespace: str, model_placed_as: Role = Role.PARAMETER, *, resource: str = ""
) -> Diagnosis | None:
    """The diagnosis of the pod with the most severe problem; None when every pod is ready or ending."""
    unwell = [pod for pod in pods if not pod.ready and not pod.terminating]
    if not unwell:
        return None
    worst = max(unwell, key=lambda pod: (_severity(pod), pod.name))
    return diagnose(worst, namespace, model_placed_as, resource=resource)


def diagnose(
    pod: PodSummary, namespace: str, model_placed_as: Role = Role.PARAMETER, *, resource: str = ""
) -> Diagnosis:
    """Why a pod is not ready, with a remedy.

    Args:
        pod: The pod.
        namespace: Its namespace.
        model_placed_as: The role on whose nodes the Job for the model runs, and whose pull secrets it has.
        resource: Name of the PDInference of P, D and router pods; empty for others.
    """
    problem = pod.problem
    if problem is None:
        return Diagnosis("Starting", _start(pod, namespace))
    placed = model_placed_as if pod.role is Role.MODEL else pod.role
    if problem.reason == UNSCHEDULABLE:
        # A batch runner has few fields for its placement, so the scheduler's message suffices.
        advice = "" if placed is None else scheduling_advice(problem.message, placed)
        said = f"Pod {pod.name} fits on no node: {_sentence(without_preemption(problem.message))}"
        return Diagnosis(UNSCHEDULABLE, f"{said} {advice}".rstrip())
    if problem.reason in _IMAGE_REASONS:
        return Diagnosis(
            IMAGE_PULL if problem.reason in _PULL_REASONS else problem.reason,
            f"Pod {pod.name} cannot get the image {problem.image}{_because(_PULL_AGAIN.sub('', problem.message))}. "
            f"Check the image's name and tag, and that the nodes can pull from its registry.{_pull_secrets(placed)}",
        )
    if problem.reason in _CRASH_REASONS:
        return Diagnosis(CRASH_LOOPING if loops(problem) else problem.reason, _crash(pod, problem, namespace, resource))
    if problem.reason in _STARTING | {NO_MODEL, NOT_ANSWERING}:
        return _without_a_crash(pod, problem, namespace)
    said = f"Pod {pod.name}: {problem.reason}{_because(problem.message)}."
    return Diagnosis(problem.reason, f"{said}{_absent_reference(problem, namespace)}")


def _not_answering(pod: PodSummary, problem: PodProblem, namespace: str) -> str:
    """What a router found of a pod that Kubernetes calls ready."""
    found, until = _OF_FAULTS[PodFault(problem.message)]
    engine = f" (engine {pod.engine})" if pod.engine else "" if pod.rank is None else f" (rank {pod.rank})"
    said = f"Pod {pod.name}{engine} {found}, as a router found, although Kubernetes calls it ready."
    said += f" Until {until}, requests go to other pods if there are any."
    if problem.message in {PodFault.STALLED, PodFault.STUCK}:
        said += (
            " The kubelet does not see this. If it lasts and spec.transfer.repair is Restart, the pod is restarted; "
        )
        said += f"otherwise `kubectl delete -n {namespace} pod {pod.name}`."
    return f"{said} Its log: `{_logs(pod, namespace)}`."


def loops(problem: PodProblem) -> bool:
    """Whether a container has stopped often enough to call it a crash loop."""
    return problem.reason == _BACK_OFF and problem.restarts >= _RESTARTS_OF_A_LOOP


def _without_a_crash(pod: PodSummary, problem: PodProblem, namespace: str) -> Diagnosis:
    if problem.reason == NOT_ANSWERING:
        return Diagnosis(NOT_ANSWERING, _not_answering(pod, problem, namespace))
    if problem.reason == NO_MODEL:
        said = f"Pod {pod.name} has no model to load: {_sentence(problem.last_words)} It retries within 5 minutes."
        return Diagnosis(NO_MODEL, said)
    if problem.reason == PREPARING_MODEL:
        logs = _logs(pod, namespace, container=problem.container)
        return Diagnosis(PREPARING_MODEL, f"Pod {pod.name} downloads or checks its model. Follow it with `{logs}`.")
    # Only Events say what its volumes wait for, and the operator has no permission to read them.
    see = f"If this takes long, see `kubectl describe -n {namespace} pod {pod.name}`"
    return Diagnosis("Starting", f"Pod {pod.name} is being created{_because(problem.message)}. {see}.")


def _severity(pod: PodSummary) -> int:
    """Higher is worse. A crash outranks a slow start, and the restarts of other nodes that result from the crash."""
    if pod.problem is None or pod.problem.reason in _STARTING:
        return 0
    if pod.problem.exit_code == GROUP_BROKEN_EXIT:
        return 1
    return 3 if pod.problem.reason in _CRASH_REASONS | {NO_MODEL} else 2


def _start(pod: PodSummary, namespace: str) -> str:
    if pod.restarts:
        see = f"See why: `{_logs(pod, namespace, previous=True)}`"
        return f"Pod {pod.name} is starting again, because a container has stopped. {see}."
    if pod.role is Role.ROUTER:
        waits = "waits until it can send requests to ready P and D pods"
        return f"Pod {pod.name} {waits}. Its log says which are missing: `{_logs(pod, namespace)}`."
    return f"Pod {pod.name} is starting. Follow it with `{_logs(pod, namespace)}`."


def _crash(pod: PodSummary, problem: PodProblem, namespace: str, resource: str) -> str:
    previous = pod.restarts > 0
    see = f"See why: `{_logs(pod, namespace, container=problem.container, previous=previous)}`."
    if "OOMKilled" in (problem.reason, problem.message):
        return f"Pod {pod.name} ran out of memory and was killed. Raise the memory limit in {_limits(pod)}. {see}"
    stopped = "stops repeatedly, last" if loops(problem) else "stopped"
    if problem.exit_code in _SIGNALLED:
        return f"Pod {pod.name}: container {problem.container} {stopped}{_signalled(pod, problem, namespace, see)}"
    code = "" if problem.exit_code is None else f" with exit code {problem.exit_code}"
    if is_pointer(problem.last_words):
        logs = _logs(pod, namespace, container=problem.container, previous=previous)
        said = "One of its processes failed first, and Kubernetes keeps too little of the log to say why. "
        doctor = f"`kubectl pdi doctor {resource} -n {namespace}`, or " if resource else ""
        see = f"See the first error: {doctor}`{logs} | grep -m 20 ERROR`."
    else:
        said = f"Its log says: «{problem.last_words}». " if problem.last_words else ""
    return f"Pod {pod.name}: container {problem.container} {stopped}{code}. {said}{_absent(problem)}{see}"


def is_pointer(words: str) -> bool:
    """Whether words of a log only say that another process of the container failed before."""
    return _POINTER.search(words) is not None


def _signalled(pod: PodSummary, problem: PodProblem, namespace: str, see: str) -> str:
    """How a signal ended a container. The log of one that was killed from outside does not say why."""
    number = signal.Signals((problem.exit_code or 0) - 128)
    said = f" by {number.name} (exit code {problem.exit_code})."
    said += f" {_OF_SIGNALS[number]}" if number in _OF_SIGNALS else ""
    if number in {signal.SIGKILL, signal.SIGTERM}:
        return f"{said} See the Events: `kubectl describe -n {namespace} pod {pod.name}`."
    words = f" Its log says: «{problem.last_words}»." if problem.last_words else ""
    return f"{said}{words} {see}"


def _absent(problem: PodProblem) -> str:
    """Advice on a folder that the image lacks: vLLM takes its path for a repository."""
    if not (found := _NOT_A_REPOSITORY.search(problem.last_words)):
        return ""
    return f"The image has no folder {found[1]}: correct spec.model.source.path, or take an image that has it. "


def _absent_reference(problem: PodProblem, namespace: str) -> str:
    """Advice on a Secret or ConfigMap of a variable. The kubelet tries again, so that no edit is needed."""
    if problem.reason != CONTAINER_CONFIG or not _ABSENT_REFERENCE.search(problem.message):
        return ""
    return f" Create it in namespace {namespace}, and the pod starts; or correct its name or key in the spec."


def _pull_secrets(role: Role | None) -> str:
    """Advice on a login of the registry, for the pods of a role or, without one, of a batch."""
    field = f"spec.{role or Role.ROUTER}.podTemplate.spec.imagePullSecrets"
    if role is None:
        return f" If the registry needs a login, set {field} of the PDInference, and create the batch again."
    return f" If the registry needs a login, set {field}."


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
    text = message.rstrip(". ") or "no reason given"
    return f"{text}."
