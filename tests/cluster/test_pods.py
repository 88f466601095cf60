"""The record of a pod has the problem that keeps it from being ready."""

from typing import Any

import pytest

from pdinference.api import names
from pdinference.api.v1alpha1.conditions import NO_MODEL
from pdinference.cluster.state.pods import pod_record
from pdinference.planning.observed import PREPARING_MODEL, PodSummary
from tests.controllers import owned


def summary(**status: Any) -> PodSummary:
    labels = {names.LABEL_NAME: "x", names.LABEL_ROLE: "parameter", names.LABEL_REVISION: "r"}
    metadata = {"name": "p-0", "namespace": "ns", "uid": "u", "resourceVersion": "1", "labels": labels}
    record = pod_record({"metadata": owned(metadata), "status": status})
    assert record is not None
    return record.summary


def container(**state: Any) -> dict[str, Any]:
    return {"name": "vllm", "image": "v:1", **state}


def test_a_ready_pod_has_no_problem() -> None:
    found = summary(phase="Running", conditions=[{"type": "Ready", "status": "True"}])
    assert found.ready
    assert found.problem is None


def test_the_last_words_of_a_container_are_short_and_plain() -> None:
    ended = {"terminated": {"exitCode": 1, "message": "\x1b[31m" + "x" * 4000 + "\x00"}}
    problem = summary(containerStatuses=[container(state=ended)]).problem
    assert problem is not None
    assert problem.last_words == f"{'x' * 399}…"


def test_the_scheduler_is_quoted() -> None:
    conditions = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/2 nodes"}]
    problem = summary(conditions=conditions).problem
    assert problem is not None
    assert (problem.reason, problem.message) == ("Unschedulable", "0/2 nodes")


def test_a_crash_loop_tells_how_the_last_run_ended() -> None:
    ended = {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}
    waiting = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 5m0s"}}
    found = summary(containerStatuses=[container(state=waiting, lastState=ended, restartCount=4)])
    assert found.problem is not None
    assert (found.problem.reason, found.problem.message, found.problem.exit_code) == (
        "CrashLoopBackOff",
        "OOMKilled",
        137,
    )
    assert found.restarts == 4


def test_a_container_in_creation_is_the_least_important_problem() -> None:
    creating = container(state={"waiting": {"reason": "ContainerCreating"}})
    broken = container(state={"waiting": {"reason": "ErrImagePull", "message": "denied"}})
    problem = summary(containerStatuses=[creating, broken]).problem
    assert problem is not None
    assert problem.reason == "ErrImagePull"


def test_a_pod_that_prepares_its_model_says_so() -> None:
    init = {"name": names.MODEL_CONTAINER, "state": {"running": {"startedAt": "2026-11-21T00:00:00Z"}}}
    waits = container(state={"waiting": {"reason": "PodInitializing"}})
    problem = summary(initContainerStatuses=[init], containerStatuses=[waits]).problem
    assert problem is not None
    assert (problem.reason, problem.container) == (PREPARING_MODEL, names.MODEL_CONTAINER)


REFUSED = {"exitCode": 1, "reason": "Error", "message": "a warning\nError: /models has no config.json. " + "x" * 400}


@pytest.mark.parametrize(
    "states",
    [
        {"state": {"terminated": REFUSED}},
        {"state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": {"terminated": REFUSED}},
        {"state": {"running": {}}, "lastState": {"terminated": REFUSED}},
    ],
)
def test_a_model_problem_is_reported_in_full_and_kept_during_retries(states: Any) -> None:
    waits = container(state={"waiting": {"reason": "PodInitializing"}})
    found = summary(initContainerStatuses=[{"name": names.MODEL_CONTAINER, **states}], containerStatuses=[waits])
    assert found.problem is not None
    assert (found.problem.reason, found.has_model) == (NO_MODEL, False)
    assert found.problem.last_words == "/models has no config.json. " + "x" * 400


def test_a_pod_that_found_its_model_is_told_from_one_that_did_not_yet() -> None:
    whole = {
        "name": names.MODEL_CONTAINER,
        "state": {"terminated": {"exitCode": 0}},
        "lastState": {"terminated": REFUSED},
    }
    found = summary(initContainerStatuses=[whole], containerStatuses=[container(state={"running": {}})])
    assert (found.has_model, found.problem) == (True, None)
    assert not summary(containerStatuses=[container(state={"running": {}})]).has_model


def test_a_check_that_was_killed_says_nothing_of_the_model() -> None:
    killed = {"name": names.MODEL_CONTAINER, "state": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}
    problem = summary(initContainerStatuses=[killed]).problem
    assert problem is not None
    assert problem.reason == "OOMKilled"


def test_an_evicted_pod_says_why() -> None:
    problem = summary(phase="Failed", reason="Evicted", message="low on memory").problem
    assert problem is not None
    assert problem.reason == "Evicted"


@pytest.mark.parametrize(
    ("log", "words"),
    [
        ("", ""),
        ("starting\nstopped\n\n", "stopped"),
        ("vllm: error: unrecognized arguments: --x\n", "vllm: error: unrecognized arguments: --x"),
        ("Traceback\n  File x\nOSError: no such model\nINFO bye", "OSError: no such model"),
        ("ValueError: too long\nRuntimeError: Engine failed. See root cause above.", "ValueError: too long"),
        ("x" * 400, "x" * 400),
    ],
)
def test_the_end_of_a_containers_log_tells_why_it_stopped(log: str, words: str) -> None:
    ended = {"terminated": {"exitCode": 1, "reason": "Error", "message": log}}
    problem = summary(containerStatuses=[container(state=ended)]).problem
    assert problem is not None
    assert problem.last_words == words


@pytest.mark.parametrize(("code", "words"), [(1, "ValueError: no"), (134, "ValueError: no"), (137, ""), (143, "")])
def test_the_log_of_a_container_that_was_killed_from_outside_is_not_quoted(code: int, words: str) -> None:
    """Its last lines are of requests, which may have failed for reasons of their own."""
    ended = {"terminated": {"exitCode": code, "message": "ValueError: no\n"}}
    problem = summary(containerStatuses=[container(state=ended)]).problem
    assert problem is not None
    assert problem.last_words == words


@pytest.mark.parametrize("role", names.ENGINE_ROLES)
@pytest.mark.parametrize("node_rank", [0, 1])
def test_a_pod_of_one_of_several_nodes_belongs_to_its_role(role: names.Role, node_rank: int) -> None:
    labels = names.role_selector("x", role, "r") | names.node_labels(role, node_rank)
    workload = names.node_workload("x", role, 1, "r") if node_rank else names.revision_object("x", role, "r")
    owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": workload, "uid": "s", "controller": True}
    metadata = {"name": "x-0", "namespace": "ns", "uid": "u", "resourceVersion": "1", "labels": labels}
    record = pod_record({"metadata": {**metadata, "ownerReferences": [owner]}})
    assert record is not None
    assert (record.summary.role, record.summary.node_rank) == (role, node_rank)
    foreign = {**owner, "kind": "ReplicaSet"}
    assert pod_record({"metadata": {**metadata, "ownerReferences": [foreign]}}) is None


def test_a_pod_of_a_further_node_without_its_rank_is_not_ours() -> None:
    metadata = {
        "name": "x",
        "namespace": "ns",
        "labels": {names.LABEL_NAME: "x", names.LABEL_ROLE: names.FURTHER_NODES[names.Role.PARAMETER]},
    }
    assert pod_record({"metadata": owned(metadata)}) is None


@pytest.mark.parametrize(
    "line",
    [
        "(EngineCore_DP0 pid=77) ERROR 11-22 09:12:31 [core.py:1] ValueError: no",
        "(EngineCore_DP0 pid=9) ERROR 11-23 10:12:31 [core.py:1] ValueError: no",
        "2026-11-22T09:12:31.123Z ERROR [core.py:1] ValueError: no",
        "2026-11-22 09:12:31,123 ERROR [core.py:1] ValueError: no",
    ],
)
def test_last_words_have_no_times_so_that_each_crash_has_the_same(line: str) -> None:
    ended = {"terminated": {"exitCode": 1, "message": line}}
    problem = summary(containerStatuses=[container(state=ended)]).problem
    assert problem is not None
    assert problem.last_words == "ValueError: no"


@pytest.mark.parametrize("kind", ["containerStatuses", "initContainerStatuses"])
def test_a_restart_of_any_container_is_known_beside_its_count(kind: str) -> None:
    waits = {"waiting": {"reason": "CrashLoopBackOff"}}
    found = summary(**{kind: [container(state=waits, restartCount=2)]})
    assert found.problem is not None
    assert (found.restarted, found.problem.restarts) == (True, 2)
    assert not summary(**{kind: [container(state=waits)]}).restarted


def shared(*states: dict[str, Any], **ports: dict[str, int]) -> PodSummary:
    """A pod of D whose containers have these ports and states."""
    labels = {names.LABEL_NAME: "x", names.LABEL_ROLE: "decode", names.LABEL_REVISION: "r"}
    metadata = {"name": "d-0", "namespace": "ns", "uid": "u", "resourceVersion": "1", "labels": labels}
    containers = [
        {"name": name.replace("_", "-"), "ports": [{"name": port, "containerPort": at} for port, at in of.items()]}
        for name, of in ports.items()
    ]
    record = pod_record(
        {"metadata": owned(metadata), "spec": {"containers": containers}, "status": {"containerStatuses": states}}
    )
    assert record is not None
    return record.summary


def test_the_engines_of_a_pod_have_their_own_problems() -> None:
    crash = {"state": {"waiting": {"reason": "CrashLoopBackOff"}}, "restartCount": 3}
    up = {"name": "decode-0", "ready": True, "started": True, "restartCount": 1, "state": {"running": {}}}
    down = {"name": "parameter-0", "ready": False, **crash}
    found = shared(up, down, decode_0={"decode-0": 8000}, parameter_0={"parameter-0": 8001})
    decode, parameter = found.engines
    assert (decode.role, decode.port, decode.ready, decode.restarts, decode.problem) == ("decode", 8000, True, 1, None)
    assert (parameter.role, parameter.port, parameter.ready, parameter.restarts) == ("parameter", 8001, False, 3)
    assert parameter.problem is not None
    assert (parameter.problem.container, parameter.problem.restarts) == ("parameter-0", 3)
    assert [(one.name, one.engine, one.ready) for one in found.by_engine] == [
        ("d-0", "decode-0", True),
        ("d-0", "parameter-0", False),
    ]


def test_engines_of_one_container_have_one_problem() -> None:
    crash = {"state": {"terminated": {"reason": "Error", "exitCode": 1}}}
    found = shared({"name": "vllm", **crash}, vllm={"decode-0": 8000, "parameter-0": 8001})
    assert [one.problem is not None and one.problem.exit_code for one in found.engines] == [1, 1]


def test_an_ordinary_pod_of_d_is_one() -> None:
    found = shared({"name": "vllm", "ready": True}, vllm={"http": 8000})
    assert (found.engines, found.by_engine) == ((), (found,))


def test_the_start_of_the_engine_is_not_that_of_another_container() -> None:
    def up(name: str, at: str) -> dict[str, Any]:
        return {"name": name, "state": {"running": {"startedAt": f"2026-11-21T00:0{at}Z"}}}

    found = summary(containerStatuses=[up("vllm", "0:10"), up("logger", "2:50")])
    assert found.engine_started == "2026-11-21T00:00:10Z"
    assert found.started == "2026-11-21T00:02:50Z"
