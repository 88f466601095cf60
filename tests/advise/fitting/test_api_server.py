"""CPU times of an API server, from windows of a measurement."""

from typing import Final

import pytest

from pdinference_advise.fitting.api_server import ServerTimes, server_times
from pdinference_advise.fitting.measurement import ServerWindow

_TIMES: Final = ServerTimes(request=0.002, step=0.00045, token=0.000061)
_STEP_S: Final = 0.008


def window(running: int, requests: float = 0, merged: float = 1) -> ServerWindow:
    """A window in which the API server took these times, and wrote so many tokens into each event."""
    steps, events = 1 / _STEP_S, running / _STEP_S / merged
    cores = steps * _TIMES.step + events * _TIMES.token + requests * _TIMES.request
    tokens = running / _STEP_S
    return ServerWindow(running=running, cores=cores, steps=steps, tokens=tokens, events=events, requests=requests)


STREAMS: Final = [window(running) for running in (96, 64, 32)]
SHORT: Final = [window(4, requests=60), window(4, requests=8)]


def test_times_are_found_again() -> None:
    found = server_times([*STREAMS, *SHORT])
    assert found is not None
    assert found.token == pytest.approx(_TIMES.token, rel=0.02)
    assert found.step == pytest.approx(_TIMES.step, rel=0.1)
    assert found.request == pytest.approx(_TIMES.request, rel=0.1)


def test_windows_in_which_tokens_were_merged_into_events_do_not_count() -> None:
    assert server_times([window(256, merged=2), *STREAMS, *SHORT]) == server_times([*STREAMS, *SHORT])


def test_a_time_of_requests_that_was_not_measured_leaves_that_of_tokens() -> None:
    found = server_times(STREAMS)
    assert found is not None
    assert found.token == pytest.approx(_TIMES.token, rel=0.05)


def test_too_few_windows_determine_nothing() -> None:
    assert server_times(STREAMS[:2]) is None
