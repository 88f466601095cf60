"""Long answers that fill D's API server: predicted with the CPU time that a token took in the same run.

`uv run --no-sync python -m benchmarks.advise.full_api_servers` prints a table. The CPU time is that of D's API server
in `benchmarks/on_gpu/measured`, less its steps and requests. The rest of the prediction is as in the other tables.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from benchmarks.advise.measured import FOURTH, THIRD, Load
from benchmarks.advise.predicted import Times, arrangement_of, simulated
from pdinference.performance.service import SERVICE
from pdinference_advise.simulation.api_servers import ApiServers

_MEASURED: Final = Path(__file__).parents[1] / "on_gpu" / "measured"
_FILES: Final = {"defaults.loads": THIRD, "answers.loads": FOURTH}
_SEED: Final = 1


@dataclass(frozen=True)
class _Run:
    """One run with P and D.

    Attributes:
        load: What was sent, and to what.
        decode: Name of the D server in the plan.
        found: Its line of the file.
    """

    load: Load
    decode: str
    found: dict[str, Any]

    @property
    def token_cpu(self) -> float:
        """CPU seconds of D's API server for a token, with its part of steps and requests."""
        lasted = self.load.warm_up + self.load.counted + self.found["whole"]["p50"] / 1000
        return float(self.found["cores"][self.decode]["api"] * lasted / self._generated)

    @property
    def token_out(self) -> float:
        """The same of a token alone."""
        running = self.tokens_per_second * float(self.found["tpot"]["p50"]) / 1000
        return self.token_cpu - SERVICE.step_out / running - SERVICE.request_cpu / self.load.answer

    @property
    def tokens_per_second(self) -> float:
        """Tokens of the requests of a second."""
        return self._generated / (self.load.warm_up + self.load.counted)

    @property
    def _generated(self) -> float:
        return float(self.found["counters"][self.decode]["tokens"])


def main() -> None:
    """Print the table."""
    print(
        "| load | D | CPU of a token, µs | cores that it asks for | TTFT p50 | TTFT p99 | TPOT p50 | TPOT p99 |\n"
        "| --- | --- | ---: | ---: | --- | --- | --- | --- |"
    )
    for run in _runs():
        times, measured = _predicted(run), [run.found[name][at] for name in ("ttft", "tpot") for at in ("p50", "p99")]
        cells = [f"{of:,.4g} / {real:,.4g}" for of, real in zip((*times.ttft, *times.tpot), measured, strict=True)]
        shape = f"{run.load.rate:g} a second{', FP8' * run.load.fp8}{', H100' * ('H100' in run.load.product)}"
        cores = run.token_cpu * run.tokens_per_second
        print(f"| {shape} | {run.decode} | {1e6 * run.token_cpu:.0f} | {cores:.2f} | {' | '.join(cells)} |")


def _runs() -> Iterator[_Run]:
    """Of P and D alone, with a token for each event."""
    for name, rows in _FILES.items():
        for line in (_MEASURED / name).read_text(encoding="utf-8").splitlines():
            found = json.loads(line)
            alone = found["p"] and not found.get("router") and "interval" not in found["d"][0]
            if alone and found["answer"] == 1500 and found["cores"][found["d"][0]]["api"]:  # not with several
                yield _Run(_load_of(found, rows[0]), found["d"][0], found)


def _load_of(found: dict[str, Any], like: Load) -> Load:
    fp8 = "fp8" in found["d"][0]
    rate, warm_up, counted = found["rate"], found["warm_up"], found["counted"]
    return replace(like, way="NVLink", prompt=500, answer=1500, rate=rate, warm_up=warm_up, counted=counted, fp8=fp8)


def _predicted(run: _Run) -> Times:
    service = replace(SERVICE, token_out=run.token_out)
    arrangement = arrangement_of(run.load)
    limits = replace(arrangement.kind.limits, servers=ApiServers(1, service))
    arrangement = replace(arrangement, kind=replace(arrangement.kind, limits=limits), service=service)
    return simulated(run.load, arrangement, _SEED)


if __name__ == "__main__":
    main()
