"""State of a pod.

Tests: tests/cluster/test_pods.py
"""

import signal
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from pdinference.api import names
from pdinference.api.engines import engines_of, runs_engines
from pdinference.api.pod_owner import is_of_workload
from pdinference.api.v1alpha1.conditions import NO_MODEL, UNSCHEDULABLE
from pdinference.cluster.kinds import Owner
from pdinference.cluster.state.devices import gpus_of
from pdinference.cluster.state.last_words import last_words
from pdinference.cluster.state.records import PodRecord, version_of
from pdinference.planning.observed import PREPARING_MODEL, PodProblem, PodSummary, SharedEngine
from pdinference.planning.reported import plain

Json = Mapping[str, Any]

_REFUSED = 1
"""Exit status of `pdinference model` after an error that it explains."""
_FROM_OUTSIDE = frozenset({128 + signal.SIGKILL, 128 + signal.SIGTERM})
_HARMLESS = frozenset({"ContainerCreating", "PodInitializing"})


def pod_record(body: Json) -> PodRecord | None:
    """Record of a pod; None if it is not of the workload that its labels name, so that it belongs to no resource."""
    if not is_of_workload(body):
        return None
    metadata = body["metadata"]
    labels = metadata["labels"]
    batch = labels.get(names.LABEL_BATCH)
    node, name = names.node_of(labels), labels.get(names.LABEL_NAME)
    role, node_rank = (None, 0) if batch is not None or node is None else node
    owner = _owner(metadata["namespace"], batch, name)
    status = body.get("status") or {}
    containers = status.get("containerStatuses") or ()
    return PodRecord(
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata["uid"],
        version=version_of(metadata["resourceVersion"]),
        owner=owner,
        summary=PodSummary(
            name=metadata["name"],
            role=role,
            node_rank=node_rank,
            revision=labels.get(names.LABEL_REVISION, ""),
            phase=status.get("phase", "Pending"),
            ready=_condition(status, "Ready").get("status") == "True",
            terminating="deletionTimestamp" in metadata,
            restarts=sum(container.get("restartCount", 0) for container in containers),
            gpus=gpus_of(body.get("spec") or {}) if role in names.ENGINE_ROLES else 0,
            problem=_problem(status),
            engines=tuple(_shared_engines(body)) if role is names.Role.DECODE and node_rank == 0 else (),
            restarted=any(container.get("restartCount", 0) for container in _containers(status)),
            has_model=any(_ended(container).get("exitCode") == 0 for container in _model_containers(status)),
            **(_runner_facts(metadata, status) if batch is not None else {}),
            **(_engine_facts(metadata, status) if role in names.ENGINE_ROLES else {}),
        ),
        address=status.get("podIP", ""),
        scales_to_zero=names.ANNOTATION_SCALES_TO_ZERO in (metadata.get("annotations") or {}),
        started=any(runs_engines(c.get("name", "")) and c.get("started", False) for c in containers),
    )


def _shared_engines(body: Json) -> Iterator[SharedEngine]:
    """The engines of a pod of the path HostLocal."""
    engines = [engine for engine in engines_of(body) if engine.shares_pod]
    status = body.get("status") or {}
    states = {one["name"]: one for one in status.get("containerStatuses") or ()}
    for engine in engines:
        state = states.get(engine.container, {})
        yield SharedEngine(
            role=engine.role,
            name=engine.port_name,
            port=engine.port,
            ready=engine.ready,
            started=state.get("started", False),
            restarts=state.get("restartCount", 0),
            problem=_problem(status, others={one.container for one in engines} - {engine.container}),
        )


def _owner(namespace: str, batch: str | None, name: str | None) -> Owner | None:
    if batch is not None:
        return Owner(namespace, batch, names.BATCH_KIND)
    return Owner(namespace, name) if name else None


def _runner_facts(metadata: Json, status: Json) -> dict[str, Any]:
    """Facts about a batch runner. They are separate, so that the records of other pods do not change with them."""
    states = (container.get("state") or {} for container in status.get("containerStatuses") or ())
    reports = [state["terminated"].get("message") or "" for state in states if "terminated" in state]
    return {
        "uid": metadata["uid"],
        "job": next(reference["uid"] for reference in metadata["ownerReferences"] if reference.get("controller")),
        "created": metadata.get("creationTimestamp", ""),
        "report": reports[0] if reports else "",
    }


def _engine_facts(metadata: Json, status: Json) -> dict[str, Any]:
    """Identity and start of a pod of P or D."""
    started = [
        (((container.get("state") or {}).get("running") or {}).get("startedAt") or "", container.get("name", ""))
        for container in status.get("containerStatuses") or ()
    ]
    return {
        "uid": metadata["uid"],
        "created": metadata.get("creationTimestamp", ""),
        "scheduled": _true_since(status, "PodScheduled"),
        "engine_started": max((at for at, name in started if runs_engines(name)), default=""),
        "started": max((at for at, _ in started), default=""),
        "ready_since": _true_since(status, "Ready"),
    }


def _true_since(status: Json, condition: str) -> str:
    """When a condition became true; empty while it is not."""
    found = _condition(status, condition)
    return (found.get("lastTransitionTime") or "") if found.get("status") == "True" else ""


def _problem(status: Json, others: Collection[str] = ()) -> PodProblem | None:
    """The first problem: not scheduled, a container with a waiting error, one that stopped, one still in creation.

    Args:
        status: The pod's status.
        others: Containers whose problems do not count.
    """
    scheduled = _condition(status, "PodScheduled")
    if scheduled.get("status") == "False":
        return PodProblem(UNSCHEDULABLE, scheduled.get("message", ""))
    if status.get("phase") == "Failed" and status.get("reason"):
        return PodProblem(status["reason"], status.get("message", ""))
    problems = [problem for problem in _container_problems(status) if problem.container not in others]
    return next((problem for problem in problems if problem.reason not in _HARMLESS), problems[0] if problems else None)


def _container_problems(status: Json) -> Iterator[PodProblem]:
    for container in _model_containers(status):
        yield from _model_problem(container)
    for container in _containers(status):
        state = container.get("state") or {}
        last = _ended_before(container)
        name, image, restarts = container.get("name", ""), container.get("image", ""), container.get("restartCount", 0)
        if "waiting" in state:
            waiting = state["waiting"]
            message = last.get("reason", "") if waiting.get("reason") == "CrashLoopBackOff" else waiting.get("message")
            yield PodProblem(
                waiting.get("reason", ""), message or "", name, image, last.get("exitCode"), _last_words(last), restarts
            )
        elif "terminated" in state and state["terminated"].get("exitCode", 0) != 0:
            ended = state["terminated"]
            words = _last_words(ended)
            yield PodProblem(ended.get("reason", "Error"), "", name, image, ended["exitCode"], words, restarts)


def _containers(status: Json) -> tuple[Json, ...]:
    """Container statuses of the pod in start order: init containers first."""
    return (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ()))


def _model_containers(status: Json) -> list[Json]:
    """Containers that download or check the model before vLLM starts."""
    found = status.get("initContainerStatuses") or ()
    return [container for container in found if container.get("name") == names.MODEL_CONTAINER]


def _model_problem(container: Json) -> Iterator[PodProblem]:
    """The last failure, also while the kubelet retries. Otherwise the message would disappear for a second."""
    ended = _ended(container) or _ended_before(container)
    if ended.get("exitCode") == _REFUSED and ended.get("message"):
        words = plain((_lines(ended) or [""])[-1].removeprefix("Error: "))
        yield PodProblem(NO_MODEL, "", names.MODEL_CONTAINER, container.get("image", ""), _REFUSED, words)
    elif "running" in (container.get("state") or {}):
        yield PodProblem(PREPARING_MODEL, container=names.MODEL_CONTAINER)


def _ended(container: Json) -> Json:
    return (container.get("state") or {}).get("terminated") or {}


def _ended_before(container: Json) -> Json:
    return (container.get("lastState") or {}).get("terminated") or {}


def _lines(terminated: Json) -> list[str]:
    """The last lines of a container's log (terminationMessagePolicy FallbackToLogsOnError)."""
    return [line.strip() for line in str(terminated.get("message") or "").splitlines() if line.strip()]


def _last_words(terminated: Json) -> str:
    """What the log says about the end; nothing where a signal came from outside, which leaves no line."""
    if terminated.get("exitCode") in _FROM_OUTSIDE:
        return ""
    return last_words(str(terminated.get("message") or ""))


def _condition(status: Json, type_: str) -> Json:
    return next((c for c in status.get("conditions") or () if c["type"] == type_), {})
