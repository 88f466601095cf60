"""An API server's times from a measurement of `benchmarks.on_gpu.api_server`, and its waits predicted with them.

`uv run --no-sync python -m benchmarks.advise.api_servers FILE PRODUCT` prints the CPU times that its windows give.
It simulates the short requests beside streams and the loads with these, and with the shares of the H200 for PRODUCT's
steps. Nothing is fitted to the measured times of these requests and loads.
"""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from benchmarks.advise.predicted import SETTINGS, as_measured
from benchmarks.llama import CONFIG
from benchmarks.on_gpu.api_server import PROBES
from benchmarks.on_gpu.loads import Load, load_of
from pdinference.memory.model.model_facts import model_facts
from pdinference.performance.calibration import calibration_of
from pdinference.performance.devices import DEVICES, device_key
from pdinference.performance.service import SERVICE, Service
from pdinference.performance.step import StepModel
from pdinference.performance.work import work_of
from pdinference_advise.fitting.api_server import server_times
from pdinference_advise.fitting.measurement import ServerWindow
from pdinference_advise.simulation.api_servers import ApiServers
from pdinference_advise.simulation.arrangement import Arrangement, EngineKind
from pdinference_advise.simulation.arrivals import Arrival
from pdinference_advise.simulation.engine import EngineLimits
from pdinference_advise.simulation.outcome import SimulatedOutcome
from pdinference_advise.simulation.run import simulate

_BLOCK: Final = 16
_KV_TOKENS: Final = 400_000
"""About what 80 GB hold; the streams need less."""
_PROMPT: Final = 64
_ENDLESS: Final = 16_000


def main() -> None:
    """Print both."""
    found = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    times = server_times(map(ServerWindow.model_validate, found["servers"]))
    if times is None:
        raise SystemExit("The windows are too few.")
    print(f"token {1e6 * times.token:.1f} us, step {1e6 * times.step:.0f} us, request {1e3 * times.request:.2f} ms")
    own = replace(SERVICE, token_out=times.token, step_out=times.step, request_cpu=times.request)
    arrangement = _arrangement(sys.argv[2], own)
    print("| load | TTFT p50 ms: predicted / measured | p90 | p99 | TPOT p50 | p99 |")
    print("| --- " * 6 + "|")
    for wait in found["waits"]:
        load, begins = load_of(PROBES), _begins(wait)
        streams = [Arrival(0.0, _PROMPT, _ENDLESS) for _ in range(wait["running"])]
        _print(f"{wait['running']} streams", _outcome(arrangement, load, streams, begins), wait)
    for each in found.get("loads", ()):
        _print(each["load"], _outcome(arrangement, load_of(each["load"]), [], 0.0), each)


def _begins(wait: dict[str, Any]) -> float:
    """Seconds from the first token of all streams to the first short request; 2 where they were not recorded."""
    if not wait.get("each"):
        return 2.0
    sent, _, whole, _ = wait["each"][-1]
    return float(wait["age_s"] + wait["lasted_s"] - sent - whole)


def _outcome(arrangement: Arrangement, load: Load, streams: list[Arrival], begins: float) -> SimulatedOutcome:
    """Of a load that begins so many seconds after the streams."""
    arrivals = (replace(each, at=each.at + begins) for each in as_measured(load, 1))
    until = begins + load.warm_up + load.counted
    return simulate(arrangement, [*streams, *arrivals], warm_up=begins + load.warm_up, until=until).outcome


def _print(name: str, outcome: SimulatedOutcome, measured: dict[str, Any]) -> None:
    columns = [("ttft_ms", outcome.ttft, at) for at in (50, 90, 99)]
    columns += [("tpot_ms", outcome.tpot, at) for at in (50, 99)] if "load" in measured else []
    cells = (f"{1000 * times.at(at):,.4g} / {measured[key][f'p{at}']:,.4g}" for key, times, at in columns)
    print(f"| {name} | {' | '.join(cells)} |")


def _arrangement(product: str, service: Service) -> Arrangement:
    """One engine that does both."""
    work = work_of(model_facts(CONFIG), replace(SETTINGS, block_size=_BLOCK))
    steps = StepModel(work, DEVICES[device_key(product)], calibration_of(product))
    limits = EngineLimits(
        SETTINGS.max_num_batched_tokens, SETTINGS.max_num_seqs, _KV_TOKENS, _BLOCK, ApiServers(1, service)
    )
    return Arrangement(EngineKind(steps, limits, prefix_caching=False), 1, service=service)


if __name__ == "__main__":
    main()
