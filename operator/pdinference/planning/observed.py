"""What planning knows of the live cluster: small, immutable facts that `cluster` takes from whole objects."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final, Literal

from pdinference.api.names import Role

_KEDA_METRIC: Final = re.compile(r"s([0-9]{1,3})-", re.ASCII)


@dataclass(frozen=True, slots=True)
class WorkloadState:
    """A Deployment or StatefulSet, reduced to the progress of its pods.

    `revision` is the one that the pod template asks for: for the router, whose name is the same in every revision, it
    tells which P/D pair new router pods will talk to.
    """

    name: str
    role: Role
    revision: str
    desired: int
    replicas: int = 0
    updated: int = 0
    ready: int = 0
    available: int = 0
    observed: bool = False  # the status describes the latest spec (observedGeneration == generation)
    node_rank: int = 0  # of the pods' node within their P instances; node 0 stands for the instance
    gpus: int = 0  # of one pod
    failure: str = ""  # why its controller cannot create pods, for example an exceeded quota

    @property
    def complete(self) -> bool:
        """Every pod is of the latest template and available, and no older pod counts any more."""
        return self.observed and self.desired == self.replicas == self.updated == self.available


@dataclass(frozen=True, slots=True)
class JobState:
    """A Job, reduced to how it goes and to what may be changed of it.

    Attributes:
        outcome: How it ended; None while it has not.
        reason, message: Why it ended so, in Kubernetes' words.
        active: Pods that are pending or running.
        settings: The members of its spec that can be changed, as they are.
        report: What the pod of a Job for a model wrote of it, as JSON; empty otherwise.
    """

    name: str
    outcome: Literal["Complete", "Failed"] | None = None
    reason: str = ""
    message: str = ""
    active: int = 0
    started: datetime | None = None
    ended: datetime | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    report: str = ""

    @property
    def complete(self) -> bool:
        """Whether it succeeded."""
        return self.outcome == "Complete"


PREPARING_MODEL = "PreparingModel"
"""Reason of a pod that downloads or checks its model before vLLM starts."""


@dataclass(frozen=True, slots=True)
class KvCache:
    """The KV cache of a pod, as vLLM itself measured it (`vllm:cache_config_info`)."""

    blocks: int
    block_size: int

    @property
    def tokens(self) -> int:
        """Tokens that fit."""
        return self.blocks * self.block_size


@dataclass(frozen=True, slots=True)
class Load:
    """One metric of an HPA, small enough in changes to be part of a status.

    Attributes:
        metric: Name of the metric.
        tenths: Load of a pod, in tenths of its target; None when the HPA has not read it.
        target_milli: What a pod is to bear, in thousandths.
        averaged: Whether the target is of a pod; else it is of all pods together.
    """

    metric: str
    tenths: int | None
    target_milli: float
    averaged: bool = True


@dataclass(frozen=True, slots=True)
class Verdict:
    """A condition of an HPA; the message only where it does not hold, since the rest is chatter."""

    status: str
    reason: str
    message: str = ""


@dataclass(frozen=True, slots=True)
class AutoscalerState:
    """A HorizontalPodAutoscaler, reduced to what it thinks.

    Attributes:
        evaluated: Whether it has ever looked at the load.
        replicas: Pods that it saw last.
        desired: Pods that it decided on last; None before it has.
        able: Condition AbleToScale; None before the first look.
        active: Condition ScalingActive.
        limited: Condition ScalingLimited.
        loads: Its metrics. Those of a ScaledObject have the names of its triggers, in their order.
    """

    minimum: int
    maximum: int
    evaluated: bool = False
    replicas: int = 0
    desired: int | None = None
    loads: tuple[Load, ...] = ()
    able: Verdict | None = None
    active: Verdict | None = None
    limited: Verdict | None = None

    @property
    def load_known(self) -> bool:
        """Whether it knows the load."""
        return self.active is not None and self.active.status == "True"

    @property
    def limit(self) -> str:
        """What limits it, as a reason; empty for nothing.

        What it said of an earlier minimum or maximum does not hold for the one that it has now.
        """
        if self.limited is None or self.limited.status != "True":
            return ""
        raised = self.limited.reason == "TooManyReplicas" and self.desired is not None and self.desired < self.maximum
        lowered = self.limited.reason == "TooFewReplicas" and self.desired is not None and self.desired > self.minimum
        return "" if raised or lowered else self.limited.reason

    def with_hpa(self, hpa: "AutoscalerState") -> "AutoscalerState":
        """A ScaledObject as the HPA sees it that KEDA has made of it, unless KEDA itself complains."""
        return replace(
            hpa,
            minimum=self.minimum,
            maximum=self.maximum,
            loads=tuple(map(self._named, hpa.loads)),
            active=self.active if self.active is not None and self.active.status == "False" else hpa.active,
        )

    def _named(self, load: Load) -> Load:
        """A load of KEDA's HPA under its trigger's name: an external metric is called `s0-prometheus` there."""
        number = _KEDA_METRIC.match(load.metric)
        known = number is not None and int(number[1]) < len(self.loads)
        return replace(load, metric=self.loads[int(number[1])].metric) if number is not None and known else load


@dataclass(frozen=True, slots=True)
class PodProblem:
    """Why a pod does not get ready, in the words of the kubelet or the scheduler."""

    reason: str
    message: str = ""
    container: str = ""
    image: str = ""
    exit_code: int | None = None
    last_words: str = ""  # what the container said last before it stopped
    restarts: int = 0  # of the container


@dataclass(frozen=True, slots=True)
class PodSummary:
    """A pod, reduced to what status messages and the roll-out need.

    Attributes:
        role: What it does for a PDInference; None for the runner of a PDBatch.
        created: Its creation time, as text that sorts; of a runner only.
        gpus: GPUs that vLLM in it runs on.
        report: What it left as last words when it ended; of a runner only.
        has_model: Whether it found its model whole before vLLM started; of P and D with something to look at.
        restarts: How often its containers were restarted; init containers do not count.
        restarted: Whether any of its containers was, init containers too.
    """

    name: str
    role: Role | None
    revision: str
    phase: str = "Pending"
    ready: bool = False
    terminating: bool = False
    restarts: int = 0
    node_rank: int = 0
    gpus: int = 0
    problem: PodProblem | None = None
    created: str = ""
    report: str = ""
    has_model: bool = False
    restarted: bool = False

    @property
    def gone(self) -> bool:
        """The pod has run to its end and will never serve again."""
        return self.phase in {"Succeeded", "Failed"}


@dataclass(frozen=True, slots=True)
class Failure:
    """A child that could not be applied or pruned.

    Attributes:
        reason: CamelCase, for the condition: `NameConflict`, `Forbidden`, `Invalid`, ...
        message: The API server's own words, after the object's kind and name.
        transient: Whether waiting alone may cure it.
        withheld: Children that need this one and so are not applied either, by kind and name.
    """

    kind: str
    name: str
    reason: str
    message: str
    transient: bool = False
    withheld: tuple[str, ...] = ()

    def __str__(self) -> str:
        if not self.withheld:
            return f"{self.kind} {self.name}: {self.message}"
        return f"{self.kind} {self.name}: {self.message} Until then {_and(self.withheld)} will not be applied."


def _and(names: Sequence[str]) -> str:
    *others, last = sorted(names)
    return f"{', '.join(others)} and {last}" if others else last
