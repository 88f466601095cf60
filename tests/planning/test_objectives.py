"""The condition ObjectivesMet and `status.objectives`."""

from bisect import bisect_left
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdinference.api.latencies import ABANDONED_BOUNDS, FIRST_TOKEN_BOUNDS, OUTPUT_TOKEN_BOUNDS
from pdinference.api.names import Role
from pdinference.api.v1alpha1 import Condition, Status
from pdinference.api.v1alpha1.conditions import BY_NAME, OBJECTIVES_MET
from pdinference.planning.objectives import Attainment, StatedObjectives, StreamCounts, attainments, quantile
from pdinference.planning.router_window import WINDOW_S
from pdinference.planning.status import StatusInputs, due_limit
from pdinference.planning.transitions import transitions
from pdinference.planning.utilization import RoleUse, Utilization, gpu_price
from tests.conftest import REPOSITORY
from tests.planning.statuses import NOW, SERVING, built, conditions, having

STATED = StatedObjectives(ttft=0.5, tpot=0.03, percentile=99)
USE = Utilization(
    {Role.PARAMETER: RoleUse(0.62, 9800.0, 0.1), Role.DECODE: RoleUse(0.81, 1200.0, 0.4)}, 0.006, cost_per_million=0.417
)


def histogram(bounds: tuple[float, ...], values: dict[float, float]) -> tuple[float, ...]:
    counts = [0.0] * (len(bounds) + 1)
    for seconds, count in values.items():
        counts[bisect_left(bounds, seconds)] += count
    return tuple(counts)


def streams(
    first: dict[float, float] | None = None,
    token: dict[float, float] | None = None,
    *,
    abandoned: dict[float, float] | None = None,
    failed: float = 0,
    stages: tuple[float, float, float] = (0, 100, 50),
    seconds: float = WINDOW_S,
) -> StreamCounts:
    return StreamCounts(
        seconds,
        histogram(FIRST_TOKEN_BOUNDS, first or {}),
        histogram(OUTPUT_TOKEN_BOUNDS, token or {}),
        histogram(ABANDONED_BOUNDS, abandoned or {}),
        failed,
        *stages,
    )


GOOD = streams({0.2: 995, 0.9: 5}, {0.01: 1000})
LATE = streams({0.2: 900, 0.9: 100}, {0.01: 1000})
SLOW_TOKENS = streams({0.2: 1000}, {0.01: 900, 0.05: 100})
REST = streams()


def inputs(
    counts: StreamCounts | None, use: Utilization = USE, stated: StatedObjectives | None = STATED
) -> StatusInputs:
    return having(SERVING, objectives=stated, streams=counts, utilization=use)


def after(*found: StreamCounts | None, minutes: float = 6, use: Utilization = USE) -> Status:
    status = Status()
    for number, one in enumerate(found):
        status = built(inputs(one, use), status, NOW + timedelta(minutes=minutes * number))
    return status


def of(status: Status) -> Condition:
    return conditions(status)[OBJECTIVES_MET]


def judged(*found: StreamCounts | None, minutes: float = 6) -> tuple[str, str]:
    condition = of(after(*found, minutes=minutes))
    return condition.status, condition.reason


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (REST, ("Unknown", "NoRequestsYet")),
        (streams({0.2: 1, 0.9: 1}), ("Unknown", "NoRequestsYet")),
        (streams({0.2: 2}), ("True", "Met")),
        (GOOD, ("True", "Met")),
        (LATE, ("False", "Missed")),
        (SLOW_TOKENS, ("False", "Missed")),
        (streams({0.2: 100}, failed=5), ("False", "Missed")),
        (streams({0.2: 100}, abandoned={20.0: 5}), ("False", "Missed")),
        (streams({0.2: 100}, abandoned={0.05: 5}), ("True", "Met")),
        (streams(failed=5), ("False", "Missed")),
    ],
)
def test_each_reason(found: StreamCounts, expected: tuple[str, str]) -> None:
    assert judged(found) == expected


def test_chance_does_not_begin_it_and_it_ends_within_the_allowed_share() -> None:
    by_chance = streams({0.2: 986, 0.9: 14}, {0.01: 1000})
    assert judged(GOOD, by_chance) == ("True", "Met"), "10 are allowed, 2 standard deviations are 6.3"
    assert judged(LATE, by_chance) == ("False", "Missed")
    assert judged(LATE, GOOD) == ("True", "Met")
    assert judged(GOOD, LATE, GOOD, minutes=0.5) == ("False", "Missed"), "at once, and ended after a window"


@pytest.mark.parametrize(
    ("percentile", "requests", "allowed"), [(90, 20, 2), (80, 10, 2), (99.9, 2000, 2), (99, 200, 2)]
)
def test_as_many_misses_as_allowed_are_none_too_many(percentile: float, requests: int, allowed: int) -> None:
    for before in (None, False, True):
        assert Attainment(requests, allowed, None).is_missed(percentile, before=before) is False
        assert Attainment(requests, allowed + 100, None).is_missed(percentile, before=before) is True


def test_the_numbers_and_the_message() -> None:
    status = after(GOOD)
    found = status.objectives
    assert found is not None
    assert found.ttft is not None
    assert found.tpot is not None
    assert (found.requests, found.ttft.kept_percent, found.tpot.kept_percent) == (1000, 99.5, 100)
    assert found.parameter is not None
    assert (found.parameter.busy_percent, found.parameter.tokens_per_second_per_gpu) == (62, 9800)
    assert (found.observed_time, found.since) == (NOW, NOW - timedelta(seconds=300))
    message = of(status).message
    for part in ("99.5 % had the first token within 500 ms", "objective is 99 %", "D is 81 % busy", "cost 0.42"):
        assert part in message


def test_after_ten_minutes_the_message_says_once_what_limits() -> None:
    status = built(inputs(LATE), Status(), NOW)
    assert status.objectives is not None
    assert (status.objectives.limit, due_limit(status)) == ("", NOW + timedelta(minutes=10))
    assert built(inputs(LATE), status, NOW + timedelta(minutes=9)) == status
    status = built(inputs(LATE), status, NOW + timedelta(minutes=10))
    assert status.objectives is not None
    assert status.objectives.limit == "ParameterSpeed"
    assert "kubectl get pdi x -n ns -o yaml | pdinference advise -f - --live --gpus NxPRODUCT." in of(status).message
    assert due_limit(status) is None
    assert built(inputs(LATE), status, NOW + timedelta(minutes=30)) == status


def test_a_time_ahead_in_the_status_is_none_of_a_miss() -> None:
    """Another client wrote it."""
    status = built(inputs(LATE), Status(), NOW)
    ahead = datetime(9999, 12, 31, tzinfo=UTC)
    written = [one.model_copy(update={"last_transition_time": ahead}) for one in status.conditions]
    found = built(inputs(LATE), status.model_copy(update={"conditions": written}), NOW)
    assert due_limit(found) == NOW + timedelta(minutes=10)


BUSY_P = replace(USE, roles={**USE.roles, Role.PARAMETER: RoleUse(0.97)})
FULL_D = replace(USE, roles={**USE.roles, Role.DECODE: RoleUse(1.0, kv_usage=0.97)})


@pytest.mark.parametrize(
    ("found", "use", "expected"),
    [
        (LATE, BUSY_P, "Parameter"),
        (LATE, USE, "ParameterSpeed"),
        (replace(LATE, queue_seconds=500), BUSY_P, "NoPods"),
        (replace(LATE, decode_seconds=500), FULL_D, "KVCache"),
        (replace(LATE, decode_seconds=500), USE, "Decode"),
        (SLOW_TOKENS, USE, "Decode"),
        (SLOW_TOKENS, replace(USE, idle_token_seconds=0.028), "DecodeSpeed"),
    ],
)
def test_what_limits(found: StreamCounts, use: Utilization, expected: str) -> None:
    status = after(found, found, found, use=use)
    assert status.objectives is not None
    assert status.objectives.limit == expected
    assert f"| `{expected}` |" in (REPOSITORY / "docs" / "runbooks.md").read_text(encoding="utf-8")


def test_what_was_found_stays_while_nothing_is_known() -> None:
    before = after(LATE)
    for unknown in (None, streams(seconds=0)):
        assert built(inputs(unknown), before, NOW + timedelta(hours=1)) == before
    assert OBJECTIVES_MET not in conditions(after(None))
    assert judged(LATE, REST) == ("Unknown", "NoRequests")
    assert judged(GOOD, REST) == ("True", "Met")


def test_without_objectives_there_is_nothing_and_other_objectives_begin_anew() -> None:
    before = after(LATE)
    without = built(inputs(LATE, stated=None), before, NOW)
    assert OBJECTIVES_MET not in conditions(without)
    assert without.objectives is None
    lower = built(inputs(LATE, stated=replace(STATED, ttft=1.0)), before, NOW + timedelta(seconds=1))
    assert of(lower).reason == "Met"


def test_changes_are_events() -> None:
    good, late = after(GOOD), after(LATE)
    assert [event.reason for event in transitions(good, late)] == ["ObjectivesMissed"]
    assert [event.reason for event in transitions(late, good)] == ["ObjectivesMet"]
    assert [*transitions(late, late), *transitions(after(REST), good)] == []


def test_the_price_is_that_of_the_dearest_product() -> None:
    prices = {"A": 2.0, "B": 3.0}
    assert gpu_price(["A", "B"], prices) == 3
    assert gpu_price(["A", "C"], prices) is gpu_price([], prices) is None


@given(st.floats(0.01, 100), st.integers(1, 1000))
def test_an_objective_inside_a_bucket_is_off_by_less_than_a_tenth(seconds: float, count: int) -> None:
    """All requests take the same time: those 11 % above an objective miss it, those 11 % below keep it."""
    found = streams({seconds: count})
    for factor, missed in ((0.9, count), (1.11, 0)):
        if 0.01 <= seconds * factor <= 100:
            one = attainments(StatedObjectives(seconds * factor, None, 99), found)["ttft"]
            assert one.missed == pytest.approx(missed, abs=1e-6)
    measured = quantile(0.5, FIRST_TOKEN_BOUNDS, found.first_token)
    assert measured is not None
    assert measured == pytest.approx(seconds, rel=0.1, abs=0.01)


@given(st.lists(st.floats(0.95, 1.05), min_size=40, max_size=40), st.sampled_from([GOOD, LATE, SLOW_TOKENS]))
def test_a_constant_load_is_written_once_and_once_with_its_limit(noise: list[float], load: StreamCounts) -> None:
    """20 minutes with a reading every 30 s, and a few percent of noise."""
    status, writes = Status(), 0
    for number, factor in enumerate(noise):
        varied = replace(load, first_token=tuple(count * factor for count in load.first_token))
        used = replace(USE, cost_per_million=0.4 * factor)
        fresh = built(inputs(varied, used), status, NOW + timedelta(seconds=30 * number))
        writes += fresh != status
        status = fresh
    assert writes == (1 if load is GOOD else 2)


number = st.floats(0, 1e15)
counts = st.one_of(st.just(0.0), number)


def sparse(bounds: tuple[float, ...]) -> st.SearchStrategy[tuple[float, ...]]:
    """A histogram with a few values in its first buckets."""
    return st.lists(counts, min_size=4, max_size=4).map(lambda some: (*some, *[0.0] * (len(bounds) - 3)))


anything = st.builds(
    StreamCounts,
    st.sampled_from([0.0, 60.0, 300.0]),
    sparse(FIRST_TOKEN_BOUNDS),
    sparse(OUTPUT_TOKEN_BOUNDS),
    sparse(ABANDONED_BOUNDS),
    number,
    number,
    number,
    number,
)
used = st.builds(
    Utilization, st.just({Role.DECODE: RoleUse(1e15, 1e15, 1e15)}), st.none() | number, st.none() | st.floats(0, 1e300)
)


@given(st.lists(st.tuples(anything, used), min_size=1, max_size=60))
def test_hostile_numbers_are_bounded_and_written_rarely(found: list[tuple[StreamCounts, Utilization]]) -> None:
    """Every 10 s something else: a write makes the reason worse, or comes minutes after the one before."""
    status, writes = Status(), 0
    for count, (one, use) in enumerate(found):
        fresh = built(inputs(one, use), status, NOW + timedelta(seconds=10 * count))
        writes += fresh != status
        status = fresh
        Status.model_validate_json(status.model_dump_json(by_alias=True))
        row = BY_NAME[OBJECTIVES_MET]
        assert of(status).reason in row.reasons[of(status).status]
    assert writes <= 4 * (1 + len(found) // 30)


@given(anything, st.lists(st.integers(1, 10_000), min_size=1, max_size=5))
def test_rest_causes_no_write(load: StreamCounts, pauses: list[int]) -> None:
    now: datetime = NOW + timedelta(hours=1)
    status = built(inputs(REST), built(inputs(load)), now)
    for pause in pauses:
        now += timedelta(seconds=pause)
        assert built(inputs(REST), status, now) == status
