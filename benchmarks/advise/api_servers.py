"""Times of an API server, and how long requests wait for it, from a measurement of `benchmarks.on_gpu.api_server`.

`uv run --no-sync python -m benchmarks.advise.api_servers FILE` prints the CPU times that its windows give. For each
number of streams it prints the wait that they predict, if the server keeps up, and the measured one: the time to the
first token less the engine's own. Nothing is fitted to the waits.
"""

import json
import sys
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Final

from pdinference.performance.api_server import ServerTimes, server_times
from pdinference.performance.measurement import ServerWindow
from pdinference.performance.service import SERVICE, Service
from pdinference.simulation.api_servers import ApiServers

_PROBES_A_SECOND: Final = 10
_PHASES: Final = 100


def main() -> None:
    """Print both."""
    found = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    times = server_times(map(ServerWindow.model_validate, found["servers"]))
    if times is None:
        raise SystemExit("The windows are too few.")
    print(f"token {1e6 * times.token:.1f} us, step {1e6 * times.step:.0f} us, request {1e3 * times.request:.2f} ms")
    print("| running | step ms | cores for tokens | wait ms: predicted / measured |\n| ---: | ---: | ---: | --- |")
    servers = ApiServers(1, _service(times))
    for wait in found["waits"]:
        running, step = wait["running"], wait["step_ms"] / 1000
        measured = wait["ttft_ms"]["p50"] - wait["engine_ms"]
        print(
            f"| {running} | {1000 * step:.2f} | {servers.writing(running) / step:.2f} "
            f"| {1000 * _wait(servers, running, step):.1f} / {measured:.1f} |"
        )


def _service(times: ServerTimes) -> Service:
    return replace(SERVICE, token_out=times.token, step_out=times.step, request_cpu=times.request)


def _wait(servers: ApiServers, running: int, step: float) -> float:
    """Median seconds of a request at the API server, whenever in a step it comes."""
    own, reading = servers.service.request_cpu, _PROBES_A_SECOND * servers.service.request_cpu
    writing = servers.writing(running)
    phases = [step * phase / _PHASES for phase in range(_PHASES)]
    waits = [servers.waiting(running, step, phase, max(0.0, writing - phase), reading) for phase in phases]
    return own + median(waits) + writing


if __name__ == "__main__":
    main()
