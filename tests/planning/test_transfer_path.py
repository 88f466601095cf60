"""The path of the KV cache in the status, and how its speed is judged."""

from dataclasses import replace

import pytest

from pdinference.api.v1alpha1 import Status
from pdinference.api.v1alpha1.conditions import KV_TRANSFER
from pdinference.planning.transfer_measurements import Path
from tests.planning.statuses import NOW, SERVING, built, conditions, having
from tests.planning.test_transfer_measurements import OVER_TCP, facts

SHARED = Path(gpus=True, reason="path is Auto, and hostLocal is set", decode_instances=2, parameter_instances=1)
NETWORK = Path(gpus=True, reason="path is Network")
IN_PODS_OF_D = having(SERVING, aggregated=frozenset({"r1"}), transfer_path=SHARED)


@pytest.mark.parametrize(("path", "name"), [(SHARED, "HostLocal"), (NETWORK, "Network")])
def test_the_status_has_the_path_and_why(path: Path, name: str) -> None:
    transfer = built(having(SERVING, transfer=facts(), transfer_path=path), Status(), NOW).transfer
    assert transfer is not None
    assert (transfer.path, transfer.path_reason) == (name, path.reason)


def test_without_p_pods_the_transfer_is_reported_if_p_is_in_the_pods_of_d() -> None:
    status = built(having(IN_PODS_OF_D, transfer=facts()), Status(), NOW)
    assert conditions(status)[KV_TRANSFER].reason == "Verified"
    nowhere = having(IN_PODS_OF_D, transfer_path=NETWORK, transfer=facts())
    assert KV_TRANSFER not in conditions(built(nowhere, Status(), NOW))


def test_the_path_of_another_revision_is_not_claimed() -> None:
    """Routers still report the earlier revision, and the spec describes the next one."""
    known = built(having(SERVING, transfer=facts(), transfer_path=NETWORK), Status(), NOW)
    changed = having(SERVING, revision="r2", transfer=facts(), transfer_path=SHARED)
    transfer = built(changed, known, NOW).transfer
    assert transfer is not None
    assert (transfer.revision, transfer.path) == ("r1", "Network")
    unknown = built(changed, Status(), NOW).transfer
    assert unknown is not None
    assert unknown.path == ""


def test_what_tcp_gives_is_slow_within_a_pod() -> None:
    slow = facts(OVER_TCP)
    status = built(having(IN_PODS_OF_D, transfer=slow), Status(), NOW)
    condition = conditions(status)[KV_TRANSFER]
    assert (condition.status, condition.reason) == ("False", "Slow")
    assert "NVLink should give more" in condition.message
    apart = built(having(SERVING, transfer=slow, transfer_path=NETWORK), Status(), NOW)
    assert conditions(apart)[KV_TRANSFER].reason == "Verified"


def test_transfers_under_way_are_those_of_each_way() -> None:
    def under_way(path: Path) -> float:
        transfer = built(having(IN_PODS_OF_D, transfer_path=path, transfer=facts(OVER_TCP)), Status(), NOW).transfer
        assert transfer is not None
        assert transfer.concurrent_transfers is not None
        return transfer.concurrent_transfers

    assert under_way(SHARED) == 0.15, "two D share the way of one P"
    assert under_way(replace(SHARED, parameter_instances=2)) == 0.075
