"""What a router pod reports of the KV transfer, over a window."""

import pytest

from pdinference.api.names import Verification
from pdinference.loadmetrics.transfers import TransferExposition, TransferReading, TransferWindow, transfer_facts
from pdinference.planning.transfer_measurements import PROVEN_S, CanaryFacts, Counted, PairFacts

TEXT = """
pdinference_router_kv_prompt_tokens_total{source="parameter"} 900
pdinference_router_kv_prompt_tokens_total{source="decode"} 100
pdinference_router_kv_prompt_tokens_total{source="cache"} 50
pdinference_router_kv_prompt_tokens_total{source="moon"} 7
pdinference_router_kv_transfers_total{result="complete"} 10
pdinference_router_kv_transfers_total{result="failed"} 1
pdinference_router_kv_transfers_total{result="expired"} 2
pdinference_router_kv_bytes_total 1e+09
pdinference_router_kv_transfer_seconds_total 4
pdinference_router_decode_wait_seconds_total 3
pdinference_router_handed_over_requests_total 12
pdinference_router_alone_prompt_tokens_total{source="decode"} 60
pdinference_router_alone_prompt_tokens_total{source="cache"} 30
pdinference_router_token_gaps_total 700
pdinference_router_token_gap_seconds_total 6
pdinference_router_stage_seconds_sum{stage="queue"} 1
pdinference_router_stage_seconds_sum{stage="prefill"} 2
pdinference_router_stage_seconds_sum{stage="first_token"} 5
pdinference_router_stage_seconds_sum{stage="tokens"} 100
pdinference_router_stage_seconds_count{stage="first_token"} 9
pdinference_router_stage_seconds_count{stage="prefill"} 8
pdinference_router_verification{state="verified"} 1
pdinference_router_verification{state="pending"} 0
pdinference_router_verification_age_seconds +Inf
pdinference_router_verification_tokens 512
pdinference_router_verification_distance 0.01
pdinference_router_verification_limit NaN
"""
COUNTED = Counted(900, 100, 50, 10, 1, 2, 1e9, 4, 3, 9, 8, 12, 700, 6, 60, 30)


def read(text: str, at: float = 0) -> TransferReading | None:
    exposition = TransferExposition()
    for line in text.encode().splitlines():
        exposition.take(line)
    return exposition.reading(at, "r1")


def reading(
    at: float, tokens: float, *, transfers: float | None = None, canary: CanaryFacts | None = None
) -> TransferReading:
    return TransferReading(at, Counted(parameter_tokens=tokens, complete=transfers), canary or CanaryFacts())


def windowed(*readings: TransferReading) -> TransferWindow:
    window = TransferWindow(readings[0])
    for one in readings[1:]:
        window.add(one)
    return window


def test_a_response_is_read() -> None:
    found = read(TEXT)
    assert found is not None
    assert found.counted == COUNTED
    assert found.canary == CanaryFacts(Verification.VERIFIED, "r1", tokens=512, distance=0.01)


def test_a_fault_has_its_pod() -> None:
    states = {'state="failed",decode="d1",parameter="p1"': 1, 'decode="",state="off"': 0}
    found = read("".join(f"pdinference_router_verification{{{labels}}} {one}\n" for labels, one in states.items()))
    assert found is not None
    assert found.canary.found == (Verification.FAILED, "d1", "p1")


@pytest.mark.parametrize("lie", ["NaN", "-1", "1e999", "+Inf"])
def test_a_number_that_is_none_counts_as_absent(lie: str) -> None:
    found = read(TEXT.replace("1e+09", lie).replace(" 512", f" {lie}"))
    assert found is not None
    assert (found.counted.bytes, found.canary.tokens) == (None, None)


def test_states_that_contradict_each_other_are_no_state() -> None:
    found = read(TEXT.replace('"pending"} 0', '"pending"} 1'))
    assert found is not None
    assert found.canary.state is Verification.OFF


def test_a_router_without_these_series_reports_nothing() -> None:
    assert read('pdinference_router_stage_seconds_count{stage="first_token"} 9') is None
    assert read('pdinference_router_verification{state="pending"} 1') is not None


def test_a_window_has_the_counts_of_five_minutes() -> None:
    window = windowed(*(reading(30 * number, 10 * number) for number in range(40)))
    assert (window.seconds, window.counted.parameter_tokens) == (300, 100)


def test_readings_every_second_do_not_shorten_the_window() -> None:
    window = windowed(*(reading(number, number) for number in range(600)))
    assert 270 <= window.seconds <= 330
    assert window.counted.parameter_tokens == window.seconds
    assert window.latest.at == 599


@pytest.mark.parametrize(
    "later", [reading(60, 5), reading(60, 200), reading(400, 300, transfers=9)], ids=["fell", "vanished", "gap"]
)
def test_a_restart_or_a_gap_begins_a_new_window(later: TransferReading) -> None:
    window = windowed(reading(0, 10, transfers=1), reading(30, 100, transfers=2), later)
    assert (window.seconds, window.since, window.counted.parameter_tokens) == (0, later.at, 0)


def test_a_counter_that_appears_began_at_0() -> None:
    assert windowed(reading(0, 10), reading(30, 20, transfers=3)).counted.complete == 3


def test_pods_are_counted_by_one_router_and_requests_by_each() -> None:
    def full(at: float, factor: float) -> TransferReading:
        of_requests = {"handed_over": 10 * factor, "alone_tokens": 5 * factor, "alone_cached_tokens": 4 * factor}
        counted = Counted(900 * factor, waiting_seconds=20 * factor, first_tokens=9 * factor, **of_requests)
        return TransferReading(at, counted, CanaryFacts(Verification.VERIFIED, "r1"))

    window = windowed(full(0, 1), full(30, 2))
    wrong = windowed(reading(0, 0, canary=CanaryFacts(Verification.WRONG_ANSWER, "r2")))
    both = transfer_facts("r1", window, [windowed(full(0, 1), full(30, 2))])
    assert both.counted.handed_over == 20
    assert (both.counted.alone_tokens, both.counted.alone_cached_tokens) == (10, 8)
    facts = transfer_facts("r1", window, [windowed(full(0, 1), full(30, 2)), wrong])
    assert (facts.counted.parameter_tokens, facts.counted.first_tokens) == (900, 18)
    assert facts.counted.waiting_seconds == 30, "no more than all of the time"
    assert facts.counted.handed_over is None, "a router of an older version does not count them"
    assert facts.canary == CanaryFacts(Verification.WRONG_ANSWER, "r2")
    pair = [windowed(reading(0, 0, canary=CanaryFacts(Verification.FAILED, "r1", decode=pod))) for pod in ("d1", "d2")]
    for one, other in (pair, reversed(pair)):
        assert transfer_facts("r1", one, [other]).canary.decode == "d1", "the order of router pods causes no write"
    assert transfer_facts("r1", window, []).canary.state is Verification.VERIFIED


def pairs(text: str) -> tuple[PairFacts, ...]:
    found = read(text + 'pdinference_router_verification{state="off"} 1\n')
    assert found is not None
    return found.pairs


def lines(parameter: str, decode: str, faults: object, seconds: object) -> str:
    labels = f'{{parameter="{parameter}",decode="{decode}"}}'
    values = {"faults": faults, "fault_seconds": seconds, "age_seconds": 7}
    return "".join(f"pdinference_router_pair_{name}{labels} {value}\n" for name, value in values.items())


def test_pairs_are_read() -> None:
    assert pairs(lines("p", "d/e", 3, 61.5)) == (PairFacts("p", "d/e", 3, 61.5, 7),)
    assert pairs("") == ()


@pytest.mark.parametrize("lie", ["NaN", "1e999", "-1", "+Inf"])
def test_a_pair_whose_numbers_are_none_is_no_fault(lie: str) -> None:
    assert all(not pair.faults for pair in pairs(lines("p", "d", lie, 61)))
    assert all(not pair.seconds >= PROVEN_S for pair in pairs(lines("p", "d", 3, lie)))


def test_pairs_are_bounded() -> None:
    assert len(pairs("".join(lines("p", f"d{number}", 0, 0) for number in range(1000)))) == 256
    assert [pair.faults for pair in pairs(lines("p", "d", 1e15, 5))] == [1000]


def test_a_router_whose_canary_got_through_shows_that_a_pair_works() -> None:
    """Else a fault of one router's own network restarts pods."""

    def window(*found: PairFacts) -> TransferWindow:
        return TransferWindow(TransferReading(0, Counted(), CanaryFacts(), found))

    bad, good, old = PairFacts("p", "d", 5, 90, 10), PairFacts("p", "d", age=99), PairFacts("p", "d", age=101)
    other = PairFacts("p", "d2", 1, 3)
    for one, two in ((window(bad), window(good, other)), (window(good, other), window(bad))):
        assert transfer_facts("r1", one, [two]).pairs == (good, other)
    assert transfer_facts("r1", window(bad), [window(old)]).pairs == (bad,), "it is from before the fault"
    less = PairFacts("p", "d", 3, 99, 1)
    assert transfer_facts("r1", window(bad), [window(less)]).pairs == (less,)
