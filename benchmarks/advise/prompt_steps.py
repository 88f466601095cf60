"""Why a step with a prompt takes longer under load than predicted: `python -m benchmarks.advise.prompt_steps`.

Two tables from `benchmarks/on_gpu/measured/prompt-steps.yaml`: what engines with few and with many CUDA graphs took for
their steps, on a CPU and on the GPU, and the loads beside their predictions.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.advise.after_prompts import simulated
from pdinference.performance.calibration import H200

_STEPS: Final = Path("benchmarks/on_gpu/measured/prompt-steps-h200.jsonl")
_LOADS: Final = Path("benchmarks/on_gpu/measured/prompt-steps-loads-h200.jsonl")
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


def main() -> None:
    """Print both tables in Markdown."""
    print("\n".join([*lines_of_steps(), "", *lines_of_loads()]))


def lines_of_steps() -> Iterator[str]:
    """What steps took, in ms."""
    yield "| engine | step with | steps | launches | on the GPU | idle before it |"
    yield "| --- | --- | ---: | --- | --- | --- |"
    for line in _STEPS.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        for part, name, (least, most) in _PARTS:
            steps = [dict(zip(row["members"], step, strict=True)) for step in row[part]]
            some = [step for step in steps if least <= step["tokens"] <= most]
            cells = " | ".join(_at([step[of] for step in some]) for of in ("launch_ms", "gpu_ms", "idle_ms"))
            yield f"| {_ENGINES[row['engine'], row['wave']]} | {name} | {len(some)} | {cells} |"


def lines_of_loads() -> Iterator[str]:
    """First tokens, gaps and whole requests, in ms."""
    yield "| engine | load | req/s | first token p50, p99 | gaps p50, p90, p95, p99 | whole p50 |"
    yield "| --- | --- | ---: | --- | --- | --- |"
    rows = [json.loads(line) for line in _LOADS.read_text(encoding="utf-8").splitlines()]
    for row in sorted(rows, key=lambda row: row["prompt"]):
        gaps = ", ".join(f"{row['gap'][f'p{at}']:.1f}" for at in (50, 90, 95, 99))
        first = f"{row['ttft']['p50']:.0f}, {row['ttft']['p99']:.0f}"
        yield f"| {_ENGINES[row['d'][0], row['wave']]} | {_load(row)} | {first} | {gaps} | {row['whole']['p50']:,.0f} |"
        if row["d"] == ["g"]:
            yield f"| *predicted* | {_load(row)} | {_predicted(row)} |"


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
