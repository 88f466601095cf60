"""Predictions of other tools: asked for once, and kept in recorded.json with the versions that gave them.

Both get the shape, the GPU, the number of engines, tensor parallelism, the bits of weights and KV cache, and the
lengths. AISimulate also gets tokens a step, `max-num-seqs`, the size of the KV cache, the speed of its way, and the
very arrivals of the measurement. AIConfigurator knows no rate: it estimates a batch. The batch is the smallest one in
which so many requests come and go (worker_aiconfigurator.py), which is how one would look for a load.
"""

import json
import math
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from statistics import median, quantiles
from typing import Any, Final

import yaml

from benchmarks.advise.against.cases import KNOWN, MIXTURES, MOST_REQUESTS, SYSTEMS, Arrivals, Case

_HERE: Final = Path(__file__).parent
_FILE: Final = _HERE / "recorded.json"
AICONFIGURATOR: Final = "AIConfigurator"
AISIMULATE: Final = "AISimulate"
TOOLS: Final = (AICONFIGURATOR, AISIMULATE)
_VERSION: Final = "import importlib.metadata as m, sys; print(m.version(sys.argv[1]))"
_TRACE_BLOCK: Final = 512

Prediction = Mapping[str, Any]
"""`ttft`, `tpot` and `gap` at `p50` and `p99`, and `whole`, in ms; or `problem`."""


@cache
def recorded() -> Mapping[str, Any]:
    """What recorded.json has: `versions`, and for each tool the predictions by the key of a case."""
    found: Mapping[str, Any] = json.loads(_FILE.read_text(encoding="utf-8"))
    return found


def record(python: str, tool: str, some: Iterable[Case]) -> None:
    """Ask a tool for its predictions, and keep them.

    Args:
        python: The Python of an environment with the tool.
        tool: One of `TOOLS`.
        some: The loads.
    """
    by_key = {case.key: case for case in some}
    said = subprocess.run([python, "-c", _VERSION, tool.lower()], check=True, capture_output=True, text=True)
    with tempfile.TemporaryDirectory() as folder:
        ask = _estimates if tool == AICONFIGURATOR else _simulations
        found = dict(zip(by_key, ask(python, list(by_key.values()), Path(folder)), strict=True))
    kept = json.loads(_FILE.read_text(encoding="utf-8")) if _FILE.exists() else {"versions": {}}
    kept["versions"][tool] = said.stdout.strip()
    kept[tool] = found
    _FILE.write_text(_text(kept), encoding="utf-8")


def _text(kept: Mapping[str, Mapping[str, Any]]) -> str:
    """JSON with a line for each prediction."""
    members = (
        f"{json.dumps(name)}: {{\n"
        + ",\n".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in sorted(found.items()))
        + "\n}"
        for name, found in kept.items()
    )
    return "{\n" + ",\n".join(members) + "\n}\n"


def _model(case: Case, folder: Path) -> str:
    """A name that both tools know, or a folder with the model's config.json."""
    if case.model in KNOWN:
        return case.model
    place = folder / case.model.replace("/", "--")
    place.mkdir(exist_ok=True)
    kinds = {"qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM"}
    config = dict(case.config or {})
    config.setdefault("architectures", [kinds.get(config["model_type"], "")])
    config.setdefault("torch_dtype", "bfloat16")
    (place / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return str(place)


def _no_data(case: Case) -> Prediction | None:
    return None if case.product in SYSTEMS else {"problem": f"no data of {case.product}"}


# AIConfigurator


def _estimates(python: str, some: list[Case], folder: Path) -> Iterator[Prediction]:
    questions = {case.key: _question(case, folder) for case in some if _inexpressible(case) is None}
    done = subprocess.run(
        [python, str(_HERE / "worker_aiconfigurator.py")], input=json.dumps(list(questions.values())), text=True,
        stdout=subprocess.PIPE, check=True,
    )  # fmt: skip
    answers = dict(zip(questions, json.loads(done.stdout.splitlines()[-1]), strict=True))
    for case in some:
        answer = _inexpressible(case) or answers[case.key]
        if "problem" in answer:
            yield {"problem": answer["problem"].partition(" with the given")[0].replace(f"{folder}/", "")}
        else:
            yield {
                "batch": answer["batch"], "bears": round(answer["bears"], 2), "ttft": {"p50": round(answer["ttft"], 3)},
                "tpot": {"p50": round(answer["tpot"], 3)}, "whole": round(answer["whole"], 2),
            }  # fmt: skip


def _inexpressible(case: Case) -> Prediction | None:
    return _no_data(case) or ({"problem": "one length of prompts and answers only"} if len(case.lengths) > 1 else None)


def _question(case: Case, folder: Path) -> dict[str, Any]:
    (prompt, answer), (number, tensor) = case.lengths[0], case.decode
    arguments: dict[str, Any] = {
        "model_path": _model(case, folder), "system_name": SYSTEMS[case.product], "backend_name": "vllm",
        "isl": prompt, "osl": answer,
    }  # fmt: skip
    if case.fp8:
        arguments["kvcache_quant_mode"] = "fp8"
    if case.weights8:
        arguments["gemm_quant_mode"] = "fp8"
    if case.parameter:
        arguments |= {
            "mode": "disagg", "prefill_batch_size": 1, "prefill_num_workers": case.parameter[0],
            "prefill_tp_size": case.parameter[1], "decode_num_workers": number, "decode_tp_size": tensor,
            **_experts(case, "prefill_moe_tp_size", case.parameter[1]), **_experts(case, "decode_moe_tp_size", tensor),
        }  # fmt: skip
    else:
        arguments |= {"tp_size": tensor, **_experts(case, "moe_tp_size", tensor)}
    if case.rate == 0:
        return {"arguments": arguments, "concurrency": 1}
    if case.rate == math.inf:
        return {"arguments": arguments, "concurrency": len(case.arrivals()[0]) // number}
    return {"arguments": arguments, "rate": case.rate / number}


# AISimulate


def _simulations(python: str, some: list[Case], folder: Path) -> Iterator[Prediction]:
    runs: dict[str, list[Path]] = {}
    pairs: list[str] = []
    for number, case in enumerate(some):
        if _no_data(case):
            continue
        for seed, arrivals in enumerate(case.arrivals()):
            place = folder / f"{number}-{seed}"
            place.mkdir()
            config = place / "prediction.yaml"
            config.write_text(yaml.safe_dump(_prediction(case, arrivals, place, folder)), encoding="utf-8")
            pairs += [str(config), str(place)]
            runs.setdefault(case.key, []).append(place)
    subprocess.run([python, str(_HERE / "worker_aisimulate.py"), *pairs], check=True)
    for case in some:
        yield _no_data(case) or _result(case, runs[case.key])


def _prediction(case: Case, arrivals: Arrivals, place: Path, folder: Path) -> dict[str, Any]:
    blocks, lines = iter(range(1, 10**9)), []
    for at, prompt, answer in arrivals:
        hashes = [next(blocks) for _ in range(-(-prompt // _TRACE_BLOCK))]
        line = {"timestamp": 1000 * at, "input_length": prompt, "output_length": answer, "hash_ids": hashes}
        lines.append(json.dumps(line))
    trace = place / "trace.jsonl"
    trace.write_text("\n".join(lines), encoding="utf-8")
    engine: dict[str, Any] = {
        "mode": "disaggregated" if case.parameter else "aggregated", "model": _model(case, folder),
        "hardware": SYSTEMS[case.product], "backend": "vllm", "context_length": _longest(case),
    }  # fmt: skip
    if case.fp8:
        engine["kvcache_quant_mode"] = "fp8"
    if case.weights8:
        engine["gemm_quant_mode"] = "fp8"
    if case.parameter:
        engine["kv_transfer"] = {"bandwidth_gb_per_second": case.transfer}
        engine["workers"] = {
            "prefill": _worker(case, case.parameter, case.step_tokens[0]),
            "decode": _worker(case, case.decode, case.step_tokens[1]),
        }
    else:
        engine["workers"] = {"aggregated": _worker(case, case.decode, case.step_tokens[1])}
    source = {"type": "trace", "paths": [str(trace)], "format": "mooncake", "block_size": _TRACE_BLOCK}
    return {"traffic": {"source": source, "load": {"type": "trace_timestamps"}}, "engine": engine}


def _longest(case: Case) -> int:
    return max(16_384, *(1024 * math.ceil((prompt + answer) / 1024) for prompt, answer in case.lengths))


def _worker(case: Case, engines: tuple[int, int], step_tokens: int) -> dict[str, Any]:
    kv_cache: dict[str, Any] = {"block_size": 128}
    if case.kv_tokens is not None:
        kv_cache["capacity"] = {"type": "fixed", "blocks": case.kv_tokens // 128}
    return {
        "parallelism": {"replicas": engines[0], "tensor": engines[1]} | _experts(case, "moe_tensor", engines[1]),
        "scheduler": {"max_batched_tokens": step_tokens, "max_sequences": MOST_REQUESTS},
        "kv_cache": kv_cache,
    }


def _experts(case: Case, name: str, tensor: int) -> dict[str, int]:
    """What tells of the tensor parallelism of experts, if there are any."""
    return {name: tensor} if case.model in MIXTURES else {}


def _result(case: Case, places: list[Path]) -> Prediction:
    """The medians of the runs."""
    runs = []
    for place in places:
        requests = place / "requests.jsonl"
        if not requests.exists():
            said = [line for line in (place / "said.txt").read_text(encoding="utf-8").splitlines() if line.strip()]
            return {"problem": (said or ["it said nothing"])[-1][:300]}
        rows = [json.loads(line) for line in requests.read_text(encoding="utf-8").splitlines()]
        counted = [row for row in rows if row["arrival_time_ms"] >= 1000 * case.warm_up and row["e2e_latency_ms"]]
        runs.append(
            [*_both([row["ttft_ms"] for row in counted]), *_both([row["itl_ms"] for row in counted]),
             median(row["e2e_latency_ms"] for row in counted)]
        )  # fmt: skip
    ttft, ttft_99, tpot, tpot_99, whole = (round(median(column), 3) for column in zip(*runs, strict=True))
    return {"ttft": {"p50": ttft, "p99": ttft_99}, "tpot": {"p50": tpot, "p99": tpot_99}, "whole": round(whole, 2)}


def _both(values: list[float]) -> tuple[float, float]:
    return median(values), quantiles(values, n=100, method="inclusive")[98]
