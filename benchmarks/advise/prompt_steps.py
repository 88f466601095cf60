"""Why a step with a prompt takes longer under load than predicted: `python -m benchmarks.advise.prompt_steps`.

Two tables from `benchmarks/on_gpu/measured/prompt-steps.yaml`: what engines with few and with many CUDA graphs took for
their steps, on a CPU and on the GPU, and the loads beside their predictions. Two tables from `prompt-graphs.yaml`: the
same graphs on P, for prompts alone, and with D behind it.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.advise.after_prompts import simulated
from pdinference.performance.calibration import H200

_STEPS: Final = Path("benchmarks/on_gpu/measured/prompt-steps-h200.jsonl")
_LOADS: Final = Path("benchmarks/on_gpu/measured/prompt-steps-loads-h200.jsonl")
_GRAPHS: Final = Path("benchmarks/on_gpu/measured/prompt-graphs-h200.jsonl")
_KV_TOKENS: Final = 98_304
_ENGINES: Final = {
    ("u", "alone"): "graphs up to 512 tokens, alone on the host",
    ("u", "beside"): "the same, beside two idle engines",
    ("g", "beside"): "graphs up to 1,536 tokens, beside two idle engines",
}
_PARTS: Final = (
    ("prompts", "a prompt of 700 tokens", (700, 760)),
    ("prompts", "a prompt of 1,000", (1000, 1060)),
    ("after", "answers, after a prompt", (1, 64)),
    ("answers", "answers, after answers", (1, 64)),
)
_SHARES: Final = (10, 50, 90)
_SIZES: Final = {"u": "up to 512", "l": "41, up to 1,536", "m": "115, up to 1,536"}
"""CUDA graphs of each P, and of how many tokens the largest is."""


def main() -> None:
    """Print the tables in Markdown."""
    tables = (lines_of_steps(), lines_of_loads(), lines_of_graphs(), lines_of_split())
    print("\n\n".join("\n".join(lines) for lines in tables))


def lines_of_steps() -> Iterator[str]:
    """What steps took, in ms."""
    yield "| engine | step with | steps | launches | on the GPU | idle before it |"
    yield "| --- | --- | ---: | --- | --- | --- |"
    for row in _rows(_STEPS):
        for part, name, (least, most) in _PARTS:
            some = [step for step in _steps(row, part) if least <= step["tokens"] <= most]
            cells = " | ".join(_at([step[of] for step in some]) for of in ("launch_ms", "gpu_ms", "idle_ms"))
            yield f"| {_ENGINES[row['engine'], row['wave']]} | {name} | {len(some)} | {cells} |"


def lines_of_loads() -> Iterator[str]:
    """First tokens, gaps and whole requests, in ms."""
    yield "| engine | load | req/s | first token p50, p99 | gaps p50, p90, p95, p99 | whole p50 |"
    yield "| --- | --- | ---: | --- | --- | --- |"
    for row in sorted(_rows(_LOADS), key=lambda row: row["prompt"]):
        gaps = ", ".join(f"{row['gap'][f'p{at}']:.1f}" for at in (50, 90, 95, 99))
        first = f"{row['ttft']['p50']:.0f}, {row['ttft']['p99']:.0f}"
        yield f"| {_ENGINES[row['d'][0], row['wave']]} | {_load(row)} | {first} | {gaps} | {row['whole']['p50']:,.0f} |"
        if row["d"] == ["g"]:
            yield f"| *predicted* | {_load(row)} | {_predicted(row)} |"


def lines_of_graphs() -> Iterator[str]:
    """Prompts that a P computes alone, in ms."""
    yield "| prompt | graphs of P | steps | launches | on the GPU | first token p50, p90 |"
    yield "| ---: | --- | ---: | --- | --- | --- |"
    rows = _rows(_GRAPHS)
    steps = {row["engine"]: _steps(row, "prompts") for row in rows if "engine" in row}
    alone = {(row["prompt"], row["d"][0]): row["ttft"] for row in rows if row.get("p") == []}
    for prompt in sorted({prompt for prompt, _ in alone}):
        for engine, graphs in _SIZES.items():
            some = [step for step in steps[engine] if step["tokens"] == prompt]
            cells = " | ".join(_at([step[of] for step in some]) for of in ("launch_ms", "gpu_ms"))
            first = alone[prompt, engine]
            yield f"| {prompt:,} | {graphs} | {len(some)} | {cells} | {first['p50']:.1f}, {first['p90']:.1f} |"


def lines_of_split() -> Iterator[str]:
    """The same P before D, in two rounds, in ms."""
    yield "| load | req/s | graphs of P | first token p50 | whole p50 |"
    yield "| --- | ---: | --- | --- | --- |"
    rows = [row for row in _rows(_GRAPHS) if row.get("p")]
    for prompt in sorted({row["prompt"] for row in rows}):
        for engine, graphs in _SIZES.items():
            some = [row for row in rows if row["prompt"] == prompt and row["p"] == [engine]]
            cells = " | ".join(" and ".join(f"{row[of]['p50']:.0f}" for row in some) for of in ("ttft", "whole"))
            yield f"| {_load(some[0])} | {graphs} | {cells} |"


def _rows(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def _steps(row: dict[str, Any], part: str) -> list[dict[str, float]]:
    return [dict(zip(row["members"], step, strict=True)) for step in row[part]]


def _predicted(row: dict[str, Any]) -> str:
    found = simulated(row | {"kv_tokens": _KV_TOKENS}, H200.after_prefill)
    gaps = ", ".join(f"{1000 * found.gaps.quantile(at / 100):.1f}" for at in (50, 90, 95, 99))
    first = f"{1000 * found.ttft.at(50):.0f}, {1000 * found.ttft.at(99):.0f}"
    return f"{first} | {gaps} | {1000 * found.whole.at(50):,.0f}"


def _load(row: dict[str, Any]) -> str:
    return f"{row['prompt']:,} / {row['answer']} | {row['rate']:.4g}"


def _at(values: Sequence[float]) -> str:
    ordered = sorted(values)
    return ", ".join(f"{ordered[len(ordered) * share // 100]:.1f}" for share in _SHARES)


if __name__ == "__main__":
    main()
