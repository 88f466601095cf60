"""How `make test` runs its parts, and the load of `make test-busy`."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.busy import load
from tests.labelled import Labelled, endings
from tests.parts import run, summary
from tests.waiting import LONG_S, killed_in_the_end, until, wait_until


def part(name: str, program: str) -> Labelled:
    return Labelled(name, (sys.executable, "-c", program))


async def test_lines_appear_as_they_come_with_the_part_before_each(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The second part ends the first one when it has been printed: output that is held back would never be."""
    gate = tmp_path / "gate"
    first = f"import os, time; print('begun')\nwhile not os.path.exists({str(gate)!r}): time.sleep(0.05)"
    second = f"open({str(gate)!r}, 'w')\nprint('opened')"
    found = await run([[part("one", first), part("two", second)]])
    assert [code for code, _ in found.values()] == [0, 0]
    lines = capfd.readouterr().out.splitlines()
    assert {"one| begun", "two| opened"} <= {*lines}
    assert lines.index("one| begun") < next(i for i, line in enumerate(lines) if line.startswith("one| ended with 0"))


async def test_after_a_failure_no_other_part_begins_and_the_end_says_how_to_repeat_it() -> None:
    found = await run([[part("lint", "raise SystemExit(3)")], [part("images", "")]])
    assert found["lint"][0] == 3
    assert found["images"][0] is None
    assert "FAILED   lint" in summary(found)
    assert "Repeat: make lint" in summary(found)
    assert "not run  images" in summary(found)


async def test_the_end_repeats_the_last_lines_of_a_part_that_failed() -> None:
    failed = part("test-unit", "for n in range(50): print(n)\nprint('FAILED tests/x.py'); raise SystemExit(1)")
    await run([[failed]])
    lines = endings([failed]).splitlines()
    assert lines[0] == "The last lines of test-unit:"
    assert "FAILED tests/x.py" in lines
    assert "0" not in lines


async def test_an_interrupt_reaches_all_processes_of_a_part(tmp_path: Path) -> None:
    """As Ctrl-C of a terminal: make alone would wait for what it runs."""
    begun = tmp_path / "begun"
    one = Labelled("one", ("bash", "-c", f"touch {begun}; sleep 600; exit 0"), group=True)
    running = asyncio.create_task(run([[one], [part("two", "")]]))
    await until(begun.exists, "the part has begun")
    os.kill(os.getpid(), signal.SIGINT)
    found = await running
    assert found["one"][0] != 0
    assert found["two"][0] is None


def test_sigterm_ends_the_command_and_the_load() -> None:
    command = (sys.executable, "-m", "tests.busy", "--loops=1", "bash", "-c", "echo begun; exec sleep 600")
    with killed_in_the_end(subprocess.Popen(command, stdout=subprocess.PIPE, text=True)) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        process.terminate()
        assert process.wait(LONG_S) == 1
        assert "failed with -15" in process.stdout.read()


def test_busy_loops_end_with_what_has_started_them() -> None:
    with load(2) as loops:
        assert all(loop.poll() is None for loop in loops)
    assert all(loop.returncode is not None for loop in loops)


def test_busy_loops_end_also_when_it_is_killed() -> None:
    held = "print(loops[0].pid, flush=True); time.sleep(600)"
    program = f"import time\nfrom tests.busy import load\nwith load(1) as loops: {held}"
    with killed_in_the_end(
        subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    ) as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        os.kill(process.pid, signal.SIGKILL)
        wait_until(lambda: not _runs(pid), "the busy loop ends")


def _runs(pid: int) -> bool:
    status = Path(f"/proc/{pid}/stat")
    return status.exists() and status.read_text().rpartition(")")[2].split()[0] != "Z"
