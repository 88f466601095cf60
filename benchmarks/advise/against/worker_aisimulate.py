"""Runs `aisimulate predict` on many files in one process, so that its data are read once.

The Python of AISimulate's own environment runs it: `PYTHON worker_aisimulate.py CONFIG OUTPUT ...`, in pairs. What it
says of each goes to OUTPUT/said.txt. The command would start a process that watches the memory of a second one; here
the first one tells itself its budget.
"""

import contextlib
import json
import os
import sys
from pathlib import Path

from aisimulate.main import main  # type: ignore[import-not-found,unused-ignore]

_GIB = 2**30
_BUDGET = {"memory_limit_bytes": 4 * _GIB, "cpu_limit": 1, "reserved_host_memory_bytes": _GIB}

for config, output in zip(sys.argv[1::2], sys.argv[2::2], strict=True):
    folder = Path(output)
    folder.mkdir(parents=True, exist_ok=True)
    places = {"events_path": f"{output}/events.jsonl", "ready_path": f"{output}/ready"}
    os.environ["_AISIMULATE_SUPERVISED_BUDGET"] = json.dumps(_BUDGET | places | {"supervisor_pid": os.getpid()})
    arguments = ["predict", "-c", config, "--output-dir", output, "--overwrite", "--capture-per-request"]
    with (
        (folder / "said.txt").open("w", encoding="utf-8") as said,
        contextlib.redirect_stdout(said),
        contextlib.redirect_stderr(said),
        contextlib.suppress(SystemExit),
    ):
        main(arguments)
    (folder / "prediction.json").unlink(missing_ok=True)
