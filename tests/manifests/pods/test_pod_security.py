"""The checker of the restricted Pod Security Standard. An integration test compares it with Kubernetes."""

from copy import deepcopy

import pytest

from pdinference.manifests.pods.pod_security import ROWS, Exceptions, restricted_problems
from tests.manifests.confined_pods import ALSO_GOOD, BAD, GOOD, STRICTER, Change, Json


def changed(change: Change) -> Json:
    pod = deepcopy(GOOD)
    change(pod)
    return pod


@pytest.mark.parametrize("change", [*BAD.values(), *STRICTER.values()], ids=[*BAD, *STRICTER])
def test_a_bad_pod_is_refused_with_path_and_row(change: Change) -> None:
    for problem in restricted_problems(changed(change), "spec.template"):
        assert problem.field.startswith("spec.template.")
        assert any(problem.message.endswith(f"({row})") for row in ROWS)
        break
    else:
        pytest.fail("nothing was found")


@pytest.mark.parametrize("change", ALSO_GOOD.values(), ids=ALSO_GOOD)
def test_a_good_pod_passes(change: Change) -> None:
    assert list(restricted_problems(changed(change))) == []


def test_each_row_of_the_standard_finds_something() -> None:
    found = {
        row
        for row, check in ROWS.items()
        for change in (*BAD.values(), *STRICTER.values())
        if any(check(changed(change), Exceptions()))
    }
    assert found == ROWS.keys()


@pytest.mark.parametrize(
    ("name", "exceptions"),
    [
        ("host-path", Exceptions(volume_types=frozenset({"hostPath"}))),
        ("ipc-lock", Exceptions(capabilities=frozenset({"IPC_LOCK"}))),
    ],
)
def test_an_exception_is_for_what_it_names_alone(name: str, exceptions: Exceptions) -> None:
    assert list(restricted_problems(changed(BAD[name]), exceptions=exceptions)) == []
    for other in BAD.keys() - {name}:
        assert list(restricted_problems(changed(BAD[other]), exceptions=exceptions))
