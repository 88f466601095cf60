"""The condition KVTransfer and `status.transfer`."""

import math
import re
from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdinference.api.names import Role, Verification
from pdinference.api.v1alpha1 import Condition, Status
from pdinference.api.v1alpha1.conditions import BY_NAME, KV_TRANSFER
from pdinference.planning.router_window import WINDOW_S
from pdinference.planning.status import StatusInputs
from pdinference.planning.transfer_measurements import FAULTS, CanaryFacts, Counted, Path, TransferFacts, outline
from pdinference.planning.transitions import transitions
from tests.conftest import REPOSITORY
from tests.planning.statuses import NOW, SERVING, built, conditions, having, pod

GPUS = Path(gpus=True)
RDMA = Path(gpus=True, rdma=1)
RANKS = Path(gpus=True, ranks=4)
RANKS_RDMA = Path(gpus=True, ranks=4, rdma=4)
VERIFIED = CanaryFacts(Verification.VERIFIED, "r1", age=10, tokens=512, distance=0.01, limit=0.2)
NEVER_VERIFIED = CanaryFacts(Verification.OFF, "r1")
D_PODS = [one.name for one in SERVING.pods if one.role is Role.DECODE]
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
    steps=50_000,
    step_seconds=275,
)
# A few transfers at 0.5 GB/s: TCP with small segments, or a slow network.
WEAK = replace(LIGHT, complete=100, bytes=13.1e9, transfer_seconds=25)
# 1,000 tokens over TCP: 131 MB in 45 ms are 2.9 GB/s.
OVER_TCP = replace(LIGHT, transfer_seconds=45, waiting_seconds=45)
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


def facts(counted: Counted = LIGHT, canary: CanaryFacts = VERIFIED, *, revision: str = "r1") -> TransferFacts:
    return TransferFacts(revision, canary, WINDOW_S, counted)


def rest(canary: CanaryFacts = VERIFIED) -> TransferFacts:
    return facts(Counted(), canary)


def inputs(found: TransferFacts | None, path: Path = GPUS) -> StatusInputs:
    return having(SERVING, transfer=found, transfer_path=path)


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
        (rest(CanaryFacts(Verification.PENDING, "r1")), GPUS, ("Unknown", "NoRequestsYet")),
        (rest(), GPUS, ("True", "Verified")),
        (facts(), GPUS, ("True", "Verified")),
        (facts(canary=NEVER_VERIFIED), GPUS, ("True", "Transferring")),
        (facts(canary=CanaryFacts(Verification.WRONG_ANSWER, "r2")), GPUS, ("False", "WrongAnswers")),
        (rest(CanaryFacts(Verification.FAILED, "r1")), GPUS, ("False", "Failing")),
        (rest(CanaryFacts(Verification.COMPUTED_BY_DECODE, "r1")), GPUS, ("False", "ComputedByDecode")),
        (facts(replace(LIGHT, failed=20)), GPUS, ("False", "Failing")),
        (facts(replace(LIGHT, expired=20)), GPUS, ("False", "Failing")),
        (facts(replace(LIGHT, failed=2)), GPUS, ("True", "Verified")),
        (facts(replace(LIGHT, decode_tokens=500_000)), GPUS, ("False", "ComputedByDecode")),
        # D computed these because the router chose so.
        (facts(replace(LIGHT, decode_tokens=500_000, alone_tokens=500_000)), GPUS, ("True", "Verified")),
        (facts(replace(LIGHT, decode_tokens=50_000_000, alone_tokens=41_000_000)), GPUS, ("True", "Verified")),
        (facts(replace(LIGHT, decode_tokens=50_000_000, alone_tokens=30_000_000)), GPUS, ("False", "ComputedByDecode")),
        (facts(replace(LIGHT, decode_tokens=10_000, cached_tokens=5_000_000)), GPUS, ("True", "Verified")),
        (facts(FULL), GPUS, ("False", "Saturated")),
        (facts(WEAK), GPUS, ("False", "Slow")),
        (facts(WEAK), Path(), ("True", "Verified")),
        (facts(OVER_TCP), GPUS, ("True", "Verified")),
        (facts(OVER_TCP), RDMA, ("False", "Slow")),
        # Four ranks transfer at the same time, each at 0.7 GB/s, then at 0.58.
        (facts(replace(LIGHT, complete=400, bytes=52e9, transfer_seconds=75)), RANKS, ("True", "Verified")),
        (facts(replace(LIGHT, complete=400, bytes=52e9, transfer_seconds=90)), RANKS, ("False", "Slow")),
        # Each at 2.6 GB/s, which is TCP. They may share one RDMA device.
        (facts(replace(LIGHT, complete=400, bytes=52e9, transfer_seconds=20)), RANKS, ("True", "Verified")),
        (facts(replace(LIGHT, complete=400, bytes=52e9, transfer_seconds=20)), RANKS_RDMA, ("False", "Slow")),
        (
            facts(replace(LIGHT, complete=400, bytes=52e9, transfer_seconds=20)),
            replace(RANKS_RDMA, rdma=1),
            ("True", "Verified"),
        ),
        # Bursts of 32 at 2.6 GB/s: each transfer takes long, but they overlap.
        (facts(replace(LIGHT, transfer_seconds=1600, waiting_seconds=55)), GPUS, ("True", "Verified")),
        # A connector that counts no transfers.
        (facts(Counted(parameter_tokens=1000, first_tokens=3), NEVER_VERIFIED), GPUS, ("True", "Transferring")),
        (facts(Counted(decode_tokens=1000, first_tokens=3), NEVER_VERIFIED), GPUS, ("False", "ComputedByDecode")),
    ],
)
def test_each_reason(found: TransferFacts, path: Path, expected: tuple[str, str]) -> None:
    assert judged(found, path=path) == expected


def test_shares_of_requests_say_of_which_minutes_they_are() -> None:
    lost = of(after(facts(replace(LIGHT, expired=20)))).message
    assert "expired in the last 5 minutes with requests: P released" in lost
    by_decode = of(after(facts(replace(LIGHT, decode_tokens=500_000)))).message
    assert "prompt tokens itself in the last 5 minutes with requests. Such requests" in by_decode


def test_the_numbers_of_a_path_that_is_full() -> None:
    numbers = after(facts(FULL)).transfer
    assert numbers is not None
    assert (numbers.gigabytes_per_second, numbers.gigabytes_per_transfer) == (2.6, 1.0)
    assert (numbers.from_parameter_percent, numbers.busy_percent, numbers.first_token_percent) == (100, 100, 98)
    assert numbers.inferred_transport == "TCP"
    message = of(after(facts(FULL))).message
    assert "carry 2.6 GB/s" in message
    assert "43 at a time" in message


@pytest.mark.parametrize("found", [FULL, WEAK], ids=["Saturated", "Slow"])
def test_fp8_is_proposed_with_its_bytes_where_it_moves_fewer(found: Counted) -> None:
    sized = replace(GPUS, token_bytes=131_072, fp8_token_bytes=65_536)
    proposal = "engine.kvCache.dtype: fp8 (65,536 bytes a prompt token, not 131,072)"
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
    assert transport(OVER_TCP, GPUS) == "TCP"
    assert transport(OVER_TCP, RDMA) == "", "slow RDMA, or TCP"
    assert transport(replace(LIGHT, bytes=1e6, transfer_seconds=10), GPUS) == ""
    ranks = replace(LIGHT, complete=400, bytes=52e9, transfer_seconds=20)
    assert transport(ranks, RANKS) == "TCP", "10.4 GB/s of four ranks"


def test_every_message_names_an_existing_section() -> None:
    page = (REPOSITORY / "docs" / "runbooks.md").read_text(encoding="utf-8")
    sections = {line.removeprefix("## ").lower() for line in page.splitlines() if line.startswith("## ")}
    faults = (
        facts(canary=CanaryFacts(Verification.WRONG_ANSWER, "r1", tokens=512, distance=0.9, limit=0.2)),
        facts(replace(LIGHT, failed=20)),
        facts(replace(LIGHT, decode_tokens=500_000)),
        facts(FULL),
        facts(WEAK),
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
    assert judged(facts(WEAK), rest()) == ("False", "Slow"), "a canary is too small to show a speed"


def test_short_transfers_are_no_slow_path() -> None:
    """128 tokens of an 8B over NVLink: 16.8 MB in 4.9 ms, of which nearly all is latency (benchmarks/results)."""
    short = replace(LIGHT, complete=6000, bytes=16.8e6 * 6000, transfer_seconds=0.0049 * 6000, waiting_seconds=200)
    shared = Path(gpus=True, parameter_instances=1)
    for steps in ({"steps": 50_000, "step_seconds": 275}, {"steps": None, "step_seconds": None}):
        status = after(facts(replace(short, **steps)), path=shared)
        assert (of(status).reason, status.transfer and status.transfer.inferred_transport) == ("Verified", "")
    # Steps of 60 ms, as of a large model: a transfer that begins in one has ended in the next.
    long = replace(short, complete=1000, bytes=60e9, transfer_seconds=60, steps=10_000, step_seconds=600)
    assert judged(facts(long), path=shared) == ("True", "Verified")
    assert judged(facts(WEAK), facts(short), path=shared) == ("False", "Slow"), "they show no speed"


@pytest.mark.parametrize(("pods", "speed", "reason"), [(4, 2.6e9, "Verified"), (8, 0.58e9, "Slow")])
def test_the_speed_is_that_of_one_way_and_all_are_carried(pods: int, speed: float, reason: str) -> None:
    """Each D pod reads 60 % of the time, from a P pod of its own."""
    busy, each = 180.0, 1.05e9
    count = speed * busy * pods / each
    load = replace(LIGHT, complete=count, bytes=count * each, transfer_seconds=busy * pods, waiting_seconds=290)
    many = tuple(replace(one, name=f"{one.name}{n}") for one in SERVING.pods for n in range(pods))
    status = built(replace(inputs(facts(load)), pods=many))
    assert of(status).reason == reason
    numbers = status.transfer
    assert numbers is not None
    assert (numbers.gigabytes_per_second, numbers.inferred_transport) == (speed / 1e9, "TCP")
    assert numbers.carried_gigabytes_per_second == pytest.approx(0.6 * pods * speed / 1e9, rel=0.05)
    assert numbers.busy_percent == 60


def test_many_d_pods_share_the_way_of_one_p() -> None:
    """P sends 2.6 GB/s all the time, to four of eight D pods at once."""
    load = replace(FULL, transfer_seconds=1200)
    pods = tuple(replace(pod(Role.DECODE), name=f"d{n}") for n in range(8))
    status = built(replace(inputs(facts(load)), pods=(*pods, pod(Role.PARAMETER))))
    assert of(status).reason == "Saturated"
    assert status.transfer is not None
    assert status.transfer.concurrent_transfers == 4


def test_the_speed_of_another_revision_is_not_judged_by_the_path_of_the_spec() -> None:
    known = after(facts(OVER_TCP))
    shared = having(inputs(facts(OVER_TCP), Path(gpus=True, parameter_instances=1)), revision="r2")
    assert of(built(shared, known, NOW + timedelta(minutes=6))).reason == "Verified"
    slow = after(facts(WEAK))
    assert of(built(having(shared, transfer=facts(WEAK)), slow, NOW + timedelta(minutes=6))).reason == "Slow"


def test_a_saturated_path_is_reported_with_what_is_asked_and_what_to_set() -> None:
    asked = facts(replace(FULL, handed_over=1350))
    numbers = after(asked).transfer
    assert numbers is not None
    assert (numbers.carried_gigabytes_per_second, numbers.asked_gigabytes_per_second) == (2.6, 4.7)
    message = of(after(asked)).message
    assert "In all they carry 2.6 GB/s; 4.7 GB/s are asked." in message
    sized = replace(GPUS, token_bytes=2, fp8_token_bytes=1)
    every = "Set transfer.hostLocal (P and D on one host), transfer.rdma, engine.kvCache.dtype: fp8 ("
    assert every in of(after(asked, path=sized)).message
    assert ") or mode: Aggregated. See" in of(after(asked, path=sized)).message
    for path in (RDMA, Path()):
        assert "Set mode: Aggregated. See" in of(after(asked, path=path)).message
    shared = of(after(asked, path=Path(gpus=True, parameter_instances=1))).message
    assert "Set more decode.replicas or mode: Aggregated. See" in shared
    assert "asked" not in of(after(facts(replace(FULL, handed_over=750)))).message


def test_a_slow_direct_path_is_compared_with_tcp_as_measured() -> None:
    message = of(after(facts(OVER_TCP), path=RDMA)).message
    assert "RDMA should give more than 5. TCP between two pods with GPUs gave 2.6 to 3.2 GB/s." in message


def test_a_fault_lasts_until_a_window_shows_its_end() -> None:
    """The operator or the router has restarted, so that the window begins anew."""
    half_an_hour_later = NOW + timedelta(minutes=30)
    for fault in (FULL, WEAK, replace(LIGHT, failed=20), replace(LIGHT, decode_tokens=500_000)):
        before = after(facts(fault, replace(VERIFIED, age=100)))
        for found in (
            TransferFacts("r1", replace(VERIFIED, age=200), 0.0, Counted()),
            TransferFacts("r1", replace(VERIFIED, age=200), 30.0, replace(LIGHT, complete=100)),
        ):
            assert built(inputs(found), before, half_an_hour_later) == before
        wrong = TransferFacts("r1", CanaryFacts(Verification.WRONG_ANSWER, "r1"), 0.0, Counted())
        assert of(built(inputs(wrong), before, half_an_hour_later)).reason == "WrongAnswers"
        assert of(built(inputs(facts()), before, half_an_hour_later)).reason == "Verified"


@pytest.mark.parametrize("state", [Verification.WRONG_ANSWER, Verification.COMPUTED_BY_DECODE, Verification.FAILED])
def test_a_fault_that_a_canary_found_ends_with_a_good_one_at_once(state: Verification) -> None:
    bad = after(facts(canary=CanaryFacts(state, "r1")))
    assert of(bad).status == "False"
    good = built(inputs(facts()), bad, NOW + timedelta(seconds=10))
    assert of(good).reason == "Verified"
    restarted = TransferFacts("r1", replace(VERIFIED, age=3600), 0.0, Counted())
    assert of(built(inputs(restarted), bad, NOW + timedelta(seconds=10))).reason == "Verified"
    failing = facts(replace(LIGHT, failed=20))
    both = built(inputs(replace(failing, canary=CanaryFacts(state, "r1"))), Status(), NOW)
    assert of(built(inputs(failing), both, NOW + timedelta(seconds=10))).reason == "Failing"


def test_the_path_is_in_the_status_before_a_router_reports() -> None:
    path = Path(gpus=True, reason="path is Auto, and hostLocal is set", parameter_instances=1)
    status = after(None, path=path)
    assert status.transfer is not None
    assert (status.transfer.path, status.transfer.path_reason, status.transfer.revision) == (
        "HostLocal", path.reason, "r1"
    )  # fmt: skip
    assert built(inputs(None, path), status, NOW + timedelta(hours=1)) == status
    assert of(built(inputs(facts(), path), status)).reason == "Verified"


def test_a_fault_ends_with_its_load_or_by_a_newer_canary() -> None:
    assert judged(facts(FULL), rest()) == ("True", "Verified")
    assert judged(facts(FULL, NEVER_VERIFIED), rest(NEVER_VERIFIED)) == ("True", "Transferring")
    failing = facts(replace(LIGHT, failed=20))
    assert judged(failing, rest()) == ("True", "Verified")
    old = rest(replace(VERIFIED, age=3600))
    assert judged(failing, old) == ("False", "Failing")
    assert outline(old) != outline(rest()), "so that a canary after that changes the status"
    assert judged(failing, facts()) == ("True", "Verified")


def test_a_fault_that_was_written_late_ends_with_its_load() -> None:
    """Numbers of a fault are written while the window still has its requests, so long after the last of them."""
    failing = facts(replace(LIGHT, failed=20))
    assert judged(failing, rest(), minutes=0.5) == ("True", "Verified")


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
    assert f"ended at {ended(status):%Y-%m-%dT%H:%M:%SZ}, and later ones found no fault" in of(status).message
    hour = timedelta(hours=1)
    assert built(inputs(rest(replace(VERIFIED, age=60))), status, NOW + hour) == status, "a later canary is no write"
    busy = built(inputs(facts(canary=replace(VERIFIED, age=60))), status, NOW + hour)
    assert ended(busy) == NOW + timedelta(minutes=59)
    for unknown in (None, math.inf, 1e15, -5.0):
        assert ended(after(rest(CanaryFacts(Verification.PENDING, "r1", unknown)))) is None


def test_a_new_revision_begins_anew() -> None:
    wrong = facts(canary=CanaryFacts(Verification.WRONG_ANSWER, "r1"))
    new = TransferFacts("r2", CanaryFacts(Verification.PENDING, "r2"), WINDOW_S)
    assert judged(wrong, new, minutes=0.5) == ("Unknown", "NoRequestsYet")


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (Verification.WRONG_ANSWER, "A canary through P and D pod {} of revision r1 did not get the answer of P alone"),
        (Verification.COMPUTED_BY_DECODE, "D computed the prompt of a canary through P and D pod {} of revision r1."),
        (Verification.FAILED, "A canary through P and D pod {} of revision r1 got an error or no answer."),
    ],
)
@pytest.mark.parametrize("engine", ["", "/decode-1"])
def test_the_fault_of_one_d_pod_names_it_if_there_is_such_a_pod(state: Verification, words: str, engine: str) -> None:
    pod = D_PODS[0] + engine
    assert words.format(pod) in of(after(facts(canary=CanaryFacts(state, "r1", decode=pod)))).message
    other = after(facts(canary=CanaryFacts(state, "r1", decode="x" * 999)))
    assert "xxx" not in other.model_dump_json()


def test_a_failure_of_p_names_the_p_pod_and_not_the_network() -> None:
    (parameter,) = (one.name for one in SERVING.pods if one.role is Role.PARAMETER)
    message = of(after(facts(canary=CanaryFacts(Verification.FAILED, "r1", parameter=parameter)))).message
    assert message.startswith(f"P pod {parameter} gave a canary an error or no answer")
    assert "between P and D" not in message
    assert (
        "xxx" not in after(facts(canary=CanaryFacts(Verification.FAILED, "r1", parameter="x" * 999))).model_dump_json()
    )


def test_a_fault_that_moves_to_another_d_pod_is_written() -> None:
    one, other = (CanaryFacts(Verification.FAILED, "r1", decode=pod) for pod in ("d1", "d2"))
    pods = (*SERVING.pods, *(replace(pod(Role.DECODE), name=name) for name in ("d1", "d2")))
    status = built(replace(inputs(facts(canary=one)), pods=pods))
    assert built(replace(inputs(facts(canary=one)), pods=pods), status, NOW + timedelta(hours=1)) == status
    moved = built(replace(inputs(facts(canary=other)), pods=pods), status, NOW + timedelta(hours=1))
    assert "D pod d2" in of(moved).message
    assert outline(facts(canary=one)) != outline(facts(canary=other)), "so that the status is computed again"


def test_wrong_answers_stay_until_a_canary_shows_otherwise() -> None:
    wrong = facts(canary=CanaryFacts(Verification.WRONG_ANSWER, "r1"))
    pending = facts(canary=CanaryFacts(Verification.PENDING, "r1"))
    assert judged(wrong, pending) == ("False", "WrongAnswers"), "the router has restarted"
    assert judged(wrong, facts()) == ("True", "Verified")


def test_a_condition_of_a_later_version_is_no_obstacle() -> None:
    status = after(facts())
    later = status.model_copy(update={"conditions": [of(status).model_copy(update={"reason": "Later"})]})
    assert of(built(inputs(facts()), later)).reason == "Verified"


def test_without_a_transfer_there_is_no_condition() -> None:
    status = built(having(SERVING, transfer=facts(), transfer_path=None), after(facts()))
    assert KV_TRANSFER not in conditions(status)
    assert status.transfer is None


def test_a_revision_without_p_has_no_transfer_to_judge() -> None:
    """It serves on while a revision with P starts beside it."""
    computed = facts(replace(LIGHT, parameter_tokens=0, decode_tokens=5_000), CanaryFacts(Verification.OFF, "r1"))
    status = built(replace(inputs(computed), aggregated=frozenset({"r1"})), Status(), NOW)
    assert KV_TRANSFER not in conditions(status)
    assert status.transfer is None


def test_changes_are_events() -> None:
    good, full, wrong = (
        after(facts()),
        after(facts(FULL)),
        after(facts(canary=CanaryFacts(Verification.WRONG_ANSWER, "r1"))),
    )
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
    st.builds(
        CanaryFacts,
        st.sampled_from(Verification),
        st.just("r1"),
        maybe | st.just(math.inf),
        maybe,
        maybe,
        maybe,
        st.sampled_from([*D_PODS, "none", ""]),
    ),
    st.sampled_from([0.0, 30.0, 300.0]),
    st.builds(Counted, number, number, number, *([maybe] * 6), number, number, *([maybe] * 3)),
)


@given(st.lists(anything, min_size=1, max_size=60))
def test_hostile_numbers_are_bounded_and_written_rarely(found: list[TransferFacts]) -> None:
    """Every 10 s something else: a write makes the reason worse, or comes minutes or a good canary after one before."""
    status, writes, recoveries = Status(), 0, 0
    for count, one in enumerate(found):
        fresh = built(inputs(one), status, NOW + timedelta(seconds=10 * count))
        writes += fresh != status
        was, is_now = (one.transfer.verification.state if one.transfer else "" for one in (status, fresh))
        recoveries += was in FAULTS and is_now == Verification.VERIFIED
        status = fresh
        Status.model_validate_json(status.model_dump_json(by_alias=True))
        row = BY_NAME[KV_TRANSFER]
        assert of(status).reason in row.reasons[of(status).status]
    assert writes <= 9 * (1 + len(found) // 30 + recoveries)


@given(anything, st.lists(st.integers(1, 10_000), min_size=1, max_size=5))
def test_rest_causes_no_write(load: TransferFacts, pauses: list[int]) -> None:
    still = rest(load.canary)
    status, now = built(inputs(load)), NOW + timedelta(hours=1)
    status = built(inputs(still), status, now)
    for pause in pauses:
        now += timedelta(seconds=pause)
        assert built(inputs(still), status, now) == status
