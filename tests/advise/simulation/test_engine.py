"""An engine against a simulation of the same scheduler that makes every step, one by one."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdinference.performance.service import SERVICE
from pdinference.performance.step import StepModel
from pdinference_advise.simulation.api_servers import ApiServers
from pdinference_advise.simulation.arrivals import Arrival
from pdinference_advise.simulation.clock import Clock
from pdinference_advise.simulation.engine import EngineLimits, SimulatedEngine
from pdinference_advise.simulation.gaps import Gaps
from pdinference_advise.simulation.job import Job
from tests.advise.simulation.llama import STEPS

LIMITS = EngineLimits(
    step_tokens=8192, requests=256, kv_tokens=900_000, block=128, servers=ApiServers(1, SERVICE), lookahead=False
)


class StepByStep(SimulatedEngine):
    """A reference: each step is a run of its own, so that anything may begin after it."""

    def _steps_ahead(self) -> int:
        return min(1, super()._steps_ahead())


class LongerStepsAlone(SimulatedEngine):
    """A reference: a longer step, in which requests join, is a run of its own."""

    def _make(self, longer: float, start: float, first: float, growth: float, number: int) -> None:
        super()._make(longer, start, first, growth, 0 if longer else number)


class Seen:
    """What became of the requests of an engine."""

    def __init__(
        self, limits: EngineLimits = LIMITS, steps: StepModel = STEPS, engine: type[SimulatedEngine] = SimulatedEngine
    ) -> None:
        self.clock, self.gaps = Clock(), Gaps()
        self.engine = engine(self.clock, steps, limits, self.gaps)
        self.first: dict[int, float] = {}
        self.done: dict[int, float] = {}

    def send(self, number: int, arrival: Arrival) -> None:
        job = Job(
            arrival.prompt, 0, arrival.answer,
            partial(self.first.__setitem__, number), partial(self.done.__setitem__, number),
        )  # fmt: skip
        self.clock.at(arrival.at, partial(self.engine.submit, job))

    def run(self, *arrivals: Arrival) -> "Seen":
        for number, arrival in enumerate(arrivals):
            self.send(number, arrival)
        self.clock.run()
        return self


def test_one_request_takes_a_prompt_and_its_tokens() -> None:
    seen = Seen().run(Arrival(1.0, 1000, 3))
    prompt = STEPS.prefill(1000, 500_000, 0, 1, idle=True)
    assert seen.first[0] == pytest.approx(1 + prompt)
    after = STEPS.calibration.after_prefill
    tokens = sum(STEPS.decode(1) + STEPS.kv_seconds(1000 + n) for n in range(2))
    # The engine was without running requests during the prompt, so nothing follows it.
    assert seen.done[0] == pytest.approx(1 + prompt + tokens, abs=after + 1e-6)


def test_a_prompt_longer_than_a_step_is_cut_into_chunks() -> None:
    seen = Seen(replace(LIMITS, step_tokens=2048)).run(Arrival(0, 5000, 1))
    chunks = [(2048, 2048 * 1024), (2048, 2048 * 3072), (904, 904 * (4096 + 452))]
    ends = [0, 0, 1]
    expected = sum(STEPS.prefill(n, pairs, 0, end) for (n, pairs), end in zip(chunks, ends, strict=True))
    # The steps after the first one are prepared during the one before.
    assert seen.done[0] == pytest.approx(STEPS.calibration.start + expected)


def test_a_prompt_delays_the_tokens_of_running_requests() -> None:
    alone = Seen().run(Arrival(0, 500, 200))
    beside = Seen().run(Arrival(0, 500, 200), Arrival(0.3, 8000, 1))
    step = STEPS.prefill(8000, 32e6, 1, 1)
    assert beside.done[0] - alone.done[0] == pytest.approx(step, rel=0.1)
    assert beside.gaps.quantile(1.0) == pytest.approx(step, rel=0.05)


def test_with_asynchronous_scheduling_a_request_misses_the_step_that_is_scheduled() -> None:
    load = Arrival(0, 500, 400), Arrival(0.5, 500, 1)
    sooner, later = Seen().run(*load), Seen(replace(LIMITS, lookahead=True)).run(*load)
    assert later.first[1] - sooner.first[1] == pytest.approx(STEPS.decode(1), rel=0.2)


def test_with_asynchronous_scheduling_kernels_start_during_the_step_before() -> None:
    """Of a step whose kernels a CPU starts for longer than the device computes, a step before it hides a part."""
    slow = StepModel(STEPS.work, STEPS.device, replace(STEPS.calibration, launch=0.005))
    load = Arrival(0, 500, 400), Arrival(0.5, 1000, 1)
    alone, waits, overlaps = (
        Seen(replace(LIMITS, lookahead=lookahead), slow).run(*some)
        for lookahead, some in ((True, load[1:]), (False, load), (True, load))
    )
    launch, decode = slow.launch(1000), slow.decode_step(1, 600)
    assert alone.first[0] - 0.5 == pytest.approx(launch + slow.calibration.start)
    assert waits.gaps.quantile(1.0) == pytest.approx(launch, rel=0.03)
    assert overlaps.gaps.quantile(1.0) == pytest.approx(launch - decode + slow.launch(1), rel=0.03)


def test_a_full_cache_takes_the_blocks_of_the_last_request_and_computes_them_again() -> None:
    small = replace(LIMITS, kv_tokens=2600, block=0)
    seen = Seen(small).run(Arrival(0, 1000, 500), Arrival(0.001, 1000, 500))
    assert seen.engine.preemptions == 1
    assert seen.done[0] < seen.done[1]
    assert seen.engine.generated == 2 * 500


def test_a_request_that_loses_its_pulled_blocks_before_a_step_has_had_no_token() -> None:
    seen = Seen(replace(LIMITS, kv_tokens=2100, block=0))
    seen.send(0, Arrival(0, 1000, 400))

    def pull(then: Callable[[], None]) -> None:
        seen.clock.at(seen.clock.now + 1.0, then)  # meanwhile the first request takes the room

    job = Job(1, 999, 100, partial(seen.first.__setitem__, 1), partial(seen.done.__setitem__, 1), pull)
    seen.clock.at(0.1, partial(seen.engine.submit, job))
    seen.clock.run()
    assert seen.engine.preemptions == 1
    assert seen.first[1] > seen.done[0]


def test_no_request_starts_without_room() -> None:
    seen = Seen(replace(LIMITS, kv_tokens=1500, block=0)).run(Arrival(0, 1000, 10), Arrival(0, 1000, 10))
    assert seen.first[1] > seen.done[0]


ARRIVALS = st.lists(
    st.builds(Arrival, st.floats(0, 5), st.integers(1, 20_000), st.integers(1, 400)), min_size=1, max_size=25
)
SMALL = st.builds(
    EngineLimits, st.sampled_from([512, 2048, 8192]), st.sampled_from([2, 256]), st.sampled_from([25_000, 900_000]),
    st.just(128), st.just(ApiServers(1, SERVICE)), st.booleans(),
)  # fmt: skip


@given(ARRIVALS, SMALL)
def test_every_request_ends_and_gives_its_room_back(arrivals: list[Arrival], limits: EngineLimits) -> None:
    seen = Seen(limits).run(*arrivals)
    assert seen.done.keys() == set(range(len(arrivals)))
    for number, arrival in enumerate(arrivals):
        assert arrival.at < seen.first[number] <= seen.done[number]
    assert seen.engine.kv_used() == pytest.approx(0, abs=1e-3)
    assert seen.engine.running == seen.engine.waiting == 0
    assert seen.engine.busy <= seen.engine.stepping


@given(ARRIVALS, SMALL)
def test_runs_of_steps_give_what_steps_one_by_one_give(arrivals: list[Arrival], limits: EngineLimits) -> None:
    limits = replace(limits, kv_tokens=900_000)
    seen, reference = (Seen(limits, engine=engine).run(*arrivals) for engine in (SimulatedEngine, StepByStep))
    assert seen.first == pytest.approx(reference.first, rel=1e-9)
    assert seen.done == pytest.approx(reference.done, rel=1e-9)
    assert seen.engine.stepping == pytest.approx(reference.engine.stepping, rel=1e-9)


@pytest.mark.parametrize("lookahead", [True, False])
@pytest.mark.parametrize("block", [0, 16, 128])
@pytest.mark.parametrize("seed", range(10))
def test_a_run_that_begins_with_a_longer_step_changes_nothing_when_requests_lose_their_kv_cache(
    seed: int, block: int, lookahead: bool
) -> None:
    """One that has lost its KV cache may be admitted after the longer step, so the run must not go beyond it."""
    rng = Random(seed)  # noqa: S311 - nothing secret
    arrivals = [Arrival(rng.uniform(0, 2), rng.randint(1, 2000), rng.randint(1, 600)) for _ in range(30)]
    full = replace(LIMITS, kv_tokens=12_000, block=block, lookahead=lookahead)
    seen, reference = (Seen(full, engine=engine).run(*arrivals) for engine in (SimulatedEngine, LongerStepsAlone))
    assert seen.engine.preemptions == reference.engine.preemptions > 0
    assert (seen.first, seen.done) == (reference.first, reference.done)
    assert seen.engine.progress() == reference.engine.progress()


@given(ARRIVALS)
def test_an_engine_is_never_faster_than_its_steps(arrivals: list[Arrival]) -> None:
    seen = Seen().run(*arrivals)
    for number, arrival in enumerate(arrivals):
        least = STEPS.prefill(arrival.prompt, arrival.prompt**2 / 2, 0, 1) if arrival.prompt <= 8192 else 0
        assert seen.first[number] - arrival.at >= least * (1 - 1e-9)
        tokens = sum(STEPS.decode(1) + STEPS.kv_seconds(arrival.prompt + n) for n in range(arrival.answer - 1))
        assert seen.done[number] - seen.first[number] >= tokens * (1 - 1e-6)
