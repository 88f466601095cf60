"""The status of a resource whose pods of D have the engines of P too."""

from pdinference.api.names import Role
from pdinference.api.v1alpha1.conditions import DECODE_READY, PARAMETER_READY, READY
from pdinference.planning.observed import PodProblem, PodSummary, SharedEngine
from pdinference.planning.status import StatusInputs
from pdinference.planning.transfer_measurements import Path
from tests.planning.statuses import SERVING, built, conditions, having, pod

P, D = Role.PARAMETER, Role.DECODE
CRASH = PodProblem("CrashLoopBackOff", "", "parameter-0", "v:1", 1, "RuntimeError: no memory", 4)


def group(name: str, *, p: bool = True, d: bool = True, problem: PodProblem | None = None) -> PodSummary:
    engines = (
        SharedEngine(D, "decode-0", 8000, ready=d),
        SharedEngine(D, "decode-1", 8001, ready=d),
        SharedEngine(P, "parameter-0", 8002, ready=p, problem=problem, restarts=4 if problem else 0),
    )
    return PodSummary(name, D, "r1", "Running", ready=p and d, problem=problem, engines=engines)


def inputs(*pods: PodSummary, serve: bool = True) -> StatusInputs:
    return having(
        SERVING,
        replicas={D: 2, Role.ROUTER: 1},
        aggregated=frozenset({"r1"}),
        transfer_path=Path(decode_instances=2, parameter_instances=1),
        pods=(*pods, pod(Role.ROUTER)),
        decode_computes_prompts=serve,
    )


def test_d_counts_pods_and_p_counts_engines() -> None:
    status = built(inputs(group("a"), group("b")))
    assert status.roles.decode.summary == status.roles.parameter.summary == "2/2"
    found = conditions(status)[PARAMETER_READY]
    assert (found.status, found.reason) == ("True", "HostLocal")
    assert found.message == "P: 2 of 2 engines ready, in the pods of D (spec.transfer.path)."


def test_a_crash_of_p_names_p_and_its_container_while_d_is_ready() -> None:
    status = built(inputs(group("a"), group("b", p=False, problem=CRASH)))
    assert (status.roles.parameter.summary, status.roles.decode.summary) == ("1/2", "2/2")
    found = conditions(status)
    assert found[DECODE_READY].status == "True"
    assert (found[PARAMETER_READY].status, found[PARAMETER_READY].reason) == ("False", "CrashLooping")
    assert found[PARAMETER_READY].message == (
        "P: 1 of 2 engines ready. Pod b: container parameter-0 stops repeatedly, last with exit code 1. "
        "Its log says: «RuntimeError: no memory». "
        "See why: `kubectl logs -n ns b -c parameter-0 --previous`."
    )


def test_a_pod_without_d_names_d_alone() -> None:
    status = built(inputs(group("a"), group("b", d=False)))
    found = conditions(status)
    assert (found[PARAMETER_READY].status, found[DECODE_READY].status) == ("True", "False")
    assert (status.roles.parameter.summary, status.roles.decode.summary) == ("2/2", "1/2")


def test_a_pod_that_is_missing_is_missed_by_both() -> None:
    found = conditions(built(inputs(group("a"))))
    assert found[PARAMETER_READY].status == "False"
    assert found[PARAMETER_READY].message == found[DECODE_READY].message


def test_without_any_p_requests_are_answered_only_if_d_may_compute_prompts() -> None:
    without = group("a", p=False), group("b", p=False)
    answered = conditions(built(inputs(*without)))[READY]
    assert (answered.status, "D computes the prompts" in answered.message) == ("True", True)
    assert conditions(built(inputs(*without, serve=False)))[READY].status == "False"
