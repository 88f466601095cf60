"""A test that hangs ends, and its failure shows what it waited for."""

import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parent.parent
HEAD = """
import asyncio, threading, time
import pytest
from e2e.hangs import pytest_exception_interact, pytest_timeout_set_timer
"""
WAITS_IN_A_TASK = """
async def answered():
    await asyncio.Event().wait()  # the answer of D
async def test_it():
    await asyncio.create_task(answered())
"""
WAITS_IN_A_THREAD = """
def answered():
    threading.Event().wait()  # the answer of D
def test_it():
    thread = threading.Thread(target=answered, daemon=True)
    thread.start()
    thread.join()
"""
FAILS_AND_WAITS_IN_ITS_TEARDOWN = """
@pytest.fixture
def pod():
    yield
    threading.Event().wait()  # the answer of D
def test_it(pod):
    assert False
"""


@pytest.mark.parametrize("test", [WAITS_IN_A_TASK, WAITS_IN_A_THREAD, FAILS_AND_WAITS_IN_ITS_TEARDOWN])
def test_a_hang_ends_and_is_shown(tmp_path: Path, test: str) -> None:
    (tmp_path / "conftest.py").write_text(HEAD)
    (tmp_path / "test_it.py").write_text(HEAD + test)
    command = (sys.executable, "-m", "pytest", "--timeout=2", "-o", "asyncio_mode=auto", f"--rootdir={tmp_path}", ".")
    environment = {"PYTHONPATH": str(REPOSITORY), "PATH": ""}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 1, done.stdout + done.stderr
    shown = done.stdout.partition("The test hangs. It waits here:")[2]
    assert "# the answer of D" in shown, done.stdout
