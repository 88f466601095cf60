"""Changes that `make upgrade-from` reports."""

from dataclasses import replace

from e2e.upgrade.state import State, differences

_BEFORE = State(
    workloads={"llama-decode-a": ("uid", 2)},
    replicas={"llama-decode-a": 2},
    pods={"llama-decode-a-1": ("uid-1", 0), "llama-decode-a-2": ("uid-2", 0)},
    routers=frozenset({"old"}),
)


def test_other_router_pods_are_no_difference() -> None:
    assert differences(_BEFORE, replace(_BEFORE, routers=frozenset({"new"}))) == []


def test_a_write_to_a_workload_that_was_taken_back_is_a_difference() -> None:
    (line,) = differences(_BEFORE, replace(_BEFORE, workloads={"llama-decode-a": ("uid", 4)}))
    assert line == "UID and generation of workload llama-decode-a: ('uid', 2) before, ('uid', 4) after"


def test_a_lost_pod_and_a_restarted_one_are_differences() -> None:
    after = replace(_BEFORE, pods={"llama-decode-a-1": ("uid-1", 1)})
    assert differences(_BEFORE, after) == [
        "UID and restarts of pod llama-decode-a-1: ('uid-1', 0) before, ('uid-1', 1) after",
        "UID and restarts of pod llama-decode-a-2: ('uid-2', 0) before, absent after",
    ]
