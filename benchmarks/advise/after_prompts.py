"""How much longer a step takes after one with a prompt: `python -m benchmarks.advise.after_prompts`.

Results of `benchmarks.on_gpu.compared` have percentiles of the gaps between tokens. Where prompts come often, p90 or
p95 is a step after one with a prompt, and no sum of others hides it. The calibration was not fitted to any of these
loads of unsplit engines, and no table of `benchmarks.advise` has those of `goodput-h200.jsonl`. Each is simulated with
what such a step takes longer in the calibration, and with the 6.5 ms that it had until 30 November 2026.
"""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from benchmarks.advise.predicted import SETTINGS, as_measured
from benchmarks.llama import step_model
from benchmarks.on_gpu.loads import Load
from pdinference.performance.calibration import H200
from pdinference_advise.simulation.arrangement import Arrangement, EngineKind
from pdinference_advise.simulation.engine import EngineLimits
from pdinference_advise.simulation.outcome import SimulatedOutcome
from pdinference_advise.simulation.run import simulate

_FOLDER: Final = Path("benchmarks/on_gpu/measured")
_KV_TOKENS: Final = {"adaptive-h200.jsonl": 106_496, "goodput-h200.jsonl": 196_608}
"""Files of results, and the tokens of the KV cache of each engine."""
_LENGTHS: Final = ((700, 40), (300, 700), (2500, 400))
_BEFORE: Final = 0.0065
_GAPS: Final = (50, 90, 95)
_SEED: Final = 1


def main() -> None:
    """A table in Markdown."""
    print("\n".join(lines()))


def lines() -> Iterator[str]:
    """Its lines: gaps at p50, p90 and p95, and whole requests at the median, in ms."""
    yield "| load | req/s | measured: gaps, whole | with 6.5 ms | with 1 ms |"
    yield "| --- | ---: | --- | --- | --- |"
    for row in measured():
        real = [*(row["gap"][f"p{at}"] for at in _GAPS), row["whole"]["p50"]]
        cells = [_cell(_times(simulated(row, after)), real[-1]) for after in (_BEFORE, H200.after_prefill)]
        measured_cell = f"{' / '.join(f'{gap:.1f}' for gap in real[:-1])}, {real[-1]:,.0f}"
        yield f"| {row['prompt']:,} / {row['answer']} | {row['rate']:.4g} | {measured_cell} | {' | '.join(cells)} |"


def measured() -> Iterator[dict[str, Any]]:
    """The results of two unsplit engines, by length and rate."""
    rows = [
        json.loads(line) | {"kv_tokens": kv_tokens}
        for name, kv_tokens in _KV_TOKENS.items()
        for line in (_FOLDER / name).read_text(encoding="utf-8").splitlines()
    ]
    some = [row for row in rows if not row["p"] and (row["prompt"], row["answer"]) in _LENGTHS]
    yield from sorted(some, key=lambda row: (_LENGTHS.index((row["prompt"], row["answer"])), row["rate"]))


def simulated(row: dict[str, Any], after_prefill: float) -> SimulatedOutcome:
    """A run of this load."""
    steps = step_model(SETTINGS, replace(H200, after_prefill=after_prefill))
    engines = Arrangement(EngineKind(steps, EngineLimits.of(SETTINGS, row["kv_tokens"])), len(row["d"]))
    load = Load(*(row[member] for member in ("prompt", "answer", "rate", "warm_up", "counted")))
    lasts = load.warm_up + load.counted
    return simulate(engines, as_measured(load, _SEED), warm_up=load.warm_up, until=lasts).outcome


def _times(outcome: SimulatedOutcome) -> list[float]:
    return [*(1000 * outcome.gaps.quantile(at / 100) for at in _GAPS), 1000 * outcome.whole.at(50)]


def _cell(found: list[float], real: float) -> str:
    *gaps, whole = found
    return f"{' / '.join(f'{gap:.1f}' for gap in gaps)}, {whole:,.0f} ({whole / real - 1:+.0%})"


if __name__ == "__main__":
    main()
