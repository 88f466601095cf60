"""How much longer a step takes after one with a prompt: `python -m benchmarks.advise.after_prompts`.

Results of `benchmarks.on_gpu.compared` have percentiles of the gaps between tokens. Where prompts come often, p90 or
p95 is a step after one with a prompt, and no sum of others hides it. The calibration was not fitted to any of these
loads of unsplit engines, and no table of `benchmarks.advise` has those of `goodput-h200.jsonl`. Each is simulated with
what such a step takes longer in the calibration, and with the 6.5 ms that it had until 30 November 2026. A second table
has the runs of `blocks-h200.jsonl`, which compare blocks of 16 and 128 tokens. The model does not know their size.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
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
_OF_BLOCKS: Final = "blocks-h200.jsonl"
_KV_TOKENS_OF_BLOCKS: Final = 98_304
_BLOCKS: Final = {"u0": 128, "s0": 16}
"""Tokens of a block of the KV cache, by the first engine of a run (benchmarks/on_gpu/measured/blocks.yaml)."""
_LENGTHS: Final = ((700, 40), (300, 700), (2500, 400))
_BEFORE: Final = 0.0065
_GAPS: Final = (50, 90, 95)
_SEED: Final = 1


def main() -> None:
    """Two tables in Markdown."""
    print("\n".join([*lines(), "", *lines_of_blocks()]))


def lines() -> Iterator[str]:
    """Gaps at p50, p90 and p95, and whole requests at the median, in ms."""
    yield "| load | req/s | measured: gaps, whole | with 6.5 ms | with 1 ms |"
    yield "| --- | ---: | --- | --- | --- |"
    for row in measured():
        yield f"| {_load(row)} | {' | '.join(_compared(row, _GAPS))} |"


def lines_of_blocks() -> Iterator[str]:
    """The same of blocks of 16 and 128 tokens, with gaps at p99."""
    yield "| load | req/s | blocks of | measured: gaps, whole | with 6.5 ms | with 1 ms |"
    yield "| --- | ---: | ---: | --- | --- | --- |"
    for row in measured_of_blocks():
        yield f"| {_load(row)} | {_BLOCKS[row['d'][0]]} | {' | '.join(_compared(row, (*_GAPS, 99)))} |"


def measured() -> Iterator[dict[str, Any]]:
    """The results of two unsplit engines, by length and rate."""
    rows = [row for name, kv_tokens in _KV_TOKENS.items() for row in _unsplit(name, kv_tokens)]
    some = [row for row in rows if (row["prompt"], row["answer"]) in _LENGTHS]
    yield from sorted(some, key=lambda row: (_LENGTHS.index((row["prompt"], row["answer"])), row["rate"]))


def measured_of_blocks() -> list[dict[str, Any]]:
    """Those of blocks of 16 and 128 tokens, by load."""
    rows = _unsplit(_OF_BLOCKS, _KV_TOKENS_OF_BLOCKS)
    return sorted(rows, key=lambda row: (row["prompt"], -_BLOCKS[row["d"][0]]))


def _unsplit(name: str, kv_tokens: int) -> Iterator[dict[str, Any]]:
    for line in (_FOLDER / name).read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        if not row["p"]:
            yield row | {"kv_tokens": kv_tokens}


def simulated(row: dict[str, Any], after_prefill: float) -> SimulatedOutcome:
    """A run of this load."""
    steps = step_model(SETTINGS, replace(H200, after_prefill=after_prefill))
    engines = Arrangement(EngineKind(steps, EngineLimits.of(SETTINGS, row["kv_tokens"])), len(row["d"]))
    load = Load(*(row[member] for member in ("prompt", "answer", "rate", "warm_up", "counted")))
    lasts = load.warm_up + load.counted
    return simulate(engines, as_measured(load, _SEED), warm_up=load.warm_up, until=lasts).outcome


def _load(row: dict[str, Any]) -> str:
    return f"{row['prompt']:,} / {row['answer']} | {row['rate']:.4g}"


def _compared(row: dict[str, Any], percentiles: Sequence[int]) -> Iterator[str]:
    """The cells of what was measured, and of both predictions."""
    real = row["whole"]["p50"]
    yield f"{_gaps(row['gap'][f'p{at}'] for at in percentiles)}, {real:,.0f}"
    for after_prefill in (_BEFORE, H200.after_prefill):
        found = simulated(row, after_prefill)
        whole = 1000 * found.whole.at(50)
        gaps = _gaps(1000 * found.gaps.quantile(at / 100) for at in percentiles)
        yield f"{gaps}, {whole:,.0f} ({whole / real - 1:+.0%})"


def _gaps(milliseconds: Iterable[float]) -> str:
    return " / ".join(f"{gap:.1f}" for gap in milliseconds)


if __name__ == "__main__":
    main()
