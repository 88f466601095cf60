"""The record of a PDScaler, and the changes that start a reconcile."""

from copy import deepcopy
from datetime import UTC, datetime
from typing import Any

import pytest

from pdinference.cluster.cache import Cache
from pdinference.cluster.kinds import SCALER, ChildKey, Kind
from pdinference.cluster.state.records import child_record
from pdinference.planning.scale_target import ScalerState
from tests.cluster.objects import OWNER, Json, live, manifest

KEY = ChildKey("PDScaler", "ns", "llama-decode")
LIMITED = {
    "type": "Limited",
    "status": "True",
    "reason": "GpuBudget",
    "message": "spec.autoscaling.gpuBudget allows 3 pods.",
    "lastTransitionTime": "2026-11-22T10:00:00Z",
    "observedGeneration": 2,
}


def scaler(version: int = 1, spec: Json | None = None, **status: Any) -> Json:
    return {**live(manifest("PDScaler", KEY.name), version=version, **status), "spec": spec or {}}


def seen(cache: Cache) -> ScalerState:
    record = cache.children.get(KEY)
    assert record is not None
    assert record.scaler is not None
    return record.scaler


def test_a_fresh_scaler_recommends_nothing() -> None:
    body = scaler()
    del body["status"]
    assert child_record("PDScaler", body).scaler == ScalerState()
    assert child_record("Service", live(manifest())).scaler is None


def test_recommendation_and_status_are_kept() -> None:
    status: Json = {"replicas": 3, "selector": "a=b", "revision": "r1", "baselineInterTokenMicroseconds": 10_400}
    state = child_record("PDScaler", scaler(spec={"replicas": 8}, **status, conditions=[LIMITED])).scaler
    assert state is not None
    assert (state.recommended, state.replicas, state.selector, state.revision) == (8, 3, "a=b", "r1")
    assert state.baseline_microseconds == 10_400
    (limited,) = state.conditions
    assert (limited.reason, limited.last_transition_time) == ("GpuBudget", datetime(2026, 11, 22, 10, tzinfo=UTC))


def test_a_recommendation_is_no_drift_from_the_manifest() -> None:
    cache = Cache()
    cache.applied("PDScaler", scaler(1))
    assert cache.observe(SCALER, scaler(2, {"replicas": 4}), deleted=False) == {OWNER}
    assert seen(cache).recommended == 4


def test_the_answer_to_a_status_write_makes_its_watch_event_old() -> None:
    cache = Cache()
    cache.observe(SCALER, scaler(1, {"replicas": 4}), deleted=False)
    cache.written("PDScaler", written := scaler(2, {"replicas": 4}, replicas=3))
    assert seen(cache).replicas == 3
    assert cache.observe(SCALER, deepcopy(written), deleted=False) == set()


def test_a_recommendation_in_the_answer_to_a_status_write_counts() -> None:
    cache = Cache()
    cache.observe(SCALER, scaler(1, {"replicas": 4}), deleted=False)
    cache.written("PDScaler", scaler(3, {"replicas": 6}, replicas=3))
    assert (seen(cache).recommended, seen(cache).replicas) == (6, 3)


def test_a_scaler_that_no_crd_would_allow_is_left_out() -> None:
    unreadable: list[Kind] = []
    cache = Cache(unreadable.append)
    assert cache.observe(SCALER, {**scaler(1), "status": "none"}, deleted=False) == set()
    assert unreadable == [SCALER]


@pytest.mark.parametrize("time", ["0000-01-01T00:00:00Z", "2026-01-01T00:00:00+99:99"])
def test_conditions_that_another_client_wrote_do_not_hide_a_scaler(time: str) -> None:
    """The API server accepts these times. The operator writes its conditions again."""
    cache = Cache()
    body = scaler(1, {"replicas": 4}, conditions=[{**LIMITED, "lastTransitionTime": time}])
    assert cache.observe(SCALER, body, deleted=False) == {OWNER}
    assert (seen(cache).recommended, seen(cache).conditions) == (4, ())
