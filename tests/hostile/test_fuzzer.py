"""Mutated documents are examined within limits of memory and time; `make explore` generates new ones."""

import os
import subprocess
import sys

import pytest

from tests.conftest import REPOSITORY

_SEED = int(os.environ.get("HOSTILE_SEED", "1"))
_CASES = int(os.environ.get("HOSTILE_CASES", "50"))
_EACH = min(_CASES, 500)


@pytest.mark.timeout(1800)  # the process ends by itself when a case takes too much CPU time
@pytest.mark.parametrize("part", range(_CASES // _EACH))
def test_mutated_documents_do_no_harm(part: int) -> None:
    command = [sys.executable, "-m", "tests.hostile.fuzz", str(_SEED + part), str(_EACH)]
    fuzzer = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    lines = fuzzer.stdout.splitlines()
    last = next((line for line in reversed(lines) if line.startswith("Case ")), "no case")
    said = "\n".join(line for line in lines if not line.startswith("Case "))
    assert fuzzer.returncode == 0, (
        f"{last} of seed {_SEED + part} was the last.\n{said[-5000:]}\n{fuzzer.stderr[-2000:]}"
    )
