"""The condition KVTransfer and `status.transfer`."""

import math
import re
from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdinference.api.names import Verification
from pdinference.api.v1alpha1 import Condition, Status
from pdinference.api.v1alpha1.conditions import BY_NAME, KV_TRANSFER
from pdinference.planning.router_window import WINDOW_S
from pdinference.planning.status import StatusInputs
from pdinference.planning.transfer import Canary, Counted, Path, TransferFacts
from pdinference.planning.transitions import transitions
from tests.conftest import REPOSITORY
from tests.planning.statuses import NOW, SERVING, built, conditions

GPUS = Path(gpus=True)
RDMA = Path(gpus=True, rdma=True)
VERIFIED = Canary(Verification.VERIFIED, "r1", age=10, tokens=512, distance=0.01, limit=0.2)
NEVER_VERIFIED = Canary(Verification.OFF, "r1")
# A load that is light for NVLink: 1,000 transfers of 0.131 GB in 300 s, at 66 GB/s.
LIGHT = Counted(
    parameter_tokens=1_000_000,
    complete=1000,
    failed=0,
    expired=0,
    bytes=131e9,
    transfer_seconds=2,
    waiting_seconds=30,
    first_tokens=1000,
    first_token_seconds=70,
)
# Measured on two H200 (request-path.md): 8,000 tokens, TCP, 4.5 req/s. The path carries 2.5 req/s of 1.05 GB.
FULL = replace(
    LIGHT,
    parameter_tokens=6_000_000,
    complete=750,
    bytes=787e9,
    transfer_seconds=13_000,
    waiting_seconds=300,
    first_tokens=750,
    first_token_seconds=13_200,
)


def facts(counted: Counted = LIGHT, canary: Canary = VERIFIED, *, revision: str = "r1") -> TransferFacts:
    return TransferFacts(revision, canary, WINDOW_S, counted)


def rest(canary: Canary = VERIFIED) -> TransferFacts:
    return facts(Counted(), canary)


def inputs(found: TransferFacts | None, path: Path = GPUS) -> StatusInputs:
    return replace(SERVING, transfer=found, transfer_path=path)


def after(*found: TransferFacts | None, path: Path = GPUS, minutes: float = 6) -> Status:
    """The status after windows that are some minutes apart."""
    status = Status()
    for number, one in enumerate(found):
        status = built(inputs(one, path), status, NOW + timedelta(minutes=minutes * number))
    return status


def judged(*found: TransferFacts | None, path: Path = GPUS, minutes: float = 6) -> tuple[str, str]:
    condition = of(after(*found, path=path, minutes=minutes))
    return condition.status, condition.reason


def of(status: Status) -> Condition:
    return conditions(status)[KV_TRANSFER]


@pytest.mark.parametrize(
    ("found", "path", "expected"),
    [
        (rest(NEVER_VERIFIED), GPUS, ("Unknown", "NoRequestsYet")),
        (rest(Canary(Verification.PENDING, "r1")), GPUS, ("Unknown", "NoRequestsYet")),
        (rest(), GPUS, ("True", "Verified")),
        (facts(), GPUS, ("True", "Verified")),
        (facts(canary=NEVER_VERIFIED), GPUS, ("True", "Transferring")),
        (facts(canary=Canary(Verification.WRONG_ANSWER, "r2")), GPUS, ("False", "WrongAnswers")),
        (rest(Canary(Verification.FAILED, "r1")), GPUS, ("False", "Failing")),
        (rest(Canary(Verification.COMPUTED_BY_DECODE, "r1")), GPUS, ("False", "ComputedByDecode")),
        (facts(replace(LIGHT, failed=20)), GPUS, ("False", "Failing")),
        (facts(replace(LIGHT, expired=20)), GPUS, ("False", "Failing")),
        (facts(replace(LIGHT, failed=2)), GPUS, ("True", "Verified")),
        (facts(replace(LIGHT, decode_tokens=500_000)), GPUS, ("False", "ComputedByDecode")),
        (facts(replace(LIGHT, decode_tokens=10_000, cached_tokens=5_000_000)), GPUS, ("True", "Verified")),
        (facts(FULL), GPUS, ("False", "Saturated")),
        # A few transfers at 0.5 GB/s: TCP with small segments, or a slow network.
        (facts(replace(LIGHT, bytes=10e9, transfer_seconds=20)), GPUS, ("False", "Slow")),
        (facts(replace(LIGHT, bytes=10e9, transfer_seconds=20)), Path(), ("True", "Verified")),
        (facts(replace(LIGHT, bytes=30e9, transfer_seconds=10)), GPUS, ("True", "Verified")),
        (facts(replace(LIGHT, bytes=30e9, transfer_seconds=10)), RDMA, ("False", "Slow")),
        # Four ranks transfer at the same time, each at 0.7 GB/s.
        (facts(replace(LIGHT, bytes=28e9, transfer_seconds=40)), replace(GPUS, ranks=4), ("True", "Verified")),
        # Bursts of 32 at 2.6 GB/s: each transfer takes long, but they overlap.
        (facts(replace(LIGHT, transfer_seconds=1600, waiting_seconds=55)), GPUS, ("True", "Verified")),
        # A connector that counts no transfers.
        (facts(Counted(parameter_tokens=1000, first_tokens=3), NEVER_VERIFIED), GPUS, ("True", "Transferring")),
        (facts(Counted(decode_tokens=1000, first_tokens=3), NEVER_VERIFIED), GPUS, ("False", "ComputedByDecode")),
    ],
)
def test_each_reason(found: TransferFacts, path: Path, expected: tuple[str, str]) -> None:
    assert judged(found, path=path) == expected


def test_the_numbers_of_a_path_that_is_full() -> None:
    numbers = after(facts(FULL)).transfer
    assert numbers is not None
    assert (numbers.gigabytes_per_second, numbers.gigabytes_per_transfer) == (2.6, 1.0)
    assert (numbers.from_parameter_percent, numbers.busy_percent, numbers.first_token_percent) == (100, 100, 98)
    assert numbers.inferred_transport == "TCP"
    message = of(after(facts(FULL))).message
    assert "carry 2.6 GB/s" in message
    assert "43 at a time" in message


@pytest.mark.parametrize("found", [FULL, replace(LIGHT, bytes=10e9, transfer_seconds=20)], ids=["Saturated", "Slow"])
def test_fp8_is_proposed_with_its_bytes_where_it_moves_fewer(found: Counted) -> None:
    sized = replace(GPUS, token_bytes=131_072, fp8_token_bytes=65_536)
    proposal = "With engine.kvCache.dtype: fp8 a prompt token moves 65,536 instead of 131,072 bytes. See "
    assert proposal in of(after(facts(found), path=sized)).message
    for path in (GPUS, replace(sized, token_bytes=65_536, fp8_token_bytes=None)):
        assert "fp8" not in of(after(facts(found), path=path)).message


def test_a_transport_is_inferred_only_between_gpus_and_from_enough_bytes() -> None:
    def transport(counted: Counted, path: Path) -> str:
        numbers = after(facts(counted), path=path).transfer
        assert numbers is not None
        return numbers.inferred_transport

    assert transport(LIGHT, GPUS) == "NVLinkOrRDMA"
    assert transport(LIGHT, Path()) == ""
    assert transport(replace(LIGHT, bytes=30e9, transfer_seconds=10), RDMA) == "", "slow RDMA, or TCP"
    assert transport(replace(LIGHT, bytes=1e6, transfer_seconds=10), GPUS) == ""


def test_every_message_names_an_existing_section() -> None:
    page = (REPOSITORY / "docs" / "runbooks.md").read_text(encoding="utf-8")
    sections = {line.removeprefix("## ").lower() for line in page.splitlines() if line.startswith("## ")}
    faults = (
        facts(canary=Canary(Verification.WRONG_ANSWER, "r1", tokens=512, distance=0.9, limit=0.2)),
        facts(replace(LIGHT, failed=20)),
        facts(replace(LIGHT, decode_tokens=500_000)),
        facts(FULL),
        facts(replace(LIGHT, bytes=10e9, transfer_seconds=20)),
    )
    named = {match[1] for one in faults if (match := re.search(r"runbooks\.md#(\S+)\.$", of(after(one)).message))}
    assert len(named) == len(faults)
    assert named <= sections
    assert "512 prompt tokens; distance 0.9, limit 0.2" in of(after(faults[0])).message


def test_what_was_found_stays_while_nothing_is_known() -> None:
    before = after(facts(FULL))
    assert built(inputs(None), before, NOW) == before, "no router reports, for example after a restart of the operator"
    assert KV_TRANSFER not in conditions(after(None))
    assert judged(facts(replace(LIGHT, failed=20)), rest(NEVER_VERIFIED)) == ("False", "Failing")
    slow = facts(replace(LIGHT, bytes=10e9, transfer_seconds=20))
    assert judged(slow, rest()) == ("False", "Slow"), "a canary is too small to show a speed"


def test_a_fault_ends_with_its_load_or_by_a_newer_canary() -> None:
    assert judged(facts(FULL), rest()) == ("True", "Verified")
    assert judged(facts(FULL, NEVER_VERIFIED), rest(NEVER_VERIFIED)) == ("True", "Transferring")
    failing = facts(replace(LIGHT, failed=20))
    assert judged(failing, rest()) == ("True", "Verified")
    assert judged(failing, rest(replace(VERIFIED, age=3600))) == ("False", "Failing")
    assert judged(failing, facts()) == ("True", "Verified")


def test_a_fault_is_said_at_once_and_taken_back_after_a_window() -> None:
    failing = facts(replace(LIGHT, failed=20))
    assert judged(facts(), failing, minutes=0.5) == ("False", "Failing")
    assert judged(facts(), failing, facts(), minutes=0.5) == ("False", "Failing")


def test_the_time_of_the_canary_is_written_along_with_other_changes() -> None:
    def ended(status: Status) -> datetime | None:
        assert status.transfer is not None
        return status.transfer.verification.completion_time

    status = after(rest())
    assert ended(status) == NOW - timedelta(seconds=10)
    hour = timedelta(hours=1)
    assert built(inputs(rest(replace(VERIFIED, age=60))), status, NOW + hour) == status, "a later canary is no write"
    busy = built(inputs(facts(canary=replace(VERIFIED, age=60))), status, NOW + hour)
    assert ended(busy) == NOW + timedelta(minutes=59)
    for unknown in (None, math.inf, 1e15, -5.0):
        assert ended(after(rest(Canary(Verification.PENDING, "r1", unknown)))) is None


def test_a_new_revision_begins_anew() -> None:
    wrong = facts(canary=Canary(Verification.WRONG_ANSWER, "r1"))
    new = TransferFacts("r2", Canary(Verification.PENDING, "r2"), WINDOW_S)
    assert judged(wrong, new, minutes=0.5) == ("Unknown", "NoRequestsYet")


def test_wrong_answers_stay_until_a_canary_shows_otherwise() -> None:
    wrong = facts(canary=Canary(Verification.WRONG_ANSWER, "r1"))
    pending = facts(canary=Canary(Verification.PENDING, "r1"))
    assert judged(wrong, pending) == ("False", "WrongAnswers"), "the router has restarted"
    assert judged(wrong, facts()) == ("True", "Verified")


def test_a_condition_of_a_later_version_is_no_obstacle() -> None:
    status = after(facts())
    later = status.model_copy(update={"conditions": [of(status).model_copy(update={"reason": "Later"})]})
    assert of(built(inputs(facts()), later)).reason == "Verified"


def test_without_a_transfer_there_is_no_condition() -> None:
    status = built(replace(SERVING, transfer=facts(), transfer_path=None), after(facts()))
    assert KV_TRANSFER not in conditions(status)
    assert status.transfer is None


def test_a_revision_without_p_has_no_transfer_to_judge() -> None:
    """It serves on while a revision with P starts beside it."""
    computed = facts(replace(LIGHT, parameter_tokens=0, decode_tokens=5_000), Canary(Verification.OFF, "r1"))
    status = built(replace(inputs(computed), aggregated=frozenset({"r1"})), Status(), NOW)
    assert KV_TRANSFER not in conditions(status)
    assert status.transfer is None


def test_changes_are_events() -> None:
    good, full, wrong = after(facts()), after(facts(FULL)), after(facts(canary=Canary(Verification.WRONG_ANSWER, "r1")))
    assert [event.reason for event in transitions(good, full)] == ["KVTransferSaturated"]
    assert [event.reason for event in transitions(full, wrong)] == ["KVTransferWrongAnswers"]
    assert [event.reason for event in transitions(full, good)] == ["KVTransferRecovered"]
    assert [*transitions(full, full), *transitions(after(rest(NEVER_VERIFIED)), good)] == []


@given(
    st.lists(st.floats(0.95, 1.05), min_size=40, max_size=40),
    st.sampled_from([LIGHT, FULL, replace(LIGHT, failed=11), replace(LIGHT, decode_tokens=300_000)]),
)
def test_a_constant_load_is_written_once(noise: list[float], load: Counted) -> None:
    """20 minutes with a reading every 30 s, and a few percent of noise, with which no load crosses a limit."""
    status, writes = Status(), 0
    for number, factor in enumerate(noise):
        names = ("parameter_tokens", "complete", "bytes", "transfer_seconds", "first_tokens")
        varied = replace(load, **{name: getattr(load, name) * factor for name in names})
        fresh = built(inputs(facts(varied)), status, NOW + timedelta(seconds=30 * number))
        writes += fresh != status
        status = fresh
    assert writes == 1


number = st.floats(0, 1e15)
maybe = st.none() | number
anything = st.builds(
    TransferFacts,
    st.sampled_from(["r1"]),
    st.builds(Canary, st.sampled_from(Verification), st.just("r1"), maybe | st.just(math.inf), maybe, maybe, maybe),
    st.sampled_from([0.0, 30.0, 300.0]),
    st.builds(Counted, number, number, number, maybe, maybe, maybe, maybe, maybe, maybe, number, number),
)


@given(st.lists(anything, min_size=1, max_size=60))
def test_hostile_numbers_are_bounded_and_written_rarely(found: list[TransferFacts]) -> None:
    """Every 10 s something else: a write makes the reason worse, or comes minutes after the one before."""
    status, writes = Status(), 0
    for count, one in enumerate(found):
        fresh = built(inputs(one), status, NOW + timedelta(seconds=10 * count))
        writes += fresh != status
        status = fresh
        Status.model_validate_json(status.model_dump_json(by_alias=True))
        row = BY_NAME[KV_TRANSFER]
        assert of(status).reason in row.reasons[of(status).status]
    assert writes <= 9 * (1 + len(found) // 30)


@given(anything, st.lists(st.integers(1, 10_000), min_size=1, max_size=5))
def test_rest_causes_no_write(load: TransferFacts, pauses: list[int]) -> None:
    still = rest(load.canary)
    status, now = built(inputs(load)), NOW + timedelta(hours=1)
    status = built(inputs(still), status, now)
    for pause in pauses:
        now += timedelta(seconds=pause)
        assert built(inputs(still), status, now) == status
