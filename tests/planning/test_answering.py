"""To the status, pods that do not answer the routers are not ready, whatever the kubelet says."""

from dataclasses import replace

import pytest

from pdinference.api.names import ENGINE_ROLES, PodFault, Role
from pdinference.planning.answering import as_routers_see
from pdinference.planning.observed import PodProblem, PodSummary, SharedEngine
from pdinference.planning.transitions import transitions
from tests.planning.statuses import SERVING, built, conditions, having, pod, workload

TWO = having(
    SERVING,
    replicas={**SERVING.desired.replicas, Role.DECODE: 2},
    workloads={**SERVING.workloads, Role.DECODE: replace(workload(Role.DECODE, ready=2), desired=2)},
    pods=(*SERVING.pods, replace(pod(Role.DECODE), name="x-decode-1")),
)
SAID = {
    PodFault.REFUSES: "Pod x-decode-1 accepts no connections, as a router found, although Kubernetes calls it ready. "
    "Until it accepts one, requests go to other pods if there are any. Its log: `kubectl logs -n ns x-decode-1`.",
    PodFault.HUNG: "Pod x-decode-1 does not answer /health, as a router found, although Kubernetes calls it ready. "
    "Until it does, requests go to other pods if there are any. Its log: `kubectl logs -n ns x-decode-1`.",
    PodFault.STALLED: "Pod x-decode-1 answers /health, but its engine takes no step although it has requests, as a "
    "router found, although Kubernetes calls it ready. Until it takes one, requests go to other pods if there are any. "
    "The kubelet does not see this. If it lasts and spec.transfer.repair is Restart, the pod is restarted; otherwise "
    "`kubectl delete -n ns pod x-decode-1`. Its log: `kubectl logs -n ns x-decode-1`.",
    PodFault.STUCK: "Pod x-decode-1 answers /health, but its engine has taken no step for minutes although it has "
    "requests, as a router found, although Kubernetes calls it ready. Until it does, requests go to other pods if "
    "there are any. The kubelet does not see this. If it lasts and spec.transfer.repair is Restart, the pod is "
    "restarted; otherwise `kubectl delete -n ns pod x-decode-1`. Its log: `kubectl logs -n ns x-decode-1`.",
}


@pytest.mark.parametrize("fault", PodFault)
def test_one_of_two_is_counted_and_named(fault: PodFault) -> None:
    well = built(TWO)
    assert well.roles.decode.summary == "2/2"
    status = built(replace(TWO, pods=as_routers_see(TWO.pods, {"x-decode-1": fault})), well)
    assert status.roles.decode.summary == "1/2"
    found = conditions(status)
    assert (found["DecodeReady"].status, found["DecodeReady"].reason) == ("False", "NotAnswering")
    assert found["DecodeReady"].message == f"D: 1 of 2 pods ready. {SAID[fault]}"
    assert (found["Ready"].status, found["ParameterReady"].status) == ("True", "True")
    assert (found["Progressing"].status, found["Progressing"].reason) == ("True", "NotAllReady")
    assert "x-decode-1" in found["Progressing"].message
    assert "Stalled" not in found
    assert not [one for one in transitions(well, status) if one.reason == "NotReady"]
    again = built(replace(TWO, pods=as_routers_see(TWO.pods, {})), status)
    assert (again.roles, conditions(again)["DecodeReady"].status) == (well.roles, "True")


def test_requests_are_not_answered_while_no_d_pod_answers() -> None:
    pods = as_routers_see(SERVING.pods, {"x-decode-0": PodFault.HUNG})
    ready = conditions(built(replace(SERVING, pods=pods)))["Ready"]
    assert (ready.status, ready.reason) == ("False", "NotAnswering")
    assert "x-decode-0" in ready.message


def test_what_the_kubelet_says_of_a_pod_says_more() -> None:
    crash = pod(Role.DECODE, ready=False, problem=PodProblem("Error", "", "vllm", exit_code=1))
    assert as_routers_see([crash], {crash.name: PodFault.REFUSES}) == (crash,)


def test_only_engines_of_the_resource_are_named_by_routers() -> None:
    router, model = pod(Role.ROUTER), pod(Role.MODEL)
    faults = dict.fromkeys((router.name, model.name, "other", "", "x-decode-0/decode-1"), PodFault.HUNG)
    pods = (*(pod(role) for role in ENGINE_ROLES), router, model)
    assert as_routers_see(pods, faults) == pods


def test_an_engine_of_a_pod_with_several() -> None:
    engines = tuple(SharedEngine(Role.DECODE, f"decode-{one}", 8000 + one, ready=True) for one in range(2))
    shared = PodSummary("a", Role.DECODE, "r1", "Running", ready=True, engines=engines)
    (found,) = as_routers_see([shared], {"a/decode-1": PodFault.REFUSES})
    assert [engine.ready for engine in found.by_engine] == [True, False]
    status = built(replace(SERVING, pods=(pod(Role.PARAMETER), found, pod(Role.ROUTER))))
    assert status.roles.decode.summary == "0/1"
    assert "Pod a (engine decode-1) accepts no connections" in conditions(status)["DecodeReady"].message


def test_a_rank_at_fault_is_named_and_one_that_is_stuck_first() -> None:
    faults = {"x-decode-1/rank-3": PodFault.STALLED, "x-decode-1/rank-5": PodFault.STUCK}
    faults |= {"x-decode-1/rank-99": PodFault.STUCK, f"x-decode-1/rank-{'9' * 9999}": PodFault.STUCK}
    status = built(replace(TWO, pods=as_routers_see(TWO.pods, faults)), built(TWO))
    assert status.roles.decode.summary == "1/2"
    message = conditions(status)["DecodeReady"].message
    assert "Pod x-decode-1 (rank 5) answers /health, but its engine has taken no step for minutes" in message
