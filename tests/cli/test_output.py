"""Standard output that cannot be written is an error in words, whichever way a command writes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY
from tests.waiting import LONG_S

PROGRAM = Path(sys.executable).with_name("pdinference")
TINY = str(REPOSITORY / "examples/tiny-cpu.yaml")


@pytest.mark.parametrize(
    "words",
    [
        ["crd"],  # YAML to the stream
        ["validate", "-f", TINY],  # one line
        ["validate", "-f", TINY, "-o", "json"],
        ["adapter-rules"],
        ["--help"],  # by click, before a command runs
    ],
    ids=lambda words: " ".join(words[:1] + words[3:]),
)
def test_a_full_disk_is_an_error_of_one_line(words: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [PROGRAM, *words], stdout=full, stderr=subprocess.PIPE, text=True, timeout=LONG_S, check=False
        )
    assert done.stderr == "Error: The output cannot be written: No space left on device.\n"
    assert done.returncode == 1


def test_a_reader_that_leaves_early_is_no_error_to_report() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as pipe:
        done = subprocess.run(
            [PROGRAM, "adapter-rules"], stdout=pipe, stderr=subprocess.PIPE, text=True, timeout=LONG_S, check=False
        )
    assert done.stderr == ""
    assert done.returncode == 1


def test_a_closed_standard_output_is_no_error() -> None:
    command = f"{PROGRAM} validate -f {TINY} >&-"
    done = subprocess.run(["bash", "-c", command], stderr=subprocess.PIPE, text=True, timeout=LONG_S, check=False)
    assert done.stderr == ""
    assert done.returncode == 0
