"""Pods that Kubernetes calls ready and that do not answer the routers: to the status they are not ready."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from pdinference.api.names import ENGINE_ROLES, RANK_PREFIX, PodFault
from pdinference.api.v1alpha1.conditions import NOT_ANSWERING
from pdinference.api.v1alpha1.roles.role import MOST_RANKS
from pdinference.planning.observed import PodProblem, PodSummary, SharedEngine

_Engine = TypeVar("_Engine", PodSummary, SharedEngine)


def as_routers_see(pods: Sequence[PodSummary], faults: Mapping[str, PodFault]) -> tuple[PodSummary, ...]:
    """The pods, those with a fault not ready.

    Args:
        pods: Pods of the resource.
        faults: What routers report, by pod, or by pod and engine or rank: untrusted, so other names and roles change
            nothing.
    """
    return tuple(_seen(pod, faults) for pod in pods) if faults else tuple(pods)


def _seen(pod: PodSummary, faults: Mapping[str, PodFault]) -> PodSummary:
    if pod.role not in ENGINE_ROLES:
        return pod
    if (fault := faults.get(pod.name)) is None and (rank := _worst_rank(pod, faults)) is not None:
        number, fault = rank
        pod = replace(pod, rank=number)
    engines = tuple(_at_fault(engine, faults.get(f"{pod.name}/{engine.name}")) for engine in pod.engines)
    return _at_fault(replace(pod, engines=engines), fault)


def _worst_rank(pod: PodSummary, faults: Mapping[str, PodFault]) -> tuple[int, PodFault] | None:
    """A data-parallel rank of a pod with a fault, one that is stuck first; None if no rank has one."""
    by_rank = ((rank, faults.get(f"{pod.name}/{RANK_PREFIX}{rank}")) for rank in range(MOST_RANKS))
    found = [(rank, fault) for rank, fault in by_rank if fault is not None]
    return min(found, key=lambda one: one[1] is not PodFault.STUCK, default=None)


def _at_fault(one: _Engine, fault: PodFault | None) -> _Engine:
    """A pod or an engine with its fault. What the kubelet says of one that is not ready says more."""
    if fault is None or not one.ready:
        return one
    return replace(one, ready=False, problem=PodProblem(NOT_ANSWERING, fault))
