"""The status reports problems with object, reason and remedy."""

from dataclasses import replace
from datetime import timedelta

import pytest

from pdinference.api.names import ENGINE_ROLES, Role
from pdinference.api.v1alpha1 import PlanStatus, RoleMemory
from pdinference.memory import MemoryVerdict
from pdinference.planning.condition_changes import ConditionResult
from pdinference.planning.observed import Failure, PodProblem, PodSummary
from pdinference.planning.rollout import RolloutPlan
from pdinference.planning.scaling.allocation import Allocation
from pdinference.planning.status import StatusInputs
from pdinference.planning.transitions import transitions
from tests.planning.statuses import ASLEEP, NOW, SERVING, STARTING, built, conditions, having, pod, workload


def test_all_is_well() -> None:
    status = built(SERVING)
    assert {name: c.status for name, c in conditions(status).items()} == {
        "Ready": "True",
        "ParameterReady": "True",
        "DecodeReady": "True",
        "RouterReady": "True",
        "Progressing": "False",
        "MemoryFits": "Unknown",
    }
    assert conditions(status)["Progressing"].reason == "RolloutComplete"
    assert status.roles.decode.summary == "1/1"
    assert status.url == "http://x.ns.svc"
    assert status.serving_revision == "r1"
    assert status.observed_generation == 3
    assert all(c.observed_generation == 3 for c in status.conditions)


def test_pinning_is_a_condition_of_its_own_that_may_be_absent() -> None:
    loose = having(SERVING, pinned=ConditionResult("False", "NotPinned", "because"))
    found = conditions(built(loose))
    assert (found["Pinned"].status, found["Pinned"].reason) == ("False", "NotPinned")
    assert {name: found[name].status for name in conditions(built(SERVING))} == {
        name: condition.status for name, condition in conditions(built(SERVING)).items()
    }, "it takes part in no other condition"


def test_clients_without_keys_take_part_in_no_other_condition() -> None:
    exposed = having(SERVING, clients_authenticated=ConditionResult("False", "NoApiKeys", "because"))
    found, others = conditions(built(exposed)), conditions(built(SERVING))
    assert (found["ClientsAuthenticated"].status, found["ClientsAuthenticated"].reason) == ("False", "NoApiKeys")
    assert {name: found[name].status for name in others} == {name: others[name].status for name in others}
    assert "ClientsAuthenticated" not in others


def test_a_start_is_a_rollout_and_not_ready() -> None:
    found = conditions(built(STARTING))
    assert found["Ready"].status == "False"
    assert (found["Progressing"].status, found["Progressing"].reason) == ("True", "RollingOut")


def test_pods_that_come_without_a_new_revision_are_no_rollout() -> None:
    grown = {**SERVING.workloads, Role.DECODE: replace(workload(Role.DECODE), desired=2)}
    scaling = having(SERVING, workloads=grown, replicas={**SERVING.desired.replicas, Role.DECODE: 2})
    found = conditions(built(scaling))["Progressing"]
    assert (found.status, found.reason) == ("True", "NotAllReady")
    assert found.message.startswith("Revision r1 is rolled out. D: 1 of 2 pods ready.")
    new_routers = {**grown, Role.ROUTER: replace(workload(Role.ROUTER), updated=0)}
    assert conditions(built(replace(scaling, workloads=new_routers)))["Progressing"].reason == "RollingOut"


def test_the_worst_pod_is_named_in_each_condition_that_it_makes_false() -> None:
    problem = PodProblem("ImagePullBackOff", "not found", "vllm", "example.com/vllm:typo")
    pods = (pod(Role.PARAMETER), pod(Role.DECODE, ready=False, problem=problem), pod(Role.ROUTER, ready=False))
    found = conditions(built(replace(STARTING, pods=pods)))
    for name in ("Ready", "DecodeReady"):
        assert found[name].reason == "ImagePullBackOff"
        assert "example.com/vllm:typo" in found[name].message
        assert "x-decode-0" in found[name].message
    assert found["ParameterReady"].status == "True"


def test_the_old_revision_answers_while_the_new_one_is_stuck() -> None:
    inputs = replace(
        STARTING,
        rollout=RolloutPlan(serving="r0", complete=False, keep=frozenset({"r0", "r1"})),
        workloads={Role.ROUTER: workload(Role.ROUTER, ready=1)},
        pods=(*(pod(role, revision="r0") for role in ENGINE_ROLES), pod(Role.PARAMETER, ready=False)),
    )
    found = conditions(built(inputs))
    assert found["Ready"].status == "True"
    assert found["Progressing"].status == "True"
    assert "r0 keeps answering" in found["Progressing"].message


def test_ready_does_not_contradict_the_counts_of_a_revision_that_is_stuck() -> None:
    """The columns P and D show the target revision, and Ready is about the serving one."""
    looping = pod(Role.DECODE, ready=False, problem=PodProblem("CrashLoopBackOff", "", "vllm", restarts=3))
    inputs = replace(
        SERVING,
        rollout=RolloutPlan(serving="r0", complete=False, keep=None),
        workloads={Role.ROUTER: workload(Role.ROUTER), Role.DECODE: workload(Role.DECODE, ready=0)},
        pods=(*(pod(role, revision="r0") for role in (*ENGINE_ROLES, Role.ROUTER)), looping),
    )
    ready = conditions(built(inputs))["Ready"]
    assert ready.status == "True"
    assert ready.message.endswith("They go to revision r0; revision r1 cannot roll out (CrashLooping).")
    starting = replace(inputs, pods=(*inputs.pods[:-1], pod(Role.DECODE, ready=False)))
    assert conditions(built(starting))["Ready"].message.endswith("revision r1 is rolling out (RollingOut).")


def test_ready_refers_to_what_is_missing_in_the_serving_revision() -> None:
    two = replace(SERVING, workloads={**SERVING.workloads, Role.DECODE: replace(workload(Role.DECODE), desired=2)})
    two = having(two, replicas={**two.desired.replicas, Role.DECODE: 2})
    ready = conditions(built(two))["Ready"]
    assert (ready.status, ready.reason) == ("True", "Serving")
    assert "Not everything is as in the spec (NotAllReady); the condition Progressing says why." in ready.message
    assert "Not everything" not in conditions(built(SERVING))["Ready"].message


def test_d_alone_answers_if_it_may_compute_prompts() -> None:
    inputs = replace(SERVING, pods=(pod(Role.DECODE), pod(Role.ROUTER), pod(Role.PARAMETER, ready=False)))
    assert conditions(built(inputs))["Ready"].status == "False"
    ready = conditions(built(having(inputs, decode_computes_prompts=True)))["Ready"]
    assert (ready.status, ready.reason) == ("True", "Serving")
    assert "D computes the prompts, because no P pod is ready." in ready.message
    assert "D computes" not in conditions(built(having(SERVING, decode_computes_prompts=True)))["Ready"].message


def test_prompts_that_d_computed_are_a_condition_while_they_are_recent() -> None:
    before = built(having(SERVING, fell_back=True))
    found = conditions(before)["DecodeComputesPrompts"]
    assert (found.status, found.reason) == ("True", "PrefillFallback")
    assert "DecodeComputesPrompts" not in conditions(built(having(SERVING, fell_back=False), before))
    assert "DecodeComputesPrompts" not in conditions(built(SERVING)), "unknown"
    assert conditions(built(SERVING, before))["DecodeComputesPrompts"] == found, "unknown, so as it was"


def test_a_role_that_is_scaled_to_zero_says_so() -> None:
    inputs = having(SERVING, replicas={**SERVING.desired.replicas, Role.DECODE: 0}, pods=(pod(Role.PARAMETER),))
    condition = conditions(built(inputs))["DecodeReady"]
    assert (condition.status, condition.reason) == ("False", "ScaledToZero")
    assert "spec.decode.replicas" in condition.message


def test_a_quota_that_forbids_pods_is_quoted() -> None:
    stuck = replace(workload(Role.DECODE, ready=0), failure='pods "x" is forbidden: exceeded quota: team')
    condition = conditions(built(replace(STARTING, workloads={Role.DECODE: stuck}, pods=())))["DecodeReady"]
    assert condition.reason == "PodsNotCreated"
    assert "exceeded quota: team" in condition.message


def test_a_refused_child_stops_progress_until_a_person_acts() -> None:
    failure = Failure("Service", "x", "NameConflict", "a Service of this name exists already.")
    found = conditions(built(replace(STARTING, failures=(failure,))))
    assert (found["Progressing"].status, found["Progressing"].reason) == ("False", "NameConflict")
    assert "Service x" in found["Progressing"].message
    assert "Service x" in found["Ready"].message


def test_a_passing_failure_does_not_stop_progress() -> None:
    failure = Failure("Service", "x", "TooManyRequests", "try later", transient=True)
    assert conditions(built(replace(STARTING, failures=(failure,))))["Progressing"].status == "True"


def test_transition_times_change_only_with_the_status() -> None:
    first = built(STARTING)
    later = NOW + timedelta(minutes=5)
    second = conditions(built(SERVING, previous=first, now=later))
    third = conditions(built(SERVING, previous=built(SERVING, previous=first, now=later), now=later + timedelta(1)))
    assert second["Ready"].last_transition_time == later
    assert third["Ready"].last_transition_time == later


def test_nothing_new_means_the_very_same_status() -> None:
    first = built(SERVING)
    assert built(SERVING, previous=first, now=NOW + timedelta(hours=1)) == first


def test_only_pods_of_the_current_revision_count() -> None:
    status = built(replace(SERVING, pods=(*SERVING.pods, pod(Role.DECODE, revision="r0"))))
    assert status.roles.decode.replicas == 1
    assert "pdinference.io/revision=r1" in status.roles.decode.selector


def test_an_asleep_resource_with_one_role_stopped_is_not_ready() -> None:
    before = built(ASLEEP)
    assert conditions(before)["Ready"].reason == "Asleep"
    stopped = having(ASLEEP, replicas={**SERVING.desired.replicas, Role.DECODE: 0}, autoscalers={Role.PARAMETER: None})
    status = built(stopped, previous=before)
    assert (conditions(status)["Ready"].status, conditions(status)["Ready"].reason) == ("False", "ScaledToZero")
    assert "spec.decode.replicas is 0" in conditions(status)["Ready"].message
    assert "The next request starts its pods" in conditions(status)["ParameterReady"].message
    assert [event.reason for event in transitions(before, status)] == ["NotReady"]


def test_an_instance_of_several_nodes_counts_once_with_all_its_pods() -> None:
    problem = PodProblem("Unschedulable", "0/2 nodes are available.")
    node = PodSummary("x-node1-r1-0", Role.PARAMETER, "r1", ready=False, problem=problem, node_rank=1)
    first = PodSummary("x-parameter-r1-0", Role.PARAMETER, "r1", "Running", ready=False)
    status = built(replace(STARTING, pods=(first, node, pod(Role.DECODE), pod(Role.ROUTER, ready=False))))
    assert (status.roles.parameter.replicas, status.roles.parameter.summary) == (1, "0/1")
    found = conditions(status)["ParameterReady"]
    assert found.reason == "Unschedulable"
    assert "x-node1-r1-0" in found.message


@pytest.mark.parametrize(("fits", "status"), [(True, "True"), (False, "False"), (None, "Unknown")])
def test_the_memory_plan_has_a_condition_and_its_numbers(fits: bool | None, status: str) -> None:
    plan = PlanStatus(decode=RoleMemory(weights_bytes=7))
    made = built(having(SERVING, memory=MemoryVerdict(fits, "because", status=plan)))
    assert (conditions(made)["MemoryFits"].status, conditions(made)["MemoryFits"].message) == (status, "because")
    assert made.plan is not None
    assert made.plan.decode == plan.decode


def test_routers_without_activity_are_reported_unless_just_started() -> None:
    unheard = having(SERVING, sleeps_after=900, activity=None, autoscalers={Role.PARAMETER: None, Role.DECODE: None})
    assert "do not report their requests on port 29000" in conditions(built(unheard))["Autoscaling"].message
    starts = {**SERVING.workloads, Role.ROUTER: replace(workload(Role.ROUTER), updated=0)}
    assert "do not report" not in conditions(built(replace(unheard, workloads=starts)))["Autoscaling"].message


def test_an_asleep_resource_that_cannot_wake_is_not_ready() -> None:
    before, now = built(ASLEEP), built(having(ASLEEP, activity=None))
    ready = conditions(now)["Ready"]
    assert (ready.status, ready.reason) == ("Unknown", "Asleep")
    assert "do not start P and D" in ready.message
    assert "next request" not in conditions(now)["DecodeReady"].message
    assert [event.reason for event in transitions(before, now)] == ["NotReady"]
    assert [event.reason for event in transitions(now, before)] == ["Ready"]


def test_an_asleep_resource_without_a_router_waits_for_the_router() -> None:
    routers = {**ASLEEP.workloads, Role.ROUTER: workload(Role.ROUTER, ready=0)}
    found = conditions(built(replace(ASLEEP, workloads=routers, pods=(pod(Role.ROUTER, ready=False),))))
    assert (found["Ready"].status, found["Ready"].reason) == ("False", "Starting")
    assert found["Ready"].message.startswith("Router: 0 of 1 pods ready.")
    assert (found["Progressing"].status, found["Progressing"].reason) == ("True", "NotAllReady")


def beside_an_old_router(pair: StatusInputs) -> StatusInputs:
    """In the middle of a roll-out, with a router pod of r0 in which requests may wait, and no pair of r0."""
    return having(
        pair,
        rollout=RolloutPlan(serving="r0", complete=False, keep=frozenset({"r0", "r1"})),
        workloads={**pair.workloads, Role.ROUTER: replace(workload(Role.ROUTER), replicas=2)},
        pods=(*pair.pods, pod(Role.ROUTER, revision="r0")),
        sleeps_after=900,
    )


def test_an_asleep_old_revision_does_not_answer_during_a_rollout() -> None:
    rollout = beside_an_old_router(STARTING)
    found = conditions(built(rollout))
    assert found["Ready"].status == "False"
    assert "keeps answering" not in found["Progressing"].message
    awake = replace(rollout, pods=(*rollout.pods, *(pod(role, revision="r0") for role in ENGINE_ROLES)))
    assert "r0 keeps answering" in conditions(built(awake))["Progressing"].message


def test_requests_are_answered_when_one_router_pod_has_p_and_d() -> None:
    """The others may still belong to a pair that sleeps."""
    moving = beside_an_old_router(SERVING)
    assert conditions(built(moving))["Ready"].status == "True"
    left = replace(moving, pods=(pod(Role.ROUTER), *(pod(role, revision="r0") for role in ENGINE_ROLES)))
    assert conditions(built(left))["Ready"].status == "False", "an old pair to which no router pod sends anything"


def test_a_router_pod_that_scales_to_zero_is_not_ready_without_pods() -> None:
    """Its spec, with `scaleToZero`, is of yesterday."""
    old = replace(
        STARTING,
        rollout=RolloutPlan(serving="r1", complete=False, keep=frozenset({"r1"})),
        workloads={**STARTING.workloads, Role.ROUTER: replace(workload(Role.ROUTER), replicas=2, updated=1)},
        pods=(*STARTING.pods, pod(Role.ROUTER)),
    )
    assert conditions(built(old))["Ready"].status == "False"


def test_a_budget_that_leaves_no_gpus_is_the_reason_for_no_pods() -> None:
    none = {**SERVING.workloads, Role.DECODE: replace(workload(Role.DECODE, ready=0), desired=0)}
    hpas = {Role.PARAMETER: None, Role.DECODE: None}
    without_gpus = replace(SERVING, workloads=none, autoscalers=hpas, allocation=Allocation({}, budget=1))
    found = conditions(built(without_gpus))["DecodeReady"]
    assert (found.status, found.reason) == ("False", "GpuBudget")
    assert found.message == "D: spec.autoscaling.gpuBudget leaves no GPUs until other pods have ended."
    unlimited = conditions(built(replace(without_gpus, allocation=Allocation({}))))["DecodeReady"]
    assert unlimited.reason == "ScaledToZero"


def test_failures_are_listed_in_one_order_whichever_came_first() -> None:
    failures = [Failure(kind, name, "Denied", "No.") for kind, name in (("Service", "a"), ("Job", "b"), ("Job", "a"))]
    messages = {
        conditions(built(replace(SERVING, failures=order)))["Progressing"].message
        for order in (tuple(failures), tuple(reversed(failures)))
    }
    assert len(messages) == 1
    (message,) = messages
    assert message.index("Job a") < message.index("Job b") < message.index("Service a")
