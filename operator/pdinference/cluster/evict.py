"""Evictions of pods.

Tests: tests/inference/test_repair.py
"""

from http import HTTPStatus

from pdinference.cluster.client import ApiServer
from pdinference.cluster.errors import ApiError
from pdinference.cluster.kinds import POD
from pdinference.planning.observed import PodSummary


async def evict(api: ApiServer, namespace: str, pod: PodSummary) -> str:
    """Evict a pod, which respects its PodDisruptionBudget. Why that was refused; empty if it was not.

    Without an answer of the API server it may have been evicted, and counts as that.
    """
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod.name, "namespace": namespace},
        "deleteOptions": {"preconditions": {"uid": pod.uid}},
    }
    try:
        await api.create(f"{POD.path(namespace, pod.name)}/eviction", body)
    except ApiError as error:
        if error.status == 0:
            return ""
        if error.gone_or_changed:
            return "it was just replaced"
        if error.status == HTTPStatus.TOO_MANY_REQUESTS:
            return "its PodDisruptionBudget allows no eviction now"
        return f"the eviction failed: {error}"
    return ""
