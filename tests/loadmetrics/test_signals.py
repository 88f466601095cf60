"""Aggregates the load of pods to one number, also with pods that do not respond."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdinference.loadmetrics.scraping.window import FRESH_S
from pdinference.loadmetrics.signals import LoadUnavailableError, PodLoad, Upstream, measure
from pdinference.planning.scaling.signals import DRAIN_SECONDS, Signal
from pdinference.planning.scaling.unknown_load import NO_POD_READY, NO_RATE_YET, NOT_READ_YET, passes
from pdinference.runtime.settings import OperatorSettings
from tests.loadmetrics.readings import START, lengths, pod, told

NOW = 100.0
KV = Signal.KV_DEMAND
SILENT = (NOW - FRESH_S - 1, told(kv_usage=0.9))


def steady(**numbers: Any) -> PodLoad:
    """A pod that has been like this for 20 seconds."""
    return pod((NOW - 20, told(**numbers)), (NOW, told(**numbers)))


def value(signal: Signal, *pods: object, target: float | None = 0.8) -> float:
    return measure(signal, list(pods), target=target, now=NOW).value  # type: ignore[arg-type]


def test_a_sum_over_pods() -> None:
    assert value(Signal.KV_USAGE, steady(kv_usage=0.5), steady(kv_usage=0.25)) == 0.75


def test_the_oldest_part_dates_the_sum() -> None:
    pods = [pod((NOW, told(kv_usage=0.5))), pod((NOW - 7, told(kv_usage=0.5)))]
    assert measure(KV, pods, target=0.8, now=NOW).when == START + timedelta(seconds=NOW - 7)


class TestKvDemand:
    def test_what_waits_counts_with_the_length_of_finished_requests(self) -> None:
        done = {"prompt_lengths": lengths(3000, 3), "answer_lengths": lengths(840, 3)}
        assert value(KV, pod((NOW, told(kv_usage=0.9, waiting=10.0, **done)))) == pytest.approx(0.9 + 1.0)

    def test_recent_requests_count_more_than_old_ones(self) -> None:
        before = {"prompt_lengths": lengths(1000, 100), "answer_lengths": lengths(0, 100)}
        after = {"prompt_lengths": lengths(1000 + 2 * 1280, 102), "answer_lengths": lengths(0, 102)}
        one = pod((NOW - 20, told(**before)), (NOW, told(kv_usage=0.9, waiting=5.0, **after)))
        assert value(KV, one) == pytest.approx(0.9 + 0.5)

    def test_running_requests_give_the_length_before_any_has_finished(self) -> None:
        assert value(KV, pod((NOW, told(kv_usage=0.8, running=4.0, waiting=1.0)))) == pytest.approx(1.0)

    def test_requests_whose_cache_is_being_pulled_have_their_blocks_already(self) -> None:
        reading = told(kv_usage=0.8, running=4.0, waiting=3.0, holding=3.0)
        assert value(KV, pod((NOW, reading))) == pytest.approx(0.8)

    def test_it_can_exceed_the_pods_there_are(self) -> None:
        assert value(KV, pod((NOW, told(kv_usage=1.0, running=10.0, waiting=30.0)))) == pytest.approx(4.0)


class TestBlindness:
    @pytest.mark.parametrize(("failed", "known"), [(0, True), (3, True), (4, False)])
    def test_three_scrapes_may_fail_and_the_fourth_may_not(self, failed: int, known: bool) -> None:
        """A failed scrape is detected before the next one; the API may be read at any time before that."""
        interval = OperatorSettings.model_fields["scrape_seconds"].default
        for part in (0.1, 0.9):
            reading = told(kv_usage=0.5)
            one = pod((NOW - 40, reading), (NOW - (failed + part) * interval, reading))
            if known:
                assert value(Signal.KV_USAGE, one) == 0.5
            else:
                with pytest.raises(LoadUnavailableError):
                    value(Signal.KV_USAGE, one)

    @pytest.mark.parametrize(("failures", "passing"), [(0, True), (2, True), (3, False)])
    def test_a_network_policy_is_suspected_only_after_readings_have_failed(self, failures: int, passing: bool) -> None:
        one = pod()
        one.window.failures = failures
        said = NOT_READ_YET if passing else "no pod responds on its metrics port"
        with pytest.raises(LoadUnavailableError, match=said) as caught:
            value(KV, one)
        assert passes(str(caught.value)) is passing

    def test_a_pod_that_restarts_and_does_not_listen_yet_is_not_ready(self) -> None:
        with pytest.raises(LoadUnavailableError, match=NO_POD_READY):
            value(KV, replace(pod(), serves=False))

    def test_pods_that_never_served_have_no_load_yet(self) -> None:
        with pytest.raises(LoadUnavailableError, match=NO_POD_READY) as caught:
            value(KV, pod(expected=False))
        assert passes(str(caught.value))

    def test_a_metric_that_no_pod_reports_is_named(self) -> None:
        missing = told(kv_usage=None)
        with pytest.raises(
            LoadUnavailableError, match=r"1 of 1 pods respond, but do not report .*kv_demand$"
        ) as caught:
            value(KV, pod((NOW - 20, missing), (NOW, missing)))
        assert not passes(str(caught.value))

    def test_a_rate_after_one_reading_is_not_known_yet(self) -> None:
        with pytest.raises(LoadUnavailableError, match=NO_RATE_YET) as caught:
            value(Signal.PREFILL_LOAD, pod((NOW, told())))
        assert passes(str(caught.value))

    def test_a_silent_pod_is_taken_to_be_at_its_target_rather_than_idle(self) -> None:
        assert value(KV, steady(kv_usage=0.5), pod(SILENT)) == pytest.approx(1.3)

    def test_but_that_never_brings_more_pods(self) -> None:
        assert value(KV, pod((NOW, told(kv_usage=0.79))), pod(SILENT), pod(SILENT)) <= 3 * 0.8

    def test_nor_does_it_hold_back_what_the_others_ask_for(self) -> None:
        assert value(KV, pod((NOW, told(kv_usage=0.9, running=1.0, waiting=1.0))), pod(SILENT)) == pytest.approx(1.8)

    def test_without_a_known_target_silent_pods_are_like_the_others(self) -> None:
        assert value(KV, pod((NOW, told(kv_usage=0.5))), pod(SILENT), target=None) == pytest.approx(1.0)

    def test_a_starting_pod_has_no_load_and_is_not_missed(self) -> None:
        assert value(KV, steady(kv_usage=0.5), pod(expected=False)) == 0.5

    def test_pods_of_the_target_revision_do_not_scale_the_serving_revision(self) -> None:
        pods = [steady(kv_usage=0.5), pod(SILENT, counted=False)]
        assert value(KV, *pods) == pytest.approx(0.8)

    @given(
        usages=st.lists(st.floats(0, 3), min_size=1, max_size=8), silent=st.integers(0, 8), target=st.floats(0.05, 1.0)
    )
    def test_silence_alone_changes_no_decision(self, usages: list[float], silent: int, target: float) -> None:
        """Whatever silent pods bear: none goes that their load at target forbids, none comes on their account."""
        pods = [steady(kv_usage=usage) for usage in usages] + [pod(SILENT)] * silent
        got, least, enough = value(Signal.KV_USAGE, *pods, target=target), sum(usages), len(pods) * target
        assert got >= least - 1e-9
        assert got <= max(least, enough) + 1e-9
        if least < enough:
            assert got >= min(least + silent * target, enough) - 1e-9


class TestRestart:
    def test_counters_that_start_over_give_no_rate(self) -> None:
        again = [(NOW - 20, told(generation_tokens=9000.0)), (NOW, told(generation_tokens=50.0))]
        other = pod((NOW - 20, told(generation_tokens=0.0)), (NOW, told(generation_tokens=200.0)))
        assert value(Signal.GENERATION_TOKENS_PER_SECOND, other, pod(*again), target=50) == pytest.approx(60.0)

    def test_a_rate_needs_two_readings(self) -> None:
        with pytest.raises(LoadUnavailableError):
            value(Signal.GENERATION_TOKENS_PER_SECOND, pod((NOW, told(generation_tokens=50.0))))

    def test_after_it_rates_are_those_of_the_new_process(self) -> None:
        readings = [(NOW - 20, 9000.0), (NOW - 10, 50.0), (NOW, 250.0)]
        one = pod(*((at, told(generation_tokens=count)) for at, count in readings))
        assert value(Signal.GENERATION_TOKENS_PER_SECOND, one) == pytest.approx(20.0)


def test_prefill_load_counts_what_works_and_what_waits() -> None:
    first = told(prefill=lengths(0, 0))
    last = told(prefill=lengths(15.0, 30), waiting=60.0, running=1.0)
    # Half a second a request; 91 came in 30 seconds, and 60 wait.
    assert value(Signal.PREFILL_LOAD, pod((NOW - 30, first), (NOW, last))) == pytest.approx(
        91 / 30 * 0.5 + 60 * 0.5 / DRAIN_SECONDS
    )


class TestRoughRates:
    """Five seconds in which three pods' work came, to one pod: an operator has just started, or the pod has."""

    BURST = (told(), told(prefill=lengths(5.0, 10), waiting=20.0))

    def load(self, *pods: PodLoad) -> float:
        return value(Signal.PREFILL_LOAD, *pods, target=0.9)

    def test_they_bring_no_pods(self) -> None:
        first, last = self.BURST
        assert self.load(pod((NOW - 5, first), (NOW, last))) == pytest.approx(0.9)

    def test_nor_do_they_take_any(self) -> None:
        first, last = told(), told(prefill=lengths(2.0, 10))
        assert self.load(pod((NOW - 5, first), (NOW, last))) == pytest.approx(0.9)
        assert self.load(pod((NOW - 5, first), (NOW, last)), pod(SILENT)) == pytest.approx(0.9 + 0.9)

    def test_beside_a_pod_that_is_known_for_longer_they_count(self) -> None:
        first, last = self.BURST
        old = pod((NOW - 20, first), (NOW, first))
        assert self.load(pod((NOW - 5, first), (NOW, last)), old) == pytest.approx(
            30 / 20 * 0.5 + 20 * 0.5 / DRAIN_SECONDS
        )


class TestAfterARestartOfTheOperator:
    """The HPA did not see the load meanwhile, so that its stabilization window is empty."""

    def test_a_first_reading_between_two_requests_takes_no_pod(self) -> None:
        assert value(KV, pod((NOW, told())), pod((NOW, told()))) == pytest.approx(2 * 0.8)
        assert value(Signal.KV_USAGE, pod((NOW - 14, told()), (NOW, told())), target=0.8) == pytest.approx(0.8)

    def test_it_counts_when_the_pods_were_read_for_longer(self) -> None:
        assert value(KV, pod((NOW - 15, told()), (NOW, told()))) == 0

    def test_more_load_brings_pods_at_once(self) -> None:
        assert value(KV, pod((NOW, told(kv_usage=1.0, running=10.0, waiting=30.0)))) == pytest.approx(4.0)


def test_queued_tokens_are_requests_times_their_usual_length() -> None:
    waits = steady(waiting=4.0, prompt_lengths=lengths(5000, 10))
    assert value(Signal.QUEUED_PROMPT_TOKENS, waits, target=8000) == 2000
    assert value(Signal.QUEUED_PROMPT_TOKENS, steady(), target=8000) == 0


class TestDecodeLoad:
    def windows(self, **last: Any) -> PodLoad:
        """Half a minute in which a pod generated a token every 20 ms, in answers of 100."""
        first = told(kv_usage=0.5)
        tokens = {"inter_token": lengths(30.0, 1500), "answer_lengths": lengths(1500, 15), "generation_tokens": 1500.0}
        return pod((NOW - 30, first), (NOW, told(kv_usage=0.5, **{**tokens, **last})))

    def value(self, *pods: PodLoad, upstream: Upstream) -> float:
        return measure(Signal.DECODE_LOAD, list(pods), target=0.9, now=NOW, upstream=upstream).value

    def test_it_is_what_the_pods_do_of_what_they_can(self) -> None:
        idle = Upstream(idle_token_seconds=0.01)  # now a token takes twice as long
        assert self.value(self.windows(), upstream=idle) == pytest.approx(1 - 0.5 * 0.5)

    def test_what_reaches_p_counts_before_it_reaches_d(self) -> None:
        prefill = pod((NOW - 30, told()), (NOW, told(prefill=lengths(9.0, 30))))
        upstream = Upstream([prefill], idle_token_seconds=0.01)
        # One request a second, each of which takes 100 tokens of 20 ms of three quarters of a pod.
        assert self.value(self.windows(), upstream=upstream) == pytest.approx(1.0 * 100 * 0.02 * 0.75)

    def test_where_requests_go_to_d_without_p_those_that_reach_d_count(self) -> None:
        """Two a second at D, of which P computes the prompts of half; P answers some alone, too."""
        prefill = pod((NOW - 30, told()), (NOW, told(prefill=lengths(9.0, 45), waiting=2.0)))
        decode = self.windows(prefill=lengths(3.0, 60))
        upstream = Upstream([prefill], idle_token_seconds=0.01, reached=[decode])
        each = 100 * 0.02 * 0.75
        assert self.value(decode, upstream=upstream) == pytest.approx(2.0 * each + 2 * each / DRAIN_SECONDS)

    def test_requests_whose_cache_is_being_pulled_are_no_queue(self) -> None:
        idle = Upstream(idle_token_seconds=0.01)
        pulled = self.windows(waiting=3.0, holding=3.0)
        assert self.value(pulled, upstream=idle) == self.value(self.windows(), upstream=idle)
        assert self.value(self.windows(waiting=3.0), upstream=idle) == 1.0

    def test_a_burst_is_seen_when_it_begins(self) -> None:
        """A request a second for 20 seconds, then four: what comes now counts, not the mean of half a minute."""
        prompts = {NOW - 30: lengths(0.0, 0), NOW - 10: lengths(6.0, 20), NOW: lengths(18.0, 60)}
        steady = {at: lengths(0.3 * (at - NOW + 30), at - NOW + 30) for at in prompts}
        load, usual = (
            self.value(
                self.windows(),
                upstream=Upstream(
                    [pod(*((at, told(prefill=done)) for at, done in p.items()))], idle_token_seconds=0.01
                ),
            )
            for p in (prompts, steady)
        )
        assert load == pytest.approx(4 * usual)
