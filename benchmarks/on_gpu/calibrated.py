"""A shape as `pdinference calibrate` measures it, then loads on the same vLLM, on a machine with a GPU.

`python -m benchmarks.on_gpu.calibrated JOB.yaml OUT LOAD ...` takes the Job that `pdinference calibrate measure`
printed, starts the vLLM that its program starts, and writes OUT.raw (the measurement), OUT.loads and OUT.log (of vLLM).
Without loads the Job's own command runs, as in its container.
"""

import argparse
import contextlib
import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

import yaml

from benchmarks.on_gpu.loads import Load, load_of, measure
from pdinference_advise.commands.calibrate import measure_steps

_URL = "http://127.0.0.1:8000"


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("job", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("loads", nargs="*", type=load_of)
    arguments = parser.parse_args()
    documents = yaml.safe_load_all(arguments.job.read_text(encoding="utf-8"))
    (job,) = [each for each in documents if each["kind"] == "Job"]
    (container,) = job["spec"]["template"]["spec"]["containers"]
    command = [word.replace("$$", "$") for word in container["command"]]
    if not arguments.loads:
        with Path(f"{arguments.out}.raw").open("wb") as raw:
            sys.exit(subprocess.run([sys.executable, *command[1:]], stdout=raw, stderr=raw, check=False).returncode)
    _measure(command[command.index("-c") + 2 :], arguments.out, arguments.loads)


def _measure(words: list[str], out: Path, loads: list[Load]) -> None:
    options = measure_steps._options(words)
    config, start = json.loads(options.config), time.monotonic()
    with measure_steps.started(options.arguments, config, "", options.step_tokens, options.port) as pid:
        print(f"vLLM took {time.monotonic() - start:.0f} s to start", flush=True)
        try:
            result = measure_steps.measured(options, config, _URL, pid)
            print(f"KV tokens: {measure_steps.Server(_URL, pid, 1000).kv_tokens}", flush=True)
            Path(f"{out}.raw").write_text(json.dumps(result, separators=(",", ":")) + "\n", encoding="utf-8")
            print(f"measured after {time.monotonic() - start:.0f} s", flush=True)
            with Path(f"{out}.loads").open("w", encoding="utf-8") as file, contextlib.redirect_stdout(file):
                measure(_URL, loads)
        finally:
            shutil.copy(f"/proc/{pid}/fd/1", f"{out}.log")
    print(f"ended after {time.monotonic() - start:.0f} s", flush=True)


if __name__ == "__main__":
    main()
