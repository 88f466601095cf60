"""CPU seconds in which an hour of traffic is simulated: `python -m benchmarks.advise.speed [--repeat N]`.

Llama-3.1-8B on H200s, 20 requests a second as a Poisson process, prompts of 500 to 1,500 and answers of 50 to 450
tokens. Parts of the hour are simulated in turns, and the fastest one of each arrangement counts, because other
programs slow the machine down.
"""

import argparse
import time
from dataclasses import replace
from typing import Final

from benchmarks.advise.measured import Load
from benchmarks.advise.predicted import arrangement_of
from pdinference_advise.advice.workload.lengths import parse
from pdinference_advise.advice.workload.synthetic import RequestClass, Synthetic
from pdinference_advise.simulation.arrangement import Arrangement
from pdinference_advise.simulation.run import simulate

_HOUR_S: Final = 3600
_PARTS: Final = 30
"""Parts of the hour; one is simulated at a time."""
_CLASSES: Final = (RequestClass(parse("500..1500", "prompt"), parse("50..450", "answer")),)


def _arrangements() -> dict[str, Arrangement]:
    unsplit, split = (
        arrangement_of(Load(way, 1000, 250, 20, 0, 0, (0, 0), (0, 0), 0, 0)) for way in ("co-located", "NVLink")
    )
    return {
        "2 unsplit engines": unsplit,
        "8 unsplit engines": replace(unsplit, engines=8),
        "1 P and 1 D, NVLink": split,
    }


def _seconds(arrangement: Arrangement, seed: int) -> float:
    """CPU seconds of a part."""
    load = Synthetic(20, _CLASSES).trace(_HOUR_S / _PARTS, seed=seed)
    began = time.process_time()
    simulate(arrangement, load.arrivals, until=load.seconds)
    return time.process_time() - began


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=10, help="parts of each arrangement")
    repeat = parser.parse_args().repeat
    found: dict[str, list[float]] = {name: [] for name in _arrangements()}
    for seed in range(repeat):
        for name, arrangement in _arrangements().items():
            found[name].append(_PARTS * _seconds(arrangement, seed))
    print("| arrangement | CPU s for an hour, fastest | median |")
    print("| --- | ---: | ---: |")
    for name, seconds in found.items():
        print(f"| {name} | {min(seconds):.1f} | {sorted(seconds)[repeat // 2]:.1f} |")


if __name__ == "__main__":
    main()
