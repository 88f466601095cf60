"""Waiting for an API server, against an event loop that makes every turn."""

import math
import random
from dataclasses import replace
from statistics import median
from typing import Final

import pytest

from pdinference.performance.service import SERVICE
from pdinference_advise.simulation.api_servers import ApiServers
from tests.advise.simulation.event_loop import EventLoop

_RUNNING: Final = 120
_STEP_S: Final = 0.010
_REQUEST_S: Final = 0.002
_RATE: Final = 10


def _by_turns(use: float) -> float:
    """Median seconds to the first token, of which the tokens take such a share of the API server's time."""
    loop = EventLoop(_RUNNING, _STEP_S, use * _STEP_S / _RUNNING, _REQUEST_S, (16, 4), rate=_RATE)
    return median(loop.run(30).waits[50:])


def _by_formula(use: float) -> float:
    servers = _servers(use)
    chance = random.Random(1)  # noqa: S311 - arrivals
    times = []
    for _ in range(500):
        passed = chance.uniform(0, _STEP_S)
        backlog = max(0.0, servers.writing(_RUNNING) - passed)
        waiting = servers.waiting(_RUNNING, _STEP_S, passed, backlog, reading=_RATE * _REQUEST_S)
        steps = math.floor((passed + _REQUEST_S + waiting) / _STEP_S) + 3
        times.append(steps * _STEP_S - passed + servers.writing(_RUNNING))
    return median(times)


def _servers(use: float, number: int = 1, running: int = _RUNNING, step: float = _STEP_S) -> ApiServers:
    token = use * step / running
    return ApiServers(number, replace(SERVICE, token_out=token, step_out=0.0, request_cpu=_REQUEST_S, turns=20))


@pytest.mark.parametrize("use", [0.3, 0.6, 0.7, 0.8, 0.85, 0.9])
def test_an_api_server_with_time_left_delays_a_request_as_the_loop_does(use: float) -> None:
    assert _by_formula(use) == pytest.approx(_by_turns(use), abs=_STEP_S)


@pytest.mark.parametrize("use", [1.0, 1.05, 1.1])
def test_a_full_api_server_delays_a_request_by_all_tokens_for_each_turn(use: float) -> None:
    assert _by_formula(use) == pytest.approx(_by_turns(use), rel=0.1)
    assert _by_formula(use) > 6 * _by_formula(0.6)


@pytest.mark.parametrize(("running", "step"), [(155, 0.010), (260, 0.017)])
@pytest.mark.parametrize("use", [1.02, 1.05, 1.1])
def test_above_128_requests_a_full_api_server_also_delays_by_its_backlog(running: int, step: float, use: float) -> None:
    loop = EventLoop(running, step, use * step / running, _REQUEST_S, (16, 4), rate=_RATE)
    servers, reading = _servers(use, running=running, step=step), _RATE * _REQUEST_S
    backlogs = [second * (use + reading - 1) for second in range(1, 13)]
    delays = [servers.waiting(running, step, 0.0, each, reading) + 2.5 * step + each for each in backlogs]
    assert median(delays) == pytest.approx(median(loop.run(13).waits), rel=0.1)


def test_two_api_servers_have_half_of_the_tokens_each() -> None:
    one, two = (
        servers.waiting(_RUNNING, _STEP_S, 0.0, servers.writing(_RUNNING), reading=0.0)
        for servers in (_servers(1.0, number) for number in (1, 2))
    )
    assert one == pytest.approx(20 * _STEP_S - _REQUEST_S)
    assert two < 0.01


def test_the_work_of_a_full_api_server_grows_above_128_requests() -> None:
    servers = ApiServers(1, replace(SERVICE, token_out=0.0001, step_out=0.001))
    assert servers.backlog(0.021, 200, steps=10, seconds=0.15) == pytest.approx(0.021 + 10 * 0.021 - 0.15)
    assert servers.backlog(0.021, 200, steps=10, seconds=0.25) == pytest.approx(0.021)
    assert servers.backlog(0.013, 120, steps=10, seconds=0.05) == pytest.approx(0.013)
