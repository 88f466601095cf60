"""How right `pdinference plan` is: against the KV capacity that the real vLLM logs, on CPU, for tiny models.

    uv run python -m benchmarks.memory_plan --python /path/to/python/with/vllm

For each model of `tiny_models.py` vLLM starts with the same settings as the plan, and is stopped when it has logged
its KV cache; and the number of parameters is compared with that in the files. The KV formulas, groups and rounding are
those of GPUs; weights and activations are not part of vLLM's CPU memory model, so this says nothing about what they
take on a device (benchmarks/results/memory.md has GPU runs).
"""

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from pdinference.api.names import Role
from pdinference.api.v1alpha1 import Spec
from pdinference.api.v1alpha1.source import ModelSource
from pdinference.cli.plan.model_files import read_model
from pdinference.memory import Inputs, RolePlan, checkpoint_of, model_facts, plan_role
from pdinference.memory.weights.checkpoint import Headers, StoredFiles
from tests.memory.sizes import parameters

_CAPACITY = re.compile(
    r"KV cache size: ([\d,]+) tokens, Maximum concurrency for ([\d,]+) tokens per request: ([\d.]+)x"
)
_LENGTH, _BATCHED, _SEQS, _GIB = 2048, 512, 8, 1
_PATIENCE = 400
_BAR = 0.05


@dataclass(frozen=True)
class Measurement:
    """What vLLM logged: tokens and concurrency; or why it did not start."""

    tokens: int | None
    concurrency: float | None
    trouble: str = ""


def main() -> None:
    """Measure, compare, print; end with 1 when an error is above 5 %."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable, help="Python that has vLLM (CPU build) and transformers.")
    parser.add_argument("--models", nargs="*", help="Only these; default: all.")
    options = parser.parse_args()
    table = Table(title="KV cache in tokens: plan against vLLM on CPU")
    for column in ("model", "predicted", "measured", "error", "concurrency predicted", "measured", "parameters", "s"):
        table.add_column(column, justify="left" if column == "model" else "right")
    worst = 0.0
    with tempfile.TemporaryDirectory() as folder:
        script = Path(__file__).parent.with_name("tiny_models.py")
        made = subprocess.run([options.python, script, folder], check=True, capture_output=True, text=True)
        names = [name for name in made.stdout.split() if not options.models or name in options.models]
        for name in names:
            model = Path(folder) / name
            planned = plan(model)
            counted = f"{parameters(planned.facts) / _elements(model) - 1:+.3%}"
            begin = time.monotonic()
            seen = measure(options.python, model)
            took = f"{time.monotonic() - begin:.0f}"
            tokens = planned.tokens.value
            if seen.tokens is None or tokens is None:
                table.add_row(name, f"{tokens}", seen.trouble, "", "", "", counted, took)
                continue
            error = tokens / seen.tokens - 1
            worst = max(worst, abs(error))
            table.add_row(name, f"{tokens:,.0f}", f"{seen.tokens:,}", f"{error:+.3%}",
                          f"{planned.concurrency.value}", f"{seen.concurrency}", counted, took)  # fmt: skip
            print(f"{name}: {tokens:,.0f} against {seen.tokens:,}", flush=True)
    Console(width=120).print(table)
    sys.exit(worst > _BAR)


def _elements(model: Path) -> int:
    """Parameters in the files."""
    _, files = read_model(ModelSource(path=str(model)), model, None)
    return sum(header.elements for header in _headers(files).values())


def _headers(files: Headers | StoredFiles | None) -> Headers:
    """The headers of safetensors files, which all tiny models have."""
    if files is None or isinstance(files, StoredFiles):
        raise SystemExit(f"The weights are no safetensors: {files}")
    return files


def plan(model: Path) -> RolePlan:
    """The plan of a CPU pod with the settings of `measure`."""
    role = {"accelerator": {"type": "CPU"}}
    spec = Spec.model_validate(
        {
            "model": {"source": {"path": str(model)}, "dtype": "bfloat16", "maxModelLength": _LENGTH},
            "engine": {
                "enforceEager": True,
                "maxNumBatchedTokens": _BATCHED,
                "maxNumSeqs": _SEQS,
                "env": {"VLLM_CPU_KVCACHE_SPACE": str(_GIB)},
            },
            "parameter": role,
            "decode": role,
        }
    )
    config, files = read_model(spec.model.source, model, None)
    facts = model_facts(config)
    return plan_role(Inputs(spec, facts, checkpoint_of(_headers(files), facts)), Role.DECODE)


def measure(python: str, model: Path) -> Measurement:
    """Start vLLM, read its capacity from the log, stop it."""
    command = [
        python, "-m", "vllm.entrypoints.cli.main", "serve", str(model), "--skip-tokenizer-init",
        "--enforce-eager", "--dtype", "bfloat16", "--max-model-len", str(_LENGTH), "--port", "18473",
        "--max-num-batched-tokens", str(_BATCHED), "--max-num-seqs", str(_SEQS),
    ]  # fmt: skip
    environment = os.environ | {
        "VLLM_CPU_KVCACHE_SPACE": str(_GIB),
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
    }
    lines: list[str] = []
    # A session of its own, because vLLM's engine and worker outlive a server that is told to stop while it loads.
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    ) as process:
        deadline = time.monotonic() + _PATIENCE
        try:
            for line in process.stdout or ():
                lines.append(line)
                if match := _CAPACITY.search(line):
                    return Measurement(int(match[1].replace(",", "")), float(match[3]))
                if time.monotonic() > deadline:
                    return Measurement(None, None, f"not up after {_PATIENCE} s")
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
    errors = [line.strip() for line in lines if re.search(r"\] \w+Error:", line)]
    return Measurement(None, None, (errors or lines[-1:] or ["no output"])[0][-200:])


if __name__ == "__main__":
    main()
