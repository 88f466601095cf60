"""Tests and tools start only programs of a fresh Debian 12."""

import asyncio
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from e2e import images, programs
from e2e.cluster import build, debian

REPOSITORY = Path(__file__).parent.parent
SCRIPT = "#!/bin/sh\necho started\n"


def test_each_program_is_of_a_package_that_is_there_or_gets_installed() -> None:
    packages = set(programs.PROGRAMS.values())
    assert packages <= programs.BASE | set(debian.PACKAGES.values()) | set(images.TOOLS)


@pytest.mark.parametrize("program", ["perl", "/usr/bin/perl"])  # it is there: dpkg needs it
def test_a_program_that_only_this_machine_has_cannot_be_started(program: str) -> None:
    with pytest.raises(FileNotFoundError, match=r"perl is not part of a fresh Debian"):
        subprocess.run([program, "-e", "1"], check=True)


async def test_asyncio_cannot_start_it_either() -> None:
    with pytest.raises(FileNotFoundError, match=r"e2e/programs\.py"):
        await asyncio.create_subprocess_exec("perl", "-e", "1")


def test_what_the_repository_provides_can_be_started(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.write_text(SCRIPT)
    own.chmod(0o755)
    assert subprocess.check_output([own], text=True) == "started\n"
    assert subprocess.check_output(["own"], env={"PATH": str(tmp_path)}, text=True) == "started\n"
    assert subprocess.check_output("echo started", shell=True, text=True) == "started\n"  # noqa: S602 - a constant
    assert subprocess.check_output([programs.UV, "--version"], text=True).startswith("uv ")
    subprocess.run([sys.executable, "-c", ""], check=True)


@pytest.mark.parametrize(
    ("program", "allowed"),
    [
        ("/usr/bin/openssl", True),
        ("/usr/bin/node", False),
        ("/usr/local/bin/uv", False),
        ("/root/.pyenv/shims/python3", False),
        ("/usr/local/go/bin/go", True),
        (str(REPOSITORY / ".venv/bin/python"), True),
        (str(REPOSITORY / "../other/uv"), False),
    ],
)
def test_where_a_program_lies_decides(program: str, *, allowed: bool) -> None:
    assert programs.is_allowed(Path(program)) is allowed


def test_programs_that_are_built_are_named_by_their_path() -> None:
    """A built program is no program of Debian, so that a copy that Debian or the machine has is never taken."""
    built = {name for tool in build.TOOLS.values() for name in tool.binaries}
    assert not built & programs.PROGRAMS.keys()


def test_make_runs_everything_with_debians_path() -> None:
    """Go is the README's prerequisite, wherever it lies; of the caller's other folders none is left."""
    go = Path(shutil.which("go") or "/usr/local/go/bin/go").parent
    command = ["sh", "-c", "exec make --no-print-directory --eval 'path:; @echo $$PATH' path"]
    caller = {"PATH": f"/root/.cargo/bin:{go}:/usr/bin:/bin"}
    found = subprocess.check_output(command, cwd=REPOSITORY, env=caller, text=True)
    assert found.strip() == f"{go}/:/usr/sbin:/usr/bin:/sbin:/bin"
