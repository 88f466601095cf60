"""An API server's times from a measurement of `benchmarks.on_gpu.api_server`, and its waits predicted with them.

`uv run --no-sync python -m benchmarks.advise.api_servers FILE PRODUCT` prints the CPU times that its windows give.
For each number of streams it simulates the short requests beside them, with the shares of the H200 for PRODUCT's steps.
Nothing is fitted to the measured times of these requests.
"""

import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from benchmarks.advise.predicted import SETTINGS
from benchmarks.llama import CONFIG
from pdinference.performance.api_server import server_times
from pdinference.performance.calibration import calibration_of
from pdinference.performance.devices import DEVICES, device_key
from pdinference.performance.measurement import ServerWindow
from pdinference.performance.service import SERVICE, Service
from pdinference.performance.step import StepModel
from pdinference.performance.work import work_of
from pdinference.planning.memory.model.model_facts import model_facts
from pdinference.simulation.api_servers import ApiServers
from pdinference.simulation.arrangement import Arrangement, EngineKind
from pdinference.simulation.arrivals import Arrival
from pdinference.simulation.engine import Limits
from pdinference.simulation.outcome import Times
from pdinference.simulation.run import simulate

_BLOCK: Final = 16
_KV_TOKENS: Final = 400_000
"""About what 80 GB hold; the streams need less."""
_FIRST_S: Final = 2.0
_LAST_S: Final = 7.0
_RATE: Final = 10
"""When the short requests come, after the streams: about a second for the program that sends them to start."""


def main() -> None:
    """Print both."""
    found = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    times = server_times(map(ServerWindow.model_validate, found["servers"]))
    if times is None:
        raise SystemExit("The windows are too few.")
    print(
        f"token {1e6 * times.token:.1f} us, step {1e6 * times.step:.0f} us, request {1e3 * times.request:.2f} ms\n"
        "| streams | TTFT p50 ms: predicted / measured | p90 |\n| ---: | --- | --- |"
    )
    own = replace(SERVICE, token_out=times.token, step_out=times.step, request_cpu=times.request)
    for wait in found["waits"]:
        predicted = _first_tokens(_arrangement(sys.argv[2], own), wait["running"])
        cells = (f"{1000 * predicted.at(at):,.0f} / {wait['ttft_ms'][f'p{at}']:,.0f}" for at in (50, 90))
        print(f"| {wait['running']} | {' | '.join(cells)} |")


def _arrangement(product: str, service: Service) -> Arrangement:
    """One engine that does both."""
    work = work_of(model_facts(CONFIG), replace(SETTINGS, block_size=_BLOCK))
    steps = StepModel(work, DEVICES[device_key(product)], calibration_of(product))
    limits = Limits(SETTINGS.max_num_batched_tokens, SETTINGS.max_num_seqs, _KV_TOKENS, _BLOCK, ApiServers(1, service))
    return Arrangement(EngineKind(steps, limits, prefix_caching=False), 1, service=service)


def _first_tokens(arrangement: Arrangement, streams: int) -> Times:
    load = [*(Arrival(0.0, 64, 16_000) for _ in range(streams)), *_short()]
    return simulate(arrangement, load, warm_up=_FIRST_S, until=_LAST_S).outcome.ttft


def _short() -> Iterator[Arrival]:
    return (Arrival(_FIRST_S + number / _RATE, 16, 2) for number in range(round((_LAST_S - _FIRST_S) * _RATE)))


if __name__ == "__main__":
    main()
