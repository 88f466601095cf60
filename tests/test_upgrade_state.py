"""Changes that `make upgrade-from` reports."""

from dataclasses import replace

from e2e.upgrade.state import State, differences, differences_by_revision

_BEFORE = State(
    revision="a",
    workloads={"llama-decode-a": ("uid", 2)},
    replicas={"llama-decode": 2},
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


_AFTER_A_ROLLOUT = State(
    "b", {"llama-decode-b": ("uid-b", 1)}, {"llama-decode": 2}, {"llama-decode-b-1": ("uid-3", 0)}, frozenset()
)


def test_another_revision_has_as_many_pods_and_others() -> None:
    assert differences_by_revision(_BEFORE, _AFTER_A_ROLLOUT) == []
    assert differences_by_revision(_BEFORE, _AFTER_A_ROLLOUT, rollout=True) == []
    assert differences_by_revision(_BEFORE, replace(_AFTER_A_ROLLOUT, replicas={"llama-decode": 1})) == [
        "replica count of llama-decode: 2 before, 1 after",
    ]


def test_the_same_revision_has_the_same_pods() -> None:
    assert differences_by_revision(_BEFORE, _BEFORE) == []
    assert differences_by_revision(_BEFORE, _BEFORE, rollout=False) == []
    assert differences_by_revision(_BEFORE, replace(_BEFORE, pods={"llama-decode-a-1": ("uid-1", 0)})) == [
        "UID and restarts of pod llama-decode-a-2: ('uid-2', 0) before, absent after",
    ]


def test_what_was_not_expected_is_a_difference() -> None:
    assert differences_by_revision(_BEFORE, _BEFORE, rollout=True) == [
        "revision a still serves, although a roll-out was expected",
    ]
    assert differences_by_revision(_BEFORE, _AFTER_A_ROLLOUT, rollout=False) == [
        "revision b serves after a, although no roll-out was expected",
    ]
